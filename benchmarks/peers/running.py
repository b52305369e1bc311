"""An environment with Faust and Quix Streams, made once, and runs of them as processes of it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from benchmarks.measure import BenchmarkError, Outcome, Tell

_HERE = Path(__file__).parent
_PINS = _HERE / "requirements.txt"
_TIMEOUT_S = 300.0
_BUILD_S = 1800.0  # Faust comes as sources


def python(tell: Tell) -> Path:
    """The interpreter of the environment; made in the user's cache if it is not there yet."""
    digest = hashlib.sha256(_PINS.read_bytes()).hexdigest()[:12]
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(root).expanduser() / "sunshower" / f"peers-{digest}"
    if not (folder / "complete").exists():
        tell(f"making an environment for Faust and Quix Streams in {folder} (once, some minutes)")
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], _BUILD_S)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "-r", str(_PINS)]
        _run(pip, _BUILD_S)
        (folder / "complete").touch()
    return folder / "bin" / "python"


def count_words(
    interpreter: Path, peer: str, how: str, address: str, topic: str, messages: int, words: int
) -> Outcome:
    """Let `faust` or `quix` count the words of so many messages; `done` are words."""
    script = _HERE / f"{peer}_words.py"
    command = [str(interpreter), str(script), address, topic, str(messages), how]
    found = json.loads(_run(command, _TIMEOUT_S).splitlines()[-1])
    if found["words"] < words * 0.99 or found["words"] > words * 1.01:
        raise BenchmarkError(f"{peer} has counted {found['words']:,} words of about {words:,}")
    return Outcome(found["begun_s"], found["ended_s"], found["words"])


@cache
def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _run(command: list[str], timeout_s: float) -> str:
    with tempfile.TemporaryDirectory() as folder:  # Faust leaves files where it is started
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=_clean(),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = (error.stderr or "")[-2000:] if isinstance(error.stderr, str) else ""
            raise BenchmarkError(
                f"{command[1]} did not do what it should: {error}\n{said}"
            ) from None
    return done.stdout
