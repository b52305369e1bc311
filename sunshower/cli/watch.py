"""Runs a program again at each save of its files; separate because only `run --watch` loads it."""

from __future__ import annotations

import ast
import ctypes
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sunshower.cli.formatting import echo
from sunshower.errors import LoadError
from sunshower.experiments.runner.interrupts import Interrupts
from sunshower.experiments.runner.loading import split_target

_LOOK_S = 0.1  # how often files are looked at
_END_S = 5.0  # how long a run may drain before the next signal
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)

Stamps = Mapping[Path, tuple[int, int, int] | None]  # file → inode, time, size; None: it is missing


class ProgramFiles:
    """The files of a program: the one that is run, and modules of its folder that it imports, also
    those that do not exist yet."""

    def __init__(self, file: Path) -> None:
        self._file, self._folder = file, file.parent
        self._imports: dict[Path, set[Path]] = {}  # of each file, when it could last be parsed

    def stamps(self) -> Stamps:
        """The state of each file. A save changes it."""
        states: dict[Path, tuple[int, int, int] | None] = {}
        frontier = [self._file]
        while frontier:
            if (path := frontier.pop()) not in states:
                states[path] = _stamp(path)
                frontier += self._imported(path)
        return states

    def _imported(self, path: Path) -> set[Path]:
        with suppress(OSError, SyntaxError, ValueError):  # while it is edited
            self._imports[path] = set(self._resolved(path))
        return self._imports.get(path, set())

    def _resolved(self, path: Path) -> Iterator[Path]:
        package = path.parent.relative_to(self._folder).parts
        for node in ast.walk(ast.parse(path.read_bytes())):
            names: list[tuple[str, ...]] = []
            if isinstance(node, ast.Import):
                names = [tuple(alias.name.split(".")) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                base += tuple(node.module.split(".")) if node.module else ()
                names = [base, *((*base, alias.name) for alias in node.names)]
            for parts in names:
                yield from self._files_of(parts)

    def _files_of(self, parts: Sequence[str]) -> Iterator[Path]:
        """The files that an import of this module runs; where it would be if it is missing."""
        for count in range(1, len(parts) + 1):
            place = self._folder.joinpath(*parts[:count])
            if place.is_dir():
                yield place / "__init__.py"
            elif place.parent == self._folder or place.parent.is_dir():
                yield place.with_name(f"{place.name}.py")


def run_at_each_save(target: str, options: Sequence[str]) -> None:
    """Run the program in a process of its own, and again at each save, until the user interrupts.
    A run that has not ended is drained first. Raises LoadError if there is no such file."""
    file, _ = split_target(target)
    if not file.is_file():
        raise LoadError(f"{file} does not exist; give a Python file to run and watch")
    files = ProgramFiles(file)
    command = [sys.executable, "-m", "sunshower", "run", "--inline", *options, "--", target]
    with Interrupts() as interrupts:
        interrupts.defer()
        while not interrupts.requested:
            stamps = files.stamps()
            with _unchanged_terminal(), _process(command) as process:
                _wait_for_save(files, stamps, process, interrupts)
                # A terminal sends its Ctrl-C to the run, too: a second one would end it at once.
                _end(process, has_signal=interrupts.signal == signal.SIGINT)


def _wait_for_save(
    files: ProgramFiles, stamps: Stamps, process: subprocess.Popen[Any], interrupts: Interrupts
) -> None:
    """Return when a file was saved, and stays as it is for a moment, or at an interrupt."""
    announced, last = False, stamps
    while not interrupts.requested:
        if process.poll() is not None and not announced:
            announced = True
            echo(f"Waiting for a save of {_names(stamps)}; Ctrl-C ends this.", err=True)
        interrupts.wait(_LOOK_S)
        now = files.stamps()
        if now != stamps and now == last and any(now.values()):
            changed = [path for path in now if now[path] != stamps.get(path)]
            echo(f"Saved: {_names(changed or now)}. Running again.", err=True)
            return
        last = now


def _names(paths: Stamps | Sequence[Path]) -> str:
    names = [path.name for path in paths if not isinstance(paths, Mapping) or paths[path]]
    return ", ".join(names)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[Any]]:
    """A run in a process of its own, which ends with this context."""
    process = subprocess.Popen(command, preexec_fn=_end_with_parent)  # noqa: PLW1509, S603
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _end(process: subprocess.Popen[Any], *, has_signal: bool) -> None:
    """Let a run drain, for a while, and then end at once. `has_signal`: it drains already."""
    for number in (None if has_signal else signal.SIGTERM, signal.SIGTERM):
        if number is not None:
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
            return


@contextmanager
def _unchanged_terminal() -> Iterator[None]:
    """Restore the terminal's modes at the end: a run that is killed in a debugger leaves others."""
    try:
        modes = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):  # no terminal
        yield
        return
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, modes)


def _end_with_parent() -> None:
    """In the new process: let the kernel end it if the watching process is killed."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
