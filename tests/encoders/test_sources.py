"""Readers of raw inputs: what each format yields, and what it says of bad entries."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from anchordot_jax.encoders.images import decode
from anchordot_jax.encoders.sources.base import Record, Source, items
from anchordot_jax.encoders.sources.opening import only_split, open_source
from anchordot_jax.encoders.sources.tables import Columns
from anchordot_jax.errors import InputError
from fake_encoders import write_pictures

SVG = """<svg xmlns:dc="http://purl.org/dc/elements/1.1/"
 xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><metadata><rdf:RDF>
 <dc:title>AZ-lizard</dc:title><dc:subject><rdf:Bag><rdf:li></rdf:li><rdf:li>HASH(0x8a0)</rdf:li>
 <rdf:li>Reptile</rdf:li><rdf:li>sand_animal</rdf:li><rdf:li>reptile</rdf:li></rdf:Bag>
 </dc:subject><dc:publisher><dc:title>Somebody</dc:title></dc:publisher></rdf:RDF>
 </metadata></svg>"""


def records(source: Source) -> list[Record]:
    """Return all records of a source."""
    return list(source.records())


def captions(source: Source) -> dict[str, list[Any]]:
    """Return each record's captions."""
    return {r.id: list(r.values.get("text", ())) for r in source.records()}


def png(colour: int) -> bytes:
    """Return a small picture as a file's bytes."""
    stream = io.BytesIO()
    Image.new("RGB", (2, 2), (colour, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def test_folders_have_captions_beside_their_images(tmp_path: Path) -> None:
    """Lines of NAME.txt, or the title and keywords of NAME.svg elsewhere."""
    write_pictures(tmp_path / "art" / "sub", 2)
    (tmp_path / "art" / "sub" / "p0001.txt").unlink()
    source = open_source(str(tmp_path / "art"))
    assert source.length == 2
    found = captions(source)
    assert list(found) == ["sub/p0000.png", "sub/p0001.png"]
    assert len(found["sub/p0000.png"]) == 2
    assert [item.error for item in items(source, "text")] == [
        "",
        "",
        "no text in this entry",
    ]
    (tmp_path / "svg" / "sub").mkdir(parents=True)
    (tmp_path / "svg" / "sub" / "p0000.svg").write_text(SVG)
    (tmp_path / "svg" / "sub" / "p0001.svg").write_text("<svg")
    drawn = open_source(str(tmp_path / "art"), captions_folder=tmp_path / "svg")
    assert captions(drawn) == {
        "sub/p0000.png": ["az lizard: reptile, sand animal"],
        "sub/p0001.png": [],
    }
    assert drawn.digest != source.digest


def write_shard(path: Path, members: dict[str, bytes]) -> None:
    """Write a tar file."""
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_shards_are_grouped_by_key(tmp_path: Path) -> None:
    """Images, .txt captions, and several captions from fields of .json."""
    recaptioned = {"raw_caption": "raw", "short": "brief", "long": None}
    write_shard(
        tmp_path / "cc-000.tar",
        {
            "a/0001.jpg": png(1),
            "a/0001.txt": b"one",
            "a/0001.json": json.dumps(recaptioned).encode(),
            "a/0002.png": png(2),
        },
    )
    write_shard(tmp_path / "cc-001.tar", {"b.json": b"{", "b.webp": png(3)})
    source = open_source(str(tmp_path))
    assert captions(source) == {
        "cc-000/a/0001": ["one"],
        "cc-000/a/0002": [],
        "cc-001/b": [],
    }
    loaders = [r.values["image"][0] for r in records(source)]
    assert [decode(loader).getpixel((0, 0))[0] for loader in loaders] == [1, 2, 3]

    fields = Columns(text=("raw_caption", "short", "long"))
    pattern = str(tmp_path / "cc-{000..001}.tar")
    several = open_source(pattern, kind="webdataset", columns=fields)
    assert records(several)[0].values["text"] == ["raw", "brief", ""]
    assert records(several)[2].error.startswith("damaged caption")


def test_a_truncated_shard_is_an_entry_with_an_error(tmp_path: Path) -> None:
    """What was whole before the damage is still read."""
    write_shard(tmp_path / "s.tar", {"a.png": png(1), "b.png": b"x" * 20_000})
    whole = (tmp_path / "s.tar").read_bytes()
    (tmp_path / "s.tar").write_bytes(whole[:9_000])
    found = records(open_source(str(tmp_path / "s.tar")))
    assert found[0].id == "s/a"
    assert found[-1].error.startswith("damaged shard")


def test_coco_captions(tmp_path: Path) -> None:
    """All captions of an image, in the order of their ids; the split by the name."""
    values = {
        "images": [{"id": 7, "file_name": "b.jpg"}, {"id": 3, "file_name": "a.jpg"}],
        "annotations": [
            {"id": 2, "image_id": 7, "caption": "second"},
            {"id": 1, "image_id": 7, "caption": "first"},
        ],
    }
    path = tmp_path / "captions_val2017.json"
    path.write_text(json.dumps(values))
    (tmp_path / "val2017").mkdir()
    source = open_source(str(path), images=tmp_path / "val2017")
    assert captions(source) == {"a.jpg": [], "b.jpg": ["first", "second"]}
    assert {r.split for r in records(source)} == {"val"}
    assert records(source)[0].values["image"] == (tmp_path / "val2017" / "a.jpg",)


def test_karpathy_splits(tmp_path: Path) -> None:
    """`restval` is training data; COCO's images lie in a folder of their own."""
    images = [
        {
            "filename": f"{i}.jpg",
            "filepath": "val2014",
            "split": split,
            "sentences": [{"raw": f"{i} one"}, {"raw": f"{i} two"}],
        }
        for i, split in enumerate(["train", "restval", "val", "test"])
    ]
    (tmp_path / "val2014").mkdir()
    (tmp_path / "val2014" / "1.jpg").write_bytes(png(1))
    path = tmp_path / "dataset_coco.json"
    path.write_text(json.dumps({"images": images}))
    source = open_source(str(path))
    assert [r.split for r in records(source)] == ["train", "train", "val", "test"]
    assert records(source)[1].values["image"] == (tmp_path / "val2014" / "1.jpg",)
    assert captions(only_split(source, "test")) == {"3.jpg": ["3 one", "3 two"]}
    with pytest.raises(InputError, match="no split 'dev'; it has test, train, val"):
        only_split(source, "dev")


def test_flickr_token_files(tmp_path: Path) -> None:
    """Captions in the order of their numbers, splits from the lists of names."""
    path = tmp_path / "Flickr8k.token.txt"
    path.write_text("a.jpg#1\tsecond\na.jpg#0\tfirst\nb.jpg#0\tonly\nodd line\n")
    (tmp_path / "train.txt").write_text("a.jpg\n")
    (tmp_path / "test.txt").write_text("b.jpg\n")
    lists = {split: tmp_path / f"{split}.txt" for split in ("train", "test")}
    source = open_source(str(path), split_lists=lists)
    assert captions(source) == {
        "a.jpg": ["first", "second"],
        "b.jpg": ["only"],
        "line4": [],
    }
    assert [r.split for r in records(source)] == ["train", "test", ""]
    assert "NAME.jpg#0" in records(source)[2].error
    (tmp_path / "test.txt").write_text("a.jpg\n")
    with pytest.raises(InputError, match=r"a\.jpg is listed in two splits"):
        open_source(str(path), split_lists=lists)


def test_tables_merge_rows_of_one_id(tmp_path: Path) -> None:
    """Several captions of an image; short rows and contradictions are reasons."""
    path = tmp_path / "captions.csv"
    path.write_text(
        'image,caption\na.jpg,"one, two"\nb.jpg,three\na.jpg,four\nc.jpg\n',
        encoding="utf-8-sig",
    )
    columns = Columns(text=("caption",), image="image", id="image")
    source = open_source(str(path), columns=columns)
    found = captions(source)
    assert found == {"a.jpg": ["one, two", "four"], "b.jpg": ["three"], "c.jpg": []}
    assert records(source)[2].error == "1 fields where the header has 2"

    path.write_text("image,caption,name\na.jpg,one,n\nb.jpg,two,n\n")
    both = open_source(
        str(path), columns=Columns(text=("caption",), image="image", id="name")
    )
    assert records(both)[0].error == "two rows of this id name different images"


def test_tsv_keeps_bare_quotes_and_is_read_from_gzip(tmp_path: Path) -> None:
    """A quote in a published TSV is a character, and the id is the row without one."""
    with gzip.open(tmp_path / "c.tsv.gz", "wt") as stream:
        stream.write("smiles\ttext\tsplit\nCCO\ta \"5' end\ttrain\nC\tb\ttest\n")
    columns = Columns(text=("text",), smiles="smiles", split="split")
    source = open_source(str(tmp_path / "c.tsv.gz"), columns=columns)
    assert captions(source) == {"row0": ["a \"5' end"], "row1": ["b"]}
    assert [r.values["molecule"] for r in records(source)] == [("CCO",), ("C",)]
    assert [r.split for r in records(source)] == ["train", "test"]


def test_json_lines(tmp_path: Path) -> None:
    """A list is several captions; a line that is no object is a reason."""
    path = tmp_path / "c.jsonl"
    path.write_text('{"t": ["a", "b"], "i": 1}\n{"t": "c", "i": 2}\n[1]\n{\n')
    source = open_source(str(path), columns=Columns(text=("t",), id="i"))
    assert captions(source) == {"1": ["a", "b"], "2": ["c"], "row2": [], "row3": []}
    assert records(source)[2].error == "not a JSON object"
    assert records(source)[3].error.startswith("not JSON")


def test_smiles_lines_and_chebi20(tmp_path: Path) -> None:
    """Names are ids; ChEBI-20's three files are its splits."""
    (tmp_path / "m.smi").write_text("SMILES name\nCCO ethanol\nC\n\n")
    source = open_source(str(tmp_path / "m.smi"))
    assert [r.id for r in records(source)] == ["ethanol", "row1"]

    (tmp_path / "text.txt").write_text("a red bus\n\n a cat \n")
    lines = open_source(str(tmp_path / "text.txt"))
    assert captions(lines) == {"row0": ["a red bus"], "row1": ["a cat"]}

    folder = tmp_path / "chebi"
    folder.mkdir()
    for split, cid in (("train", 1), ("validation", 2), ("test", 3)):
        (folder / f"{split}.txt").write_text(
            f'CID\tSMILES\tdescription\n{cid}\tCCO\tThe "molecule" is {split}.\n'
        )
    source = open_source(str(folder))
    assert [(r.id, r.split) for r in records(source)] == [
        ("1", "train"),
        ("2", "validation"),
        ("3", "test"),
    ]
    assert records(source)[1].values["text"] == ('The "molecule" is validation.',)


def test_the_digest_tells_contents_and_columns_apart(tmp_path: Path) -> None:
    """A resumed run notices when the source or its reading changed."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    one = open_source(str(path), columns=Columns(text=("a",)))
    other = open_source(str(path), columns=Columns(text=("b",)))
    assert (one.what, one.digest) != (other.what, other.digest)
    path.write_text("a,b\n1,3\n")
    assert open_source(str(path), columns=Columns(text=("a",))).digest != one.digest


def test_transparent_pictures_lie_on_white_and_stand_upright(tmp_path: Path) -> None:
    """Alpha, palettes with transparency, grey with alpha, and EXIF rotation."""
    Image.new("RGBA", (2, 1), (9, 9, 9, 0)).save(tmp_path / "a.png")
    Image.new("LA", (2, 1), (9, 0)).save(tmp_path / "la.png")
    for name in ("a.png", "la.png"):
        assert decode(tmp_path / name).getpixel((0, 0)) == (255, 255, 255)
    turned = Image.new("RGB", (4, 2))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)
    assert decode(tmp_path / "turned.jpg").size == (2, 4)
    Image.new("CMYK", (2, 2)).save(tmp_path / "c.jpg")
    assert decode(tmp_path / "c.jpg").mode == "RGB"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", "holds no rows|no rows under"),
        ("t.csv", "a,b\n1,2\n", "no column 'text'; it has a, b"),
        ("captions.json", "{", "cannot be read as JSON"),
        ("captions.json", "{}", "is no COCO caption file"),
        ("dataset.json", '{"images": [{}]}', "is no Karpathy caption file"),
        ("x.token", "nothing\n", "has no line of the form"),
        ("x.smi", "\n", "holds no SMILES"),
        ("x.txt", "\n", "holds no text"),
        ("x.dat", "1", "not told by its name; say it with --format"),
    ],
)
def test_a_source_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    """The sentence says what is wrong with the file."""
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        open_source(str(tmp_path / name), columns=Columns(text=("text",)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: open_source(str(p / "none")), "does not exist"),
        (lambda p: open_source(str(p)), "holds no image files"),
        (lambda p: open_source(str(p), kind="coco"), "is a folder; coco is read from"),
        (lambda p: open_source(str(p), images=p / "no"), "folder of images, does not"),
        (lambda p: open_source(str(p / "a{0..1}.tar"), kind="webdataset"), "no tar"),
        (lambda p: open_source(str(p), kind="chebi20"), "holds none of ChEBI-20"),
    ],
)
def test_a_wrong_place_is_one_sentence(
    tmp_path: Path, call: Callable[[Path], Source], message: str
) -> None:
    """Folders for files, files for folders, and what is not there."""
    with pytest.raises(InputError, match=message):
        call(tmp_path)
