"""Runs the notebook of the examples, and checks what its cells show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The outputs of the code cells of `examples/orders.ipynb`."""
    notebook = nbformat.read(ROOT / "examples/orders.ipynb", as_version=4)
    here = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    nbclient.NotebookClient(notebook, timeout=120, resources=here).execute()
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def html(outputs: list[Any]) -> str:
    (text,) = [output.data["text/html"] for output in outputs if "data" in output]
    return str(text)


def test_a_topology_shows_its_graph(cells: list[Any]) -> None:
    assert "drawGraph(box, given)" in html(cells[0])
    (output,) = cells[0]
    assert "orders   × 1  spout: records()" in output.data["text/plain"]


def test_a_stream_that_nobody_reads_shows_its_first_records(cells: list[Any]) -> None:
    (output,) = cells[1]
    assert output.data["text/plain"].splitlines() == [
        "item    amount  at",
        "tea     3       4.0",
        "coffee  4       6.0",
        "tea     5       8.0",
        "tea     3       14.0",
        "tea     4       16.0",
        "(the first 5)",
    ]
    assert html(cells[1]).count("<tr>") == 6
    assert html(cells[2]).count('<td style="text-align:left">tea</td>') == 2


def test_an_error_of_a_function_is_at_most_fifteen_lines(cells: list[Any]) -> None:
    (error,) = [output for output in cells[4] if output.output_type == "error"]
    lines = "\n".join(error.traceback).splitlines()
    assert len(lines) <= 15
    assert lines[0] == "the cell, line 5:"
    assert "fields `item`, `amount` of Order(item='tea', amount=3, at=4.0)" in lines[2]


def test_a_result_shows_counters_and_first_records(cells: list[Any]) -> None:
    text = html(cells[3])
    assert '<caption style="text-align:left">topology shop: finished</caption>' in text
    assert "stream &#x27;windows&#x27; of &#x27;windows&#x27;" not in text  # nobody reads it
    assert "stream &#x27;default&#x27; of &#x27;orders&#x27;: 60 records" in text
