"""Table 2 (with deviations: Table 6): molecule-text retrieval at N = 500.

    python experiments/table2_molecule_text.py --data chebi20 --seeds 5 \
        --data-folder ../shared/data

Runs the table's methods, ridge CCA and the methods that go beyond the paper, on the
same anchors, pools and test items, and prints recall@1, 5 and 10 both ways with the
paper's printed figures below. `--data chebi20-full` is the paper's data set; `chebi20`
is its validation and test rows under other encoders, so that its figures are not
comparable with the paper's, only with each other.

About 4 minutes a seed on one CPU core; finished cells are kept in --out and not run
again.
"""

import dataclasses
from typing import Literal

import tyro
from paper_tables import Table, main


@dataclasses.dataclass(frozen=True)
class Args(Table):
    """What to run."""

    data: Literal["chebi20", "chebi20-fp", "chebi20-full"] = "chebi20"


if __name__ == "__main__":
    main(tyro.cli(Args), number=2)
