"""Creates the environments of Python peers once, and runs the peers as processes in them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.measure import BenchmarkError, Log, MissingRequirement, Outcome
from benchmarks.peers.cached_builds import cached_build, run_command

_HERE = Path(__file__).parent
PYFLINK, PATHWAY, PYSTORM = (
    f"requirements-{name}.txt" for name in ("pyflink", "pathway", "pystorm")
)
PYSTORM_BOLTS = _HERE / "pystorm_bolts.py"
PYFLINK_MODES = ("process", "thread")
_TIMEOUT_S = 300.0
_PYFLINK_TIMEOUT_S = 600.0  # with keys it is slow
_BUILD_S = 1800.0  # Faust is built from source


def python(log: Log, requirements: str = "requirements.txt") -> Path:
    """The interpreter of the environment with these requirements, in the user's cache.

    Raises MissingRequirement if they cannot be installed here.
    """
    pins = _HERE / requirements

    def make(folder: Path) -> None:
        log(f"making an environment of peers/{requirements} in {folder} (once, some minutes)")
        try:
            run_command([sys.executable, "-m", "venv", "--clear", str(folder)], _BUILD_S)
            pip = [str(folder / "bin" / "pip"), "install", "--quiet", "-r", str(pins)]
            run_command(pip, _BUILD_S)
        except BenchmarkError as error:
            raise MissingRequirement(f"peers/{requirements} cannot be installed: {error}") from None

    return cached_build("peers", [pins], make) / "bin" / "python"


def count_words(
    interpreter: Path, peer: str, how: str, address: str, topic: str, messages: int, words: int
) -> Outcome:
    """Count the words of `messages` messages with `faust` or `quix`; `done` is words."""
    script = _HERE / f"{peer}_words.py"
    command = [str(interpreter), str(script), address, topic, str(messages), how]
    result = json.loads(run_command(command, _TIMEOUT_S).splitlines()[-1])
    if result["words"] < words * 0.99 or result["words"] > words * 1.01:
        raise BenchmarkError(f"{peer} has counted {result['words']:,} words of about {words:,}")
    return Outcome(result["begun_s"], result["ended_s"], result["words"])


def count_lines(interpreter: Path, lines: Path, threads: int) -> Outcome:
    """Count the words of a file with Pathway; `done` is words."""
    command = [str(interpreter), str(_HERE / "pathway_words.py"), str(lines), str(threads)]
    return last_outcome(run_command(command, _TIMEOUT_S))


def pyflink(interpreter: Path, folder: Path, job: str, mode: str) -> Outcome:
    """A query of Nexmark, or `words`, with PyFlink in `process` or `thread` mode. `done` is the
    answer, or the number of words."""
    command = [str(interpreter), str(_HERE / "pyflink_jobs.py"), str(folder), job, mode]
    return last_outcome(run_command(command, _PYFLINK_TIMEOUT_S))


def last_outcome(printed: str) -> Outcome:
    """The last line of JSON that a peer has printed, possibly among lines of a log.

    Raises BenchmarkError if there is none.
    """
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            return Outcome(**json.loads(line))
    raise BenchmarkError(f"a peer has printed no result, only: {printed[-2000:]!r}")
