"""`python -m benchmarks.journey`: counts the functions of the package that one tuple enters.

A spout and a bolt run in two workers of this process. The count begins when the spout yields its
record, and ends with the call of its `ack`. It has the steps of both workers and three packets.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import sunshower
from sunshower import Number, Spout, Topology
from sunshower.clock import ManualClock
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.worker import Worker

_PACKAGE = str(Path(sunshower.__file__).parent)
entered: Counter[tuple[str, str, int]] = Counter()  # (file, function, first line) → times
done: list[int] = []


def _count(frame: FrameType, event: str, _argument: Any) -> None:
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(_PACKAGE) and code.co_name[0] != "<":
        entered[code.co_filename, code.co_qualname, code.co_firstlineno] += 1


class _ThreeNumbers(Spout[Number]):
    def records(self) -> Iterator[Number | None]:
        for number in range(3):  # two as a warm-up; the third is counted
            while len(done) < number:
                yield None
            if number == 2:
                sys.setprofile(_count)
            yield Number(number)

    def ack(self, message_id: int) -> None:
        if message_id == 2:
            sys.setprofile(None)
        done.append(message_id)


def _work(record: Number) -> None:
    """A bolt that emits nothing."""


def main(arguments: list[str]) -> None:
    topology = Topology("journey", workers=2, ackers=1)
    topology.spout("numbers", _ThreeNumbers()).shuffle().bolt("work", _work)
    plan = make_plan(topology.graph(), Layout.ISOLATE)
    clock = ManualClock()
    workers = {
        number: Worker(plan, number, 1, np.random.default_rng(number), clock)
        for number in plan.workers
    }
    for worker in workers.values():
        worker.peers(dict.fromkeys(workers, 1))
    while len(done) < 3:
        for worker in workers.values():
            worker.step()
            for peer, seq, data in list(worker.outgoing()):
                receiver = workers[peer]
                answer = receiver.packet_receiver.answer(data)
                receiver.receive(data)
                worker.answered(peer, seq, answer)
        clock.sleep(0.001)
    if "--list" in arguments:
        for (file, function, line), times in sorted(entered.items()):
            print(f"{times:4} {Path(file).relative_to(_PACKAGE)}:{line} {function}")
    files = {file for file, _, _ in entered}
    print(f"{len(entered)} functions in {len(files)} files, entered {entered.total()} times")


if __name__ == "__main__":
    main(sys.argv[1:])
