"""The listener gets what workers print in whole lines, and knows when all of it has arrived."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from ray._private import worker as printing

from sunshower import Context, Counter, Number, Stdout, Topology
from sunshower.actors.output import (
    WorkerOutput,
    with_delimited_lines,
    worker_output,
)
from sunshower.actors.starting import without_news

Passed = list[tuple[int, bool, list[str]]]


def show(number: Number) -> None:
    assert number.value >= 0


def listening(listener: Any = None) -> tuple[WorkerOutput, Passed]:
    passed: Passed = []
    return WorkerOutput(listener or (lambda *message: passed.append(message))), passed


def message(lines: list[str], pid: str = "7", is_err: bool = False) -> dict[str, Any]:
    """A message as Ray's log monitor publishes it."""
    return {"pid": pid, "is_err": is_err, "lines": lines, "actor_name": "WorkerActor"}


def test_lines_are_passed_on_as_they_are() -> None:
    output, passed = listening()
    output.take(message(["one", "", " two"]))
    output.take(message(["oh"], is_err=True))
    assert passed == [(7, False, ["one", "", " two"]), (7, True, ["oh"])]


def sink_of(sink: Stdout) -> Any:
    """The sink of a run with this one."""
    topology = Topology("lines")
    topology.spout("numbers", Counter(1)).shuffle().bolt("out", sink)
    return with_delimited_lines(topology.graph()).components["out"].instance()


def written(capsys: pytest.CaptureFixture[str], *texts: str) -> str:
    """What the sink of a run writes for records with these texts."""
    sink = sink_of(Stdout(lambda text: text))
    for text in texts:
        sink.process(text)
    sink.flush()
    return capsys.readouterr().out


def test_a_line_of_a_sink_is_whole_wherever_ray_has_split_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ray reads a file that is being written, and may publish only a part of its last line."""
    texts = ["4052", "", "two\nlines", "Grüße, 日本 🌻", "a\rb\r", "\x02\x03", "\ud800", "\u2028"]
    file = f"{written(capsys, *texts)}printed\n\n{written(capsys, 'last')}".encode()
    whole = ["4052", "", "two", "lines", *texts[3:], "printed", "", "last"]
    for split in range(len(file) + 1):
        output, passed = listening()
        for part in (file[:split], file[split:]):
            if part:
                output.take(message(as_ray_reads(part)))
        lines = [line for _, _, lines_passed in passed for line in lines_passed]
        in_print = file.index(b"printed") < split < file.index(b"printed") + len(b"printed\n\n")
        assert lines == whole or in_print, (split, lines)


def as_ray_reads(part: bytes) -> list[str]:
    """The lines of a part of a file: ray/_private/log_monitor.py, check_log_files_and_publish."""
    lines = part.removesuffix(b"\n").split(b"\n")
    return [line.decode("utf-8", "replace").rstrip("\r\n") for line in lines]


def test_text_that_user_code_prints_between_delimiters_is_passed_on() -> None:
    output, passed = listening()
    output.take(message(["\x02no JSON\x03"]))
    assert passed == [(7, False, ["\x02no JSON\x03"])]


def test_a_sink_whose_format_returns_no_text_prints_it_as_a_text() -> None:
    sink: Any = Stdout(lambda _: 5)  # type: ignore[arg-type, return-value]
    output, passed = listening()
    output.take(message([sink_of(sink).delimited(sink.format(Number(1)))]))
    assert passed == [(7, False, ["5"])]


def test_the_parts_of_a_line_belong_to_one_process() -> None:
    output, passed = listening()
    output.take(message(['\x02"40'], pid="7"))
    output.take(message(['\x02"1"\x03'], pid="8"))
    output.take(message(['52"\x03'], pid="7"))
    assert [(pid, lines) for pid, _, lines in passed] == [(8, ["1"]), (7, ["4052"])]


class Numbered(Stdout):
    """Its format is a method of its own, which uses what `prepare` has set."""

    def __init__(self) -> None:
        super().__init__(self.numbered)

    def prepare(self, context: Context) -> None:
        self.lines = 0

    def numbered(self, record: Number) -> str:
        self.lines += 1
        return f"{self.lines}: {record.value}"


def test_a_format_that_is_a_method_of_the_sink_sees_its_attributes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = pickle.loads(pickle.dumps(sink_of(Numbered())))
    sink.prepare(Context("lines", "out", 2, 0, 1))
    sink.process(Number(7))
    sink.flush()
    assert capsys.readouterr().out == '\x02"1: 7"\x03\n'


def test_only_sinks_get_delimiters() -> None:
    topology = Topology("lines")
    numbers = topology.spout("numbers", Counter(1))
    numbers.shuffle().bolt("instance", Stdout())
    numbers.shuffle().bolt("class", Stdout)
    numbers.shuffle().bolt("function", show)
    components = with_delimited_lines(topology.graph()).components
    assert components["function"].implementation is show
    for component in "instance", "class":
        assert components[component].instance().delimited("1") == '\x02"1"\x03'
    assert Stdout().delimited("1") == "1"


def test_output_of_ray_itself_is_left_out() -> None:
    output, passed = listening()
    for pid in ("raylet", "autoscaler", "gcs_server"):
        output.take(message(["message of the cluster"], pid=pid))
    assert passed == []


def test_ray_is_silent_until_it_has_ended() -> None:
    assert printing._worker_logs_enabled
    with without_news():
        with worker_output(lambda *_: None):
            assert not printing._worker_logs_enabled
        assert not printing._worker_logs_enabled, "Ray reports dead processes when it ends here"
    assert printing._worker_logs_enabled


def test_marks_are_counted_and_not_shown() -> None:
    output, passed = listening()
    output.take(message(["last", output._mark]))
    output.take(message([output._mark], is_err=True))
    assert passed == [(7, False, ["last"])]
    assert output._wait_for_marks(2, patience_s=0.01)


def test_a_mark_behind_a_half_written_line_leaves_the_line() -> None:
    output, passed = listening()
    output.take(message([f"half{output._mark}"]))
    assert passed == [(7, False, ["half"])]
    assert output._wait_for_marks(1, patience_s=0.01)


def test_wait_for_marks_ends_without_output() -> None:
    output, _ = listening()
    assert not output._wait_for_marks(1, patience_s=0.01)


class ElapsedWait(threading.Condition):
    """A condition whose waits all time out; something happens during each of them."""

    def __init__(self, *during: Callable[[], object]) -> None:
        super().__init__()
        self._during = list(during)

    def wait(self, timeout: float | None = None) -> bool:
        self._during.pop(0)()
        return False


def test_a_slow_listener_is_waited_for() -> None:
    output, _ = listening()

    def hear_slowly() -> None:
        output._hearing = True

    def hear_the_rest() -> None:
        output.take(message(["a line", output._mark]))

    output._changed = ElapsedWait(hear_slowly, hear_the_rest)
    assert output._wait_for_marks(1, patience_s=0.3)


def test_a_mark_that_comes_as_the_wait_ends_counts() -> None:
    output, _ = listening()

    def hear_all() -> None:
        before = output._news
        output.take(message(["a line", output._mark]))
        output._news = before  # it was received before the wait

    output._changed = ElapsedWait(hear_all)
    assert output._wait_for_marks(1, patience_s=0.3)
