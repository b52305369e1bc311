"""Tests that `import sunshower` imports no external package, and the command line no Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure.reading import ROOT

PROBE = """
import sys
before = set(sys.modules)
import {module}
new = {{name.split(".")[0] for name in set(sys.modules) - before}}
ours = {{"sunshower", *(name for name in new if name.startswith("_sysconfigdata"))}}
print(*sorted(new - set(sys.stdlib_module_names) - ours))
"""
HEAVY = {"ray", "numpy", "pyarrow", "msgpack", "pyspark", "pandas"}


def external_packages_of(module: str) -> set[str]:
    """The external packages that a new interpreter has after `import module`."""
    command = [sys.executable, "-c", PROBE.format(module=module)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_sunshower_imports_no_external_package() -> None:
    assert external_packages_of("sunshower") == set()


TEN_LINES = """
import sysconfig
from sunshower import JsonLines, TextFiles, Topology, count

topology = Topology("word-count")
lines = topology.spout("lines", TextFiles(__file__))
words = lines.flat_map(lambda line: [(word,) for word in line.text.split()], fields=["word"])
totals = words.group_by("word").aggregate(count(), parallelism=2)
totals.shuffle().bolt("store", JsonLines("word_count.jsonl"))
"""
BATCHES = """
from sunshower import Stdout, TextFiles, Topology
from sunshower.trident import batches, count

topology = Topology("batches")
lines = batches(topology, "lines", TextFiles(__file__))
words = lines.flat_map(lambda line: [(word,) for word in line.text.split()], fields=["word"])
words.group_by("word").aggregate(count(), parallelism=2)
"""


@pytest.mark.parametrize("program", [TEN_LINES, BATCHES])
def test_a_run_in_this_process_of_rows_imports_neither_ray_nor_pyarrow(
    program: str, tmp_path: Path
) -> None:
    (tmp_path / "words.py").write_text(program)
    probe = """
import sys
from sunshower.cli import main
try:
    main(["run", "--inline", "words.py"])
except SystemExit as ended:
    assert not ended.code
print(*{name.split(".")[0] for name in sys.modules}, file=sys.stderr)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", probe]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.splitlines()[-1].split())
    assert loaded & (HEAVY | {"packaging", "kazoo", "uvicorn"}) == {"numpy", "msgpack"}


def test_the_command_line_does_not_import_ray() -> None:
    assert external_packages_of("sunshower.cli") & HEAVY == set()
