"""Builds that are cached in folders of the user, and the commands that make them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from benchmarks.measure import BenchmarkError


def cached_build(name: str, sources: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """The folder for these sources; if it does not exist, `make` fills an empty one."""
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(root).expanduser() / "sunshower" / f"{name}-{digest[:12]}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        (folder / "complete").touch()
    return folder


def run_command(command: list[str], timeout_s: float, folder: Path | None = None) -> str:
    """The standard output of a command. It runs in `folder`, or in a temporary one.

    Raises BenchmarkError, with the end of its output, if it fails or takes too long.
    """
    with tempfile.TemporaryDirectory() as empty:  # Faust writes files to its working directory
        try:
            done = subprocess.run(
                command,
                cwd=folder or empty,
                env=_clean(),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            texts = [text for text in (error.stdout, error.stderr) if isinstance(text, str)]
            printed = "\n".join(texts)[-2000:]
            name = Path(command[0]).name
            raise BenchmarkError(
                f"{name} failed ({type(error).__name__}): {' '.join(command)[-300:]}\n{printed}"
            ) from None
    return done.stdout


@cache
def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
