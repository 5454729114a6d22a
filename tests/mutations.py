"""Files with something wrong in them: what the readers are tried with.

`mutated` changes a good file's bytes at random, by the ways in which files really
break and by those in which they lie.
"""

import io
import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import h5py
import numpy as np
from safetensors.numpy import save

N, DIM_X, DIM_Y = 24, 6, 5

HUGE = (b"99999999999999", b"-1", b"1e308", b"0", b"18446744073709551615", b"NaN")
WORDS = (b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x00" * 8, b"\xff\xff\xff\x7f")

Draws = np.random.Generator


class Opens:
    """Writes a file when it is unpickled: the proof that code was run."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        """Return what unpickling calls."""
        return open, (str(self.sentinel), "w")


def rows(dim: int, n: int = N) -> np.ndarray:
    """Return some embeddings."""
    return np.random.default_rng(dim).normal(size=(n, dim)).astype(np.float32)


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def _npz(compress: bool, **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(stream, **arrays)
    return stream.getvalue()


def _hdf5(dim: int, *, chunked: bool) -> bytes:
    stream = io.BytesIO()
    options = {"chunks": (5, dim), "compression": "gzip"} if chunked else {}
    with h5py.File(stream, "w") as file:
        file.create_dataset("group/embeddings", data=rows(dim), **options)
        file["group/ids"] = [f"item {i}" for i in range(N)]
        file.attrs["made by"] = "a test"
    return stream.getvalue()


def _safetensors(dim: int, dtype: str) -> bytes:
    arrays = {"embeddings": rows(dim).astype(dtype), "ids": np.arange(N)}
    return bytes(save(arrays, metadata={"made by": "a test"}))


def _parquet(dim: int) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table({"embeddings": list(rows(dim))}), stream)
    return stream.getvalue()


def embedding_files(dim: int, sentinel: Path) -> Mapping[str, bytes]:
    """Return good embedding files by name, and some that carry a pickle."""
    evil = np.array([Opens(sentinel)] * N, dtype=object)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Opens(sentinel)))
        file.writestr("embeddings.npy", _npy(evil))
    return {
        "plain.npy": _npy(rows(dim)),
        "fortran.npy": _npy(np.asfortranarray(rows(dim).astype(">f8"))),
        "stored.npz": _npz(False, embeddings=rows(dim), ids=np.arange(N)),
        "packed.npz": _npz(True, embeddings=rows(dim).astype(np.float16)),
        "chunked.h5": _hdf5(dim, chunked=True),
        "whole.h5": _hdf5(dim, chunked=False),
        "full.safetensors": _safetensors(dim, "float32"),
        "half.safetensors": _safetensors(dim, "float16"),
        "list.parquet": _parquet(dim),
        "objects.npy": _npy(evil),
        "objects.npz": _npz(False, embeddings=rows(dim), ids=evil),
        "pickle.npy": pickle.dumps(Opens(sentinel)),
        "archive.npz": archive.getvalue(),
        "settings.toml": b'[coupling]\ntolerance = 1e-4\nname = "x"\n',
    }


def pairs_file(n: int = 10) -> bytes:
    """Return a pairs file."""
    return b"x,y\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(n))


def _flip(data: bytearray, draws: Draws, other: bytes) -> None:
    for _ in range(int(draws.integers(1, 9))):
        data[int(draws.integers(len(data)))] ^= 1 << int(draws.integers(8))


def _cut(data: bytearray, draws: Draws, other: bytes) -> None:
    del data[int(draws.integers(len(data))) :]


def _remove(data: bytearray, draws: Draws, other: bytes) -> None:
    start = int(draws.integers(len(data)))
    del data[start : start + int(draws.integers(1, 64))]


def _insert(data: bytearray, draws: Draws, other: bytes) -> None:
    start = int(draws.integers(len(data)))
    data[start:start] = draws.bytes(int(draws.integers(1, 64)))


def _repeat(data: bytearray, draws: Draws, other: bytes) -> None:
    start = int(draws.integers(len(data)))
    data[start:start] = data[start : start + int(draws.integers(1, 256))]


def _lie(data: bytearray, draws: Draws, other: bytes) -> None:
    """Put a huge number where the header has one in digits."""
    digits = [i for i in range(min(len(data), 4096)) if chr(data[i]).isdigit()]
    start = digits[int(draws.integers(len(digits)))] if digits else 0
    stop = start
    while stop < len(data) and chr(data[stop]).isdigit():
        stop += 1
    data[start:stop] = HUGE[int(draws.integers(len(HUGE)))]


def _word(data: bytearray, draws: Draws, other: bytes) -> None:
    """Put a huge number where the file may have a binary one."""
    word = WORDS[int(draws.integers(len(WORDS)))]
    start = int(draws.integers(min(len(data), 4096))) // 4 * 4
    data[start : start + len(word)] = word


def _splice(data: bytearray, draws: Draws, other: bytes) -> None:
    start = int(draws.integers(len(data)))
    data[start:] = other[int(draws.integers(max(1, len(other)))) :]


def _rarely_replace(data: bytearray, draws: Draws, other: bytes) -> None:
    if draws.integers(3) == 0:
        data[:] = other


MUTATIONS: tuple[Callable[[bytearray, Draws, bytes], None], ...] = (
    _flip,
    _flip,
    _cut,
    _remove,
    _insert,
    _repeat,
    _lie,
    _lie,
    _word,
    _word,
    _splice,
    _rarely_replace,
)


def mutated(good: bytes, other: bytes, draws: Draws) -> bytes:
    """Return a good file with one to three things wrong.

    Args:
        good: its bytes.
        other: another file, which parts or all of it may be replaced by.
        draws: decides.
    """
    data = bytearray(good)
    for _ in range(int(draws.choice((1, 1, 1, 1, 2, 3)))):
        if not data:
            break
        MUTATIONS[int(draws.integers(len(MUTATIONS)))](data, draws, other)
    return bytes(data)


def nested_json(depth: int = 100_000) -> bytes:
    """Return JSON that is deeper than a parser's stack."""
    return b"[" * depth


def captions_file() -> bytes:
    """Return a caption file of COCO's kind."""
    images = [{"id": i, "file_name": f"{i}.png"} for i in range(4)]
    captions = [{"id": i, "image_id": i, "caption": f"picture {i}"} for i in range(4)]
    return json.dumps({"images": images, "annotations": captions}).encode()
