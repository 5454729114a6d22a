"""Every notebook of the documentation runs to its end and holds its outputs."""

import re
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOKS = sorted((REPOSITORY / "docs" / "notebooks").glob("*.ipynb"))

SETUP = """\
import sys

if "google.colab" in sys.modules:
    %pip install -q anchordot-jax"""

SECONDS = 600
"""A cell that takes this long has gone wrong; a free CPU needs a minute for all."""


def read(path: Path) -> Any:
    """Return a notebook."""
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    """Return the cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_notebooks() -> None:
    """The folder is where this test looks for it."""
    assert len(NOTEBOOKS) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cell raises an error, in a folder without any file of the repository."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    notebook = read(path)
    client = nbclient.NotebookClient(
        notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert all(cell.execution_count for cell in code_cells(notebook))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_stored_notebook_is_fit_to_be_shown(path: Path) -> None:
    """It was run in order, without an error; it names no folder of this machine."""
    cells = code_cells(read(path))
    assert cells[0].source == SETUP
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert "error" not in kinds
    text = path.read_text(encoding="utf-8")
    assert re.search(r"/(tmp|home|root|Users|content)/", text) is None
    assert len(text) < 200_000
