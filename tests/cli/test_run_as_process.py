"""Tests of `sunshower run` as a process: signals, pipes, failed starts, no leftovers."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Start, Write, read_until, signal_like_a_terminal
from tests.structure.reading import ROOT

pytestmark = pytest.mark.ray

ENDLESS = """
    import time

    def slow(number: Number) -> Iterator[Number]:
        time.sleep(0.001)
        yield number

    topology = Topology("endless")
    numbers = topology.spout("numbers", Counter()).shuffle().bolt("slow", slow)
    numbers.shuffle().bolt("out", Stdout)
"""
HANGING = """
    import threading

    def hang(number: Number) -> None:
        threading.Event().wait()

    topology = Topology("hanging", workers=1)
    topology.spout("numbers", Counter()).shuffle().bolt("hang", hang)
"""
BLOCKED = """
    import threading
    from sunshower import Spout

    class Blocked(Spout[Number]):
        def records(self) -> Iterator[Number]:
            yield Number(1)
            threading.Event().wait()

    topology = Topology("blocked", workers=1)
    topology.spout("numbers", Blocked).shuffle().bolt("out", Stdout)
"""
OUTAGE = """
    def store(number: Number) -> None:
        if number.value >= 100:
            raise ConnectionRefusedError("no database answers at localhost:1")

    topology = Topology("storing", workers=1)
    topology.spout("numbers", Counter()).shuffle().bolt("store", store)
"""
DOUBT = OUTAGE.replace(
    'raise ConnectionRefusedError("no database answers at localhost:1")', 'number.value + "one"'
)


def stop_at_once(process: subprocess.Popen[str]) -> None:
    """The second Ctrl-C."""
    signal_like_a_terminal(process)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "are not finished" in errors


def test_ctrl_c_finishes_pending_tuples(start: Start, write: Write, tmp_path: Path) -> None:
    with (tmp_path / "lines").open("w+") as out:
        process = start("run", write(ENDLESS), out=out)
        read_until(process.stderr, "pending")
        signal_like_a_terminal(process)
        _, errors = process.communicate(timeout=120)
        numbers = list(map(int, out.seek(0) or out))
    assert process.returncode == 0, errors
    assert "Draining" in errors
    assert f"{len(numbers):,} tuples taken in, all of them acked." in errors
    assert sorted(numbers) == list(range(len(numbers)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "status", "text"),
    [
        (signal.SIGHUP, 0, "all of them acked"),
        (signal.SIGQUIT, 130, "pending tuples are not finished"),
    ],
)
def test_other_signals_end_a_run_and_leave_nothing(
    number: signal.Signals, status: int, text: str, start: Start, write: Write, tmp_path: Path
) -> None:
    with (tmp_path / "lines").open("w+") as out:
        process = start("run", write(ENDLESS), out=out)
        read_until(process.stderr, "pending")
        os.killpg(process.pid, number) if number == signal.SIGHUP else process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == status, errors
    assert text in errors


SCRIPT = """
import sys
from sunshower import Counter, RayCluster, Stdout, Topology

topology = Topology("endless", workers=1)
topology.spout("numbers", Counter()).shuffle().bolt("out", Stdout)
with RayCluster() as cluster:
    run = cluster.submit(topology.graph())
    print("pending", file=sys.stderr, flush=True)
    run.wait(600)
"""


def descendants(pid: int) -> dict[int, str]:
    """Process → its command, of all below a process."""
    commands: dict[int, str] = {}
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            command = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ").strip()
            commands |= {child: command, **descendants(child)}
    return commands


@pytest.mark.parametrize("started_by", ["run", pytest.param("a script", marks=pytest.mark.long)])
def test_a_killed_process_leaves_nothing_of_its_ray(
    started_by: str, start: Start, write: Write, tmp_path: Path
) -> None:
    with (tmp_path / "lines").open("w+") as out:
        if started_by == "run":
            process = start("run", write(ENDLESS), out=out)
        else:
            (tmp_path / "script.py").write_text(SCRIPT)
            process = subprocess.Popen(
                [sys.executable, tmp_path / "script.py"],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=out, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        read_until(process.stderr, "pending")
        commands = descendants(process.pid)
        files = {os.pidfd_open(pid): command for pid, command in commands.items()}
        assert any("raylet" in command for command in commands.values())
        assert any("RuntimeEnvAgent" in command for command in commands.values())
        process.kill()
        process.communicate(timeout=120)
        end_s = time.monotonic() + 50  # without the watch it takes a minute
        for file, command in files.items():
            left_s = max(end_s - time.monotonic(), 0)
            assert select.select([file], [], [], left_s)[0], command
            os.close(file)


@pytest.mark.long
def test_ctrl_c_does_not_wait_for_a_spout_that_is_blocked(start: Start, write: Write) -> None:
    process = start("run", write(BLOCKED))
    read_until(process.stderr, "pending")
    signal_like_a_terminal(process)
    output = read_until(process.stderr, "numbers[0] has been in one call for ")
    assert "Draining" in output
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "pending tuples are not finished" in errors


@pytest.mark.long
def test_a_second_ctrl_c_stops_even_user_code_that_hangs(start: Start, write: Write) -> None:
    process = start("run", write(HANGING))
    read_until(process.stderr, "pending")
    signal_like_a_terminal(process)
    read_until(process.stderr, "Draining")
    stop_at_once(process)


@pytest.mark.long
def test_a_second_ctrl_c_stops_at_once_during_an_outage(start: Start, write: Write) -> None:
    process = start("run", write(OUTAGE))
    read_until(process.stderr, "store[0] waits for a dependency")
    signal_like_a_terminal(process)
    output = read_until(process.stderr, "Draining")
    assert "last error: ConnectionRefusedError: no database answers at localhost:1" in output
    stop_at_once(process)


@pytest.mark.long
def test_code_that_worked_and_then_raises_for_everything_is_shown_at_once(
    start: Start, write: Write
) -> None:
    process = start("run", write(DOUBT))
    output = read_until(process.stderr, "store[0] keeps failing after it had succeeded (doubt): ")
    assert "last error: TypeError: unsupported operand" in output
    read_until(process.stderr, 'number.value + "one"')
    signal_like_a_terminal(process)
    read_until(process.stderr, "Draining")
    stop_at_once(process)


@pytest.mark.long
def test_a_closed_pipe_ends_the_run(start: Start, write: Write) -> None:
    process = start("run", write(ENDLESS))
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in errors


def error_of(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    return errors[errors.index("sunshower: ") :]


@pytest.mark.parametrize("folder", ["a file", "x" * 120])
def test_a_ray_that_cannot_start(folder: str, start: Start, write: Write, tmp_path: Path) -> None:
    if folder == "a file":
        (tmp_path / folder).write_text("where Ray wants to make a folder")
    text = error_of(start("run", write(ENDLESS), RAY_TMPDIR=str(tmp_path / folder)))
    assert text.startswith("sunshower: RAY_TMPDIR is ")
    assert "Set RAY_TMPDIR" in text


def test_ctrl_c_while_ray_starts(start: Start, write: Write) -> None:
    process = start("run", write(ENDLESS))
    read_until(process.stderr, "Starting Ray")
    signal_like_a_terminal(process)
    process.communicate(timeout=120)
    assert process.returncode == 130
