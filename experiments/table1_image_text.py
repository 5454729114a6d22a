"""Table 1 (with deviations: Tables 4 and 5): image-text retrieval at N = 500.

    python experiments/table1_image_text.py --data flickr8k --seeds 5 \
        --data-folder ../shared/data

Runs the table's methods, ridge CCA and the methods that go beyond the paper, on the
same anchors, pools and test items, and prints recall@1, 5 and 10 both ways with the
paper's printed figures below. `--data flickr30k` and `--data mscoco` are the paper's
data sets; `flickr8k` has other photographs and another image encoder, so that its
figures are not comparable with the paper's, only with each other.

About 5 minutes a seed on one CPU core; finished cells are kept in --out and not run
again.
"""

import dataclasses
from typing import Literal

import tyro
from paper_tables import Table, main


@dataclasses.dataclass(frozen=True)
class Args(Table):
    """What to run."""

    data: Literal["flickr8k", "flickr30k", "mscoco"] = "flickr8k"


if __name__ == "__main__":
    main(tyro.cli(Args), number=1)
