"""Degraded captions and their embeddings, for uot_gap_tables.py.

Command (needs anchordot-jax[captions]; about 5 minutes on 2 CPU cores):

    python experiments/uot_gap_captions.py --data-folder DIR

Takes the test rows of flickr8k's split (seed 0, 500 anchors, 2,000 test pairs), makes
every first caption worse in each way of `captions.CONDITIONS` and encodes it with
all-MiniLM-L6-v2. The file holds one float16 dataset a condition, the texts, and the
rows. `random` is left out: it is a shift of `full`.
"""

import dataclasses
from pathlib import Path

import h5py
import numpy as np
import tyro

from anchordot_jax import files, protocol_split
from anchordot_jax.diagnostics import captions


@dataclasses.dataclass(frozen=True)
class Args:
    """What to encode."""

    data_folder: Path
    """Folder of flickr8k_captions.tsv.gz."""
    out: Path = Path("runs/uot_gap/captions.h5")
    """File to write."""
    test: int = 2000
    """Test rows of the split."""


def main(args: Args) -> None:
    """Write the file."""
    table = captions.read_captions(args.data_folder / "flickr8k_captions.tsv.gz")
    first = [row["caption"] for row in table if row["caption_number"] == "0"]
    split = protocol_split(len(first), seed=0, anchors=500, test=args.test)
    rows = split.test_pairs[:, 0]
    own = [first[row] for row in rows]
    texts = {
        name: captions.degrade(own, name)
        for name in captions.CONDITIONS
        if name != "random"
    }
    everything = [text for group in texts.values() for text in group]
    print(f"{len(set(everything))} texts to encode", flush=True)
    encoded = captions.encode_texts(everything)
    with files.replacing(args.out) as temporary, h5py.File(temporary, "w") as file:
        file["rows"] = rows
        for place, (name, group) in enumerate(texts.items()):
            part = encoded[place * len(rows) : (place + 1) * len(rows)]
            file[name] = part.astype(np.float16)
            file[f"text/{name}"] = group
    print(f"{args.out} written")


if __name__ == "__main__":
    main(tyro.cli(Args))
