"""What is made of the figures' tables: findings, one collected table, tables 3, 7."""

import csv
import gzip
import importlib
import inspect
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from anchordot_jax import InputError, load_dataset
from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.data.datasets import DATASETS

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
RESULTS = EXPERIMENTS.parent / "docs" / "results"
sys.path.insert(0, str(EXPERIMENTS))

import class_task  # noqa: E402
import collect  # noqa: E402
import figure4_hubness  # noqa: E402
import paper_findings  # noqa: E402
import table3_zero_shot  # noqa: E402
import table7_time  # noqa: E402
from results import read_results, write_results  # noqa: E402

ENVIRONMENT = {"python": "3", "versions": {}, "backend": "cpu"}


def write_table(name: str, docs: Path, rows: list[tuple[dict, dict]]) -> None:
    """Write a script's table of some settings and results."""
    records = [
        {
            "experiment": name,
            "status": "done",
            "settings": settings,
            "result": result,
            "seconds": 1.0,
            "cpu_seconds": 1.0,
            "environment": ENVIRONMENT,
        }
        for settings, result in rows
    ]
    write_results(name, records, docs)


def figure2(docs: Path, gains: tuple[float, float], noise: float = 0.001) -> None:
    """Write a table whose gain over contrastive is given at the two N of (a)."""
    rng = np.random.default_rng(0)
    rows = []
    for (n, kept, pool), gain in {
        (500, 4000, 1000): gains[0],
        (4000, 4000, 1000): gains[1],
        (100, 500, 1000): 0.1,
        (500, 500, 1000): 0.1,
        (500, 500, 100): 0.0,
    }.items():
        for method in ("contrastive", "anchordot"):
            for seed in range(3):
                own = {"data": "flickr8k", "method": method, "anchors": n}
                own |= {"reserved": kept, "pool": pool, "seed": seed}
                own |= {"overlap": 0.0, "schedule": "short"}
                recall = 0.4 + gain * (method == "anchordot") + noise * rng.normal()
                rows.append((own, {"mean/recall@10": recall, "pool_x": pool}))
    write_table("figure2_anchors_and_pool", docs, rows)


@pytest.mark.parametrize(
    ("gains", "noise", "verdict"),
    [
        ((0.2, 0.05), 0.001, "confirmed"),
        ((0.05, 0.2), 0.001, "contradicted"),
        ((0.2, 0.05), 0.2, "not decided"),
    ],
)
def test_a_gain_that_shrinks_or_grows(
    tmp_path: Path, gains: tuple[float, float], noise: float, verdict: str
) -> None:
    figure2(tmp_path, gains, noise)
    found, lines = paper_findings.gain_shrinks(tmp_path)
    assert found == verdict
    if noise < 0.1:
        assert lines[-1].startswith("gain at 500 less gain at 4000: ")
        shown = float(lines[-1].split(": ")[1].split()[0])
        assert shown == pytest.approx(100 * (gains[0] - gains[1]), abs=0.5)
        assert paper_findings.grows_with_pool(tmp_path)[0] == "confirmed"


@pytest.mark.parametrize(
    ("change", "noise", "verdict"),
    [
        (0.0, 0.001, "confirmed"),
        (0.05, 0.001, "contradicted"),
        (-0.05, 0.001, "contradicted"),
        (0.0, 0.05, "not decided"),
        (0.02, 0.001, "not decided"),
    ],
)
def test_no_change_is_an_interval_within_two_points(
    tmp_path: Path, change: float, noise: float, verdict: str
) -> None:
    steps = np.array([-1.0, 0.0, 1.0]) * noise
    rows = [
        (
            {"data": "d", "method": method, "anchors": 500, "overlap": o, "seed": s},
            {"mean/recall@10": 0.6 + o * (change + steps[s])},
        )
        for method in ("sotalign", "anchordot")
        for o in (0.0, 0.5, 1.0)
        for s in range(3)
    ]
    write_table("figure3_overlap", tmp_path, rows)
    assert paper_findings.overlap_is_idle(tmp_path)[0] == verdict


@pytest.mark.parametrize(
    ("recall", "verdict"), [(0.03, "confirmed"), (0.2, "contradicted")]
)
def test_methods_near_chance_fail(tmp_path: Path, recall: float, verdict: str) -> None:
    names = ("gromov-wasserstein", "wasserstein-procrustes", "icp", "mini-vec2vec")
    rows = [
        (
            {"data": "d", "method": method, "seed": seed},
            # What the paper does not have is not judged.
            {"mean/recall@10": 0.5 if method == names[3] else recall + 0.001 * seed},
        )
        for method in names
        for seed in range(3)
    ]
    write_table("figure7_zero_pairs", tmp_path, rows)
    found, lines = paper_findings.zero_pairs_fail(tmp_path)
    assert (found, len(lines)) == (verdict, 4)


@pytest.mark.parametrize(
    ("change", "verdict"), [(-0.1, "confirmed"), (0.1, "contradicted")]
)
def test_a_structure_term_that_hurts_or_helps(
    tmp_path: Path, change: float, verdict: str
) -> None:
    rows = []
    for alpha in (None, 0.5):
        for seed in range(3):
            own = {"data": "d", "alpha": alpha, "seed": seed}
            own |= {"coupling": "profile" if alpha is None else "fused"}
            value = 0.6 + (alpha is not None) * (change + 0.001 * seed)
            rows.append((own, {"plan/recall@10": value, "students/recall@10": value}))
    write_table("figure10_fused_gw", tmp_path, rows)
    assert paper_findings.structure_does_not_help(tmp_path)[0] == verdict


def test_one_seed_decides_nothing() -> None:
    alone = paper_findings.interval("what", [3.0])
    assert paper_findings.above_zero([alone]) == "not decided"
    assert "one seed" in alone.line()


def test_an_interval_is_scipys() -> None:
    values = [1.0, 2.5, 2.0, 4.0]
    found = paper_findings.interval("what", values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected))


def test_the_committed_tables_are_judged() -> None:
    found = {finding.source: finding for finding in paper_findings.judge_all(RESULTS)}
    assert found["figure4_hubness"].verdict == "confirmed"
    assert len(found["figure4_hubness"].lines) == 2 * 2 * 4
    page = paper_findings.markdown(found.values())
    for finding in found.values():
        assert f"**{finding.verdict}**" in page


def test_a_finding_without_a_table_is_not_run_yet(tmp_path: Path) -> None:
    found = paper_findings.judge_all(tmp_path)
    assert {finding.verdict for finding in found} == {"not run yet"}


def test_everything_is_collected_without_running_a_cell(tmp_path: Path) -> None:
    figure2(tmp_path, (0.2, 0.05))
    names = ("figure4_hubness", "figure6_participation_ratio", "figure17_selection")
    for name in names:
        (tmp_path / f"{name}.csv").write_bytes((RESULTS / f"{name}.csv").read_bytes())
    args = collect.Args(docs=tmp_path, out=tmp_path / "cells")
    collect.main(args)
    for name in (*names, "figure2_anchors_and_pool"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert (tmp_path / f"{name}.svg").is_file()
    assert not args.out.exists()
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    sources = {row["source"] for row in rows}
    assert sources == {*names, "figure2_anchors_and_pool", "all_methods"}
    assert sum(row["source"] == "figure4_hubness" for row in rows) == 50
    assert pq.read_table(tmp_path / "all.parquet").num_rows == len(rows)
    page = (tmp_path / "tables.md").read_text()
    printed = [line for line in page.splitlines() if "| 79.25 (2.47) |" in line]
    assert len(printed) == 1
    assert printed[0].startswith("| AnchorDOT |")
    assert "Other data and encoders: compare the order" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| figure 2 |")][:1]
    *printed, here, _ = row.split(" | ")[3:]
    assert printed == ["63", "flickr30k"]
    assert float(here) == pytest.approx(40, abs=0.2)
    (row,) = [line for line in page.splitlines() if "| 2.40 |" in line]
    assert row.endswith("| 2.40 | flickr30k | 4.70 | flickr8k |")


def test_a_table_is_drawn_as_its_cells_are(tmp_path: Path) -> None:
    records = read_results("figure4_hubness", RESULTS)
    cells = [
        {**record, "result": {k: v for k, v in record["result"].items() if "/" in k}}
        | {"settings": {k: v for k, v in record["result"].items() if "/" not in k}}
        for record in reversed(records)
    ]
    for name, own in (("table", records), ("cells", cells)):
        (tmp_path / name).mkdir()
        figure4_hubness.draw(own, tmp_path / name)
    for suffix in ("png", "svg"):
        drawn = [tmp_path / n / f"figure4_hubness.{suffix}" for n in ("table", "cells")]
        assert drawn[0].read_bytes() == drawn[1].read_bytes()


def test_every_drawing_is_made_of_records_and_a_folder() -> None:
    """What collect.py calls has the two arguments that it gives."""
    found = 0
    for script in Path(collect.__file__).parent.glob("*.py"):
        draw = getattr(importlib.import_module(script.stem), "draw", None)
        if draw is not None:
            assert list(inspect.signature(draw).parameters) == ["records", "docs"]
            found += 1
    assert found >= 8


def test_cells_that_are_in_no_table_are_collected_once(tmp_path: Path) -> None:
    from anchordot_jax.runs import cells

    grid = cells.grid("fits", method=["asif"], pool=[None, 60], seed=[0])
    out = tmp_path / "cells"
    records = cells.run_cells(grid, lambda own: {"mean/recall@10": 0.5}, out)
    write_results("figure3_overlap", records[:1], tmp_path)
    args = collect.Args(docs=tmp_path, out=out, methods=tmp_path / "none.csv")
    tables = {"figure3_overlap": read_results("figure3_overlap", tmp_path)}
    rows = collect.all_rows(tables, args)
    assert sorted((row["source"], row.get("pool")) for row in rows) == [
        ("cells", 60),
        ("figure3_overlap", None),
    ]


def test_nothing_to_collect_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        collect.main(collect.Args(docs=tmp_path))
    assert stopped.value.code == 2
    assert "holds no table of a script" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def captions(path: Path, rows: list[list[str]]) -> None:
    """Write the captions of some photographs, a list each."""
    lines = ["image_row\tid\tcaption_number\tcaption"]
    for image, own in enumerate(rows):
        lines += [f"{image}\tx\t{number}\t{text}" for number, text in enumerate(own)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def test_a_photograph_is_of_the_one_class_that_most_captions_name(
    sets_folder: Path,
) -> None:
    rows = [["a doghouse"] * 5] * 7086
    rows[0] = ["Dogs run .", "a DOG", "two dogs, wet", "it runs", "fur"]
    rows[1] = ["a dog", "two dogs", "it runs", "fur", "fur"]
    rows[2] = ["a man and a woman"] * 5
    rows[3] = ["a man", "a man on a mountain", "men", "a hill", "a woman"]
    rows[4] = ['a "man', "a man", "a man", "men", "men"]
    captions(sets_folder / class_task.CAPTIONS, rows)
    found = class_task._named(sets_folder)
    assert found[:5].tolist() == [0, -1, -1, 1, 1]
    assert set(found[5:]) == {-1}


def test_classes_of_photographs_need_their_captions(sets_folder: Path) -> None:
    settings = {"data": "openclipart", "classes": "flickr8k"}
    with pytest.raises(InputError, match=r"captions\.tsv\.gz is missing"):
        class_task.class_task(settings, sets_folder)


@pytest.mark.parametrize("data", ["openclipart", "flickr8k"])
def test_prompts_and_classified_images_are_of_other_pieces(
    tmp_path: Path, data: str
) -> None:
    settings = {"data": data, "classes": "openclipart", "seed": 0, "anchors": 300}
    settings |= {"reserved": 500, "pool": 50, "overlap": 0.0}
    task = class_task.class_task(settings, tmp_path)
    x, _ = load_dataset("openclipart", tmp_path).read()
    from fits import split_of

    split = split_of({**settings, "pool": None}, len(x))
    known = np.concatenate([split.anchors[:, 0], split.pool_x])
    seen = {row.tobytes() for row in x[known]}
    own = {row.tobytes() for row in task.images}
    if data == "openclipart":
        assert not own & seen
    assert not own & {row.tobytes() for row in x[split.pool_y]}
    assert task.names == class_task.GROUPS
    assert set(task.image_labels) == set(task.prompt_labels) == set(range(7))


def test_a_set_without_classes_is_refused(sets_folder: Path) -> None:
    settings = {"data": "openclipart", "classes": "chebi20"}
    with pytest.raises(InputError, match="flickr8k, openclipart or imagenet7"):
        class_task.class_task(settings, sets_folder)


@pytest.fixture
def sets_folder(tmp_path: Path) -> Path:
    """Return a folder of sets with the official numbers of rows, one column a side."""
    sets = {
        "flickr8k": ("image", {0: 5247, 1: 878, 2: 880, 3: 81}),
        "chebi20": ("molecule", {1: 2883, 2: 2918}),
    }
    for name, (x, counts) in sets.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            numbers = np.repeat(list(counts), list(counts.values()))
            file[x] = file["text"] = np.ones((len(numbers), 1), np.float32)
            file["split"] = numbers
    return tmp_path


def test_the_paper_is_beside_the_measured_accuracy(tmp_path: Path) -> None:
    own = {"data": "flickr8k", "classes": "openclipart", "method": "sue"}
    result = {"top1": 0.5, "mean_per_class": 0.25, "most_frequent": 0.3, "images": 9}
    rows = [(own | {"seed": seed}, result) for seed in range(2)]
    write_table("table3_zero_shot", tmp_path, rows)
    records = read_results("table3_zero_shot", tmp_path)
    lines = table3_zero_shot.table_lines(records)
    assert "| flickr8k | openclipart | SUE | 50.0 (0.0) | 25.0 (0.0) |" in lines
    assert "| flickr30k | AnchorDOT | 89.91 (3.89) |" in lines
    assert lines[-1] == "Other images and prompts: compare the order, not the figures."


def test_seconds_are_beside_the_printed_ones(tmp_path: Path) -> None:
    rows = [
        (
            {"data": "planted", "method": method, "anchors": 500, "pool": 2000}
            | {"schedule": schedule, "seed": 0},
            {"seconds": 3.0, "gigabytes": 1.0},
        )
        for method, schedule in (("sotalign", "short"), ("anchordot", "full"))
    ]
    write_table("table7_time", tmp_path, rows)
    lines = table7_time.table_lines(read_results("table7_time", tmp_path))
    (own,) = [line for line in lines if "| AnchorDOT |" in line]
    assert own.endswith("| full | 3.0 (0.0) | 5.0 (0.4) and 11.05 (7.12) |")
    title = METHODS["sotalign"].title
    assert any(f"| {title} | short |" in line for line in lines)
    assert lines[-1].startswith("A short schedule")


def test_a_fit_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import sys; sys.exit('first\\nno memory')")
    monkeypatch.setattr(table7_time, "BENCHMARK", script)
    settings = {"method": "asif", "schedule": "full", "anchors": 10, "pool": 20}
    with pytest.raises(RuntimeError, match=r"^no memory$"):
        table7_time.run(settings)


def test_a_fit_is_timed_at_its_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "echoes.py"
    script.write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    monkeypatch.setattr(table7_time, "BENCHMARK", script)
    settings = {"method": "asif", "schedule": "full", "anchors": 10, "pool": 20}
    given = "--alone --methods asif --schedule full --n 10 --m 20"
    assert table7_time.run(settings) == given.split()


def test_the_papers_classes_have_one_prompt_each(tmp_path: Path) -> None:
    names = DATASETS["imagenet7"].classes
    for side, ids in (
        ("imagenet7/x", [f"{name}/{k}.jpg" for name in names for k in range(100)]),
        ("imagenet7-prompts/y", [f"A photo of a {name}" for name in names]),
    ):
        path = tmp_path / f"{side}.h5"
        path.parent.mkdir()
        with h5py.File(path, "w") as file:
            file["embeddings"] = np.eye(len(ids), 8, dtype=np.float32) + 0.1
            file["ids"] = np.array(ids, object)
    settings = {"data": "openclipart", "classes": "imagenet7"}
    task = class_task.class_task(settings, tmp_path)
    assert task.names == names
    assert task.images.shape == (700, 8)
    np.testing.assert_array_equal(task.image_labels, np.repeat(np.arange(7), 100))
    np.testing.assert_array_equal(task.prompt_labels, np.arange(7))
