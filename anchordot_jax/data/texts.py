"""Reading one text a row: captions, descriptions or SMILES beside an embedding file."""

import csv
from pathlib import Path
from typing import Any

import h5py

from anchordot_jax.data.formats.base import readable
from anchordot_jax.data.source import EmbeddingSource
from anchordot_jax.errors import InputError

COLUMNS = ("text", "caption", "description", "title")
ID_COLUMNS = ("id", "ids", "key", "keys", "cid")
SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_texts(
    name: str, source: EmbeddingSource, *, columns: tuple[str, ...] = COLUMNS
) -> dict[int, str]:
    """Return the text of each row of an embedding file, by row number.

    Args:
        name: a .txt file of one line a row; a .csv or .tsv file with a column text,
            caption, description or title, and one of ids where its rows are
            not those of the embeddings; or FILE.h5::dataset of strings.
        source: the embedding file that the texts belong to.
        columns: names of a table's column of texts, the first there is taken.

    Raises:
        InputError: no such file, another format, or texts that fit no row.
    """
    file, _, dataset = name.partition("::")
    path = Path(file)
    if not path.is_file():
        raise InputError(f"The texts file {path} does not exist.")
    if path.suffix in SEPARATORS:
        return _table(path, source, columns)
    if path.suffix in (".h5", ".hdf5"):
        return _one_a_row(name, _strings(path, dataset), source)
    if path.suffix != ".txt":
        raise InputError(
            f"{path} must be a .txt, .csv, .tsv or .h5 file of texts, got "
            f"{path.suffix or 'no suffix'}."
        )
    # Not splitlines: it also cuts at characters that a caption may hold.
    with readable(str(path), "text"), path.open(encoding="utf-8") as stream:
        lines = [line.removesuffix("\n") for line in stream]
    return _one_a_row(name, lines, source)


def _one_a_row(name: str, texts: list[str], source: EmbeddingSource) -> dict[int, str]:
    if len(texts) != source.shape[0]:
        raise InputError(
            f"{name} must hold one text for each of the {source.shape[0]} rows of "
            f"{source.where}, got {len(texts)}."
        )
    return dict(enumerate(texts))


def _strings(path: Path, dataset: str) -> list[str]:
    """Return a dataset of strings."""
    with readable(str(path), "HDF5"), h5py.File(path) as file:
        if not dataset or dataset not in file:
            raise InputError(
                f"{path} needs the name of its texts, as {path}::{dataset or 'name'}; "
                f"it holds {', '.join(file)}."
            )
        values: Any = file[dataset]
        if not isinstance(values, h5py.Dataset) or not h5py.check_string_dtype(
            values.dtype
        ):
            raise InputError(f"{path}::{dataset} does not hold strings.")
        return list(values.asstr()[...])


def _table(
    path: Path, source: EmbeddingSource, columns: tuple[str, ...]
) -> dict[int, str]:
    with (
        readable(str(path), "CSV"),
        path.open(encoding="utf-8-sig", newline="") as file,
    ):
        rows = list(csv.DictReader(file, delimiter=SEPARATORS[path.suffix]))
    heads = {str(head).lower(): head for head in (rows[0] if rows else {})}
    column = next((heads[name] for name in columns if name in heads), None)
    if column is None:
        raise InputError(
            f"{path} has none of the columns {', '.join(columns)}; it has "
            f"{', '.join(map(str, heads)) or 'no rows'}."
        )
    texts = [row[column] or "" for row in rows]
    own = next((heads[name] for name in ID_COLUMNS if name in heads), None)
    if own is None or source.ids is None:
        return _one_a_row(str(path), texts, source)
    row_of = {str(value): i for i, value in enumerate(source.ids.tolist())}
    found = {
        row_of[row[own]]: text
        for row, text in zip(rows, texts, strict=True)
        if row[own] in row_of
    }
    if not found:
        raise InputError(f"No id of {path} is one of {source.where}; check the files.")
    return found
