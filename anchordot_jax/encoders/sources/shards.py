"""WebDataset shards: tar files whose members of one stem make one record."""

import itertools
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from anchordot_jax.encoders.images import SUFFIXES
from anchordot_jax.encoders.sources.base import Record, Source, digest_listing
from anchordot_jax.errors import InputError, reason

BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")


def shard_paths(place: str) -> list[Path]:
    """Return the shards of a folder, one file, or a pattern as `a-{000..009}.tar`."""
    found = BRACES.search(place)
    if found:
        first, last = found.groups()
        numbers = range(int(first), int(last) + 1)
        return [
            Path(f"{place[: found.start()]}{i:0{len(first)}d}{place[found.end() :]}")
            for i in numbers
        ]
    path = Path(place)
    return sorted(path.glob("*.tar")) if path.is_dir() else [path]


def webdataset(place: str, fields: Sequence[str] = ()) -> Source:
    """Return the samples of tar shards, by `SHARD/KEY`.

    Captions are the sample's `.txt`, or the named fields of its `.json` (one caption
    each, as in recaptioned CC3M).

    Raises:
        InputError: a shard is missing, or there is none.
    """
    paths = shard_paths(place)
    missing = [path for path in paths if not path.is_file()]
    if missing or not paths:
        raise InputError(
            f"{missing[0] if missing else place} is no tar shard; name a .tar file, a "
            "folder of them, or a pattern as train-{0000..0099}.tar."
        )

    def records() -> Iterator[Record]:
        for path in paths:
            yield from _shard(path, fields)

    digest = digest_listing({path.name: path for path in paths})
    what = f"WebDataset shards{f', captions {list(fields)}' if fields else ''}"
    return Source(what, place, digest, records, None)


def _shard(path: Path, fields: Sequence[str]) -> Iterator[Record]:
    """Yield the records of one shard; a truncated one ends with an error record."""
    shard = path.stem
    try:
        with tarfile.open(path, "r:") as tar:
            members = (member for member in tar if member.isfile())
            for key, group in itertools.groupby(members, lambda m: _split(m.name)[0]):
                parts = {_split(member.name)[1]: member for member in group}
                yield _sample(f"{shard}/{key}", path, tar, parts, fields)
    except (tarfile.TarError, OSError, EOFError) as error:
        yield Record(f"{shard}/?", {}, error=f"damaged shard {path}: {reason(error)}")


def _split(name: str) -> tuple[str, str]:
    """Return a member's key and suffix; the key ends at the base name's first dot."""
    folder, _, base = name.rpartition("/")
    stem, _, suffix = base.partition(".")
    return (f"{folder}/{stem}" if folder else stem), suffix.lower()


def _sample(
    name: str,
    path: Path,
    tar: tarfile.TarFile,
    parts: Mapping[str, tarfile.TarInfo],
    fields: Sequence[str],
) -> Record:
    images = [member for suffix, member in parts.items() if f".{suffix}" in SUFFIXES]
    try:
        texts = _texts(tar, parts, fields)
    except (ValueError, RecursionError, tarfile.TarError, OSError) as error:
        return Record(name, {}, error=f"damaged caption: {reason(error)}")
    # The bytes' place is kept, not the open file: pictures are read by several threads.
    loaders = [
        partial(_bytes_at, path, member.offset_data, member.size)
        for member in images[:1]
    ]
    return Record(name, {"image": loaders, "text": texts})


def _texts(
    tar: tarfile.TarFile, parts: Mapping[str, tarfile.TarInfo], fields: Sequence[str]
) -> list[str]:
    if fields and "json" in parts:
        values = json.loads(_read(tar, parts["json"]))
        return [str(values.get(field) or "") for field in fields]
    return [_read(tar, parts["txt"]).decode("utf-8")] if "txt" in parts else []


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream: Any = tar.extractfile(member)
    return bytes(stream.read())


def _bytes_at(path: Path, start: int, size: int) -> bytes:
    """Return a stretch of a file."""
    with path.open("rb") as stream:
        stream.seek(start)
        return stream.read(size)
