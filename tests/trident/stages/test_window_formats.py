"""States of windows of batches that were stored before are continued: a golden file of each kind.

`python -m tests.trident.stages.test_window_formats` writes the file anew, in the present format.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sunshower import collect, sessions, sum_, tumbling
from sunshower.json_values import hashable
from sunshower.topologies.operators.states import StateKind
from tests.trident.rigs.one_process import Runner, StateStub, collected, stub_stream
from tests.trident.stages.test_window_kinds import Click

FILE = Path(__file__).with_name("window_formats.json")
BATCHES = [
    [Click("a", 1, 1), Click("b", 2, 2), Click("a", 14, 3)],
    [Click("a", 3, 4), Click("b", 23, 5)],  # the last one that is stored
    [Click("a", 26, 6), Click("b", 9, 7)],
    [Click("a", 60, 8)],
]
STORED = 2


def is_full(row: Any) -> bool:
    return bool(row[2] >= 5)


CASES: dict[str, tuple[Any, Any]] = {
    "panes": (tumbling(seconds=10, field="at", late=5), sum_("cents")),
    "panes of rows": (tumbling(seconds=10, field="at", late=5), collect("cents")),
    "sessions": (sessions(gap=5, field="at", late=5), sum_("cents")),
    "sessions of rows": (sessions(gap=5, field="at", late=5), collect("cents")),
    "updated panes": (tumbling(seconds=10, field="at", allowed=20), sum_("cents")),
    "updated sessions": (sessions(gap=5, field="at", allowed=20), sum_("cents")),
    "full panes": (tumbling(seconds=10, field="at", until=is_full), sum_("cents")),
}
KINDS = (StateKind.OPAQUE, StateKind.TRANSACTIONAL)


class Program:
    """Windows in a state."""

    def __init__(self, case: str, kind: StateKind) -> None:
        window, aggregator = CASES[case]
        topology, stream = stub_stream(Click)
        self.state = StateStub(kind)
        rows = stream.group_by("user").window(window, aggregator, state=self.state)
        self.results, self.late = collected(rows), collected(rows.late)
        self.runner = Runner(topology)

    def batch(self, number: int, *, again: bool = False) -> list[Any]:
        """The rows that a batch emits."""
        self.runner.ended = number == len(BATCHES)
        rows = BATCHES[number] if number < len(BATCHES) else []
        (self.runner.again if again else self.runner.batch)(rows)
        emitted = json.loads(json.dumps([self.results, self.late]))
        self.results.clear()
        self.late.clear()
        return [sorted(several, key=repr) for several in emitted]

    def dump(self) -> list[Any]:
        return [[key, *stored] for (_, key), stored in sorted(self.state.values.items(), key=repr)]


def written(case: str, kind: StateKind) -> dict[str, Any]:
    program = Program(case, kind)
    emitted = [program.batch(number) for number in range(STORED)]
    values = program.dump()
    emitted += [program.batch(number) for number in range(STORED, len(BATCHES) + 1)]
    plain: dict[str, Any] = json.loads(json.dumps({"state": values, "emitted": emitted}))
    return plain


def golden() -> dict[str, Any]:
    contents: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return contents


@pytest.mark.parametrize("name", golden() if FILE.exists() else ())
def test_a_state_that_was_stored_is_continued(name: str) -> None:
    """Also if the batch that was written last is repeated first."""
    case, kind = name.split(", ")[:2]
    stored = golden()[name]
    for repeats in (0, 1, 2):
        program = Program(case, StateKind(kind))
        for key, txid, value, before in stored["state"]:
            program.state.values[0, hashable(key)] = txid, value, before
        program.runner.txid = STORED
        for txid in range(STORED + 1):
            program.runner.reached["given"][txid] = max(
                (click.at for rows in BATCHES[:txid] for click in rows), default=float("-inf")
            )
        for _ in range(repeats):
            assert program.batch(STORED - 1, again=True) == stored["emitted"][STORED - 1]
        later = [program.batch(number) for number in range(STORED, len(BATCHES) + 1)]
        assert later == stored["emitted"][STORED:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_the_format_is_that_of_the_file(case: str, kind: StateKind) -> None:
    """If it changes, keep the former one in the file under another name."""
    assert written(case, kind) == golden()[f"{case}, {kind.value}"]


def main() -> None:
    contents = golden() if FILE.exists() else {}
    for case in CASES:
        for kind in KINDS:
            contents[f"{case}, {kind.value}"] = written(case, kind)
    lines = (f"{json.dumps(name)}: {json.dumps(contents[name])}" for name in sorted(contents))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
