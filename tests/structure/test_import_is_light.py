"""Tests that `import sunshower` imports no external package, and the command line no Ray."""

from __future__ import annotations

import subprocess
import sys

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


def test_the_command_line_does_not_import_ray() -> None:
    assert external_packages_of("sunshower.cli") & HEAVY == set()
