"""Runs a stream program in one process, without the runtime: the tasks run one after another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from sunshower import Topology
from sunshower.clock import ManualClock
from sunshower.topologies.components import Context
from sunshower.topologies.operators.generated_stages import Feed
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Place, StateKind
from sunshower.topologies.operators.windows.event_times import Time, highest
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.declaration.declare import batches
from sunshower.trident.declaration.stage_builder import InMemory, StreamProgram
from sunshower.trident.declaration.streams import BatchStream
from sunshower.trident.spouts.port import SpoutKind
from sunshower.trident.stages.plan import (
    Group,
    Source,
    Stage,
    StageInput,
    StageOutput,
    Timed,
    Waiting,
)


class SpoutStub:
    """A batch spout that only declares its records; the runner supplies the batches."""

    commits, parallelism_max = False, None

    def __init__(self, emits: Any, kind: SpoutKind = SpoutKind.TRANSACTIONAL) -> None:
        self.emits, self.kind = emits, kind

    def coordinator(self, store: Any, path: str, context: Context) -> Any:
        raise NotImplementedError

    def emitter(self, store: Any, path: str, context: Context) -> Any:
        raise NotImplementedError


@dataclass
class StateStub:
    """A state in memory with the opaque (or transactional) rules; its copies share their values."""

    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    values: dict[tuple[int, Any], tuple[int, Any, Any]] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)  # calls that raise once

    def __deepcopy__(self, memo: Any) -> StateStub:
        return self

    def make(self, place: Place) -> StateStubPart:
        return StateStubPart(self, place)

    def plain(self) -> dict[Any, Any]:
        return {key: value for (_, key), (_, value, _) in self.values.items() if value is not None}


class StateStubPart:
    """The part of the state that belongs to one task."""

    def __init__(self, whole: StateStub, place: Place) -> None:
        self.all, self.place = whole, place
        self.written: dict[Any, tuple[int, Any, Any]] = {}
        self.txid = 0

    def begin_commit(self, attempt: Attempt) -> None:
        self.written, self.txid = {}, attempt.txid

    def commit(self, attempt: Attempt) -> None:
        if "commit" in self.all.failing:
            self.all.failing.remove("commit")
            raise OSError("the disk is full")
        self.all.values.update({(self.place.index, k): v for k, v in self.written.items()})

    def abort(self) -> None:
        self.written = {}

    def close(self) -> None:
        pass

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        return [self._found(key) for key in keys]

    def _found(self, key: Any) -> Any:
        txid, value, before = self._stored(key)
        is_own = key not in self.written and txid == self.txid and self.all.kind is StateKind.OPAQUE
        return before if is_own else value

    def multi_update(self, keys: Sequence[Any], updates: Sequence[Any]) -> list[Any]:
        results = []
        for key, update in zip(keys, updates, strict=True):
            txid, value, before = self._stored(key)
            if txid == self.txid and self.all.kind is StateKind.TRANSACTIONAL:
                results.append(value)
                continue
            base = before if txid == self.txid else value
            self.written[key] = (self.txid, update(base), base)
            results.append(self.written[key][1])
        return results

    def multi_put(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            txid, old, before = self._stored(key)
            self.written[key] = (self.txid, value, before if txid == self.txid else old)

    def multi_remove(self, keys: Sequence[Any]) -> None:
        self.multi_put(keys, [None] * len(keys))

    def items(self) -> Iterator[tuple[Any, Any]]:
        for (task, key), (_, value, _) in self.all.values.items():
            if task == self.place.index and value is not None:
                yield key, value

    def _stored(self, key: Any) -> tuple[int, Any, Any]:
        known = self.written.get(key)
        return known or self.all.values.get((self.place.index, key), (0, None, None))


class Task:
    """One task of a stage, which sends its rows through the runner."""

    def __init__(self, runner: Runner, stage: Stage, index: int) -> None:
        self.runner, self.stage = runner, deepcopy(stage)
        context = Context("t", stage.id, index, index, stage.parallelism, clock=runner.clock)
        for node in self.stage.nodes:
            node.operator.prepare(context)
        for output in self.stage.outputs:
            targets = runner.stages[output.target].parallelism
            output.sharing.prepare(targets, index, stage.parallelism)

    def run(
        self, attempt: Attempt, incoming: Sequence[tuple[StageInput | None, list[Any]]]
    ) -> None:
        self.attempt = attempt
        self.batches = [node.operator.start(attempt) for node in self.stage.nodes]
        for read, rows in incoming:
            if read is None:
                assert self.stage.source is not None
                self.give(None, self.stage.source.feeds, rows)
            else:
                self.feed(read.feeds, rows)
        for index, node in enumerate(self.stage.nodes):
            emit = partial(self.give, index, node.feeds)
            while isinstance(node.operator, Waiting) and not node.operator.ready(
                self.batches[index], attempt
            ):
                pass
            if isinstance(node.operator, Timed):
                node.operator.note_times(self.batches[index], self.runner.times)
            node.operator.finish(self.batches[index], attempt, emit)
            if isinstance(node.operator, Timed) and (name := node.operator.sends) is not None:
                sent = node.operator.sent_time(self.batches[index])
                known = self.runner.times.get(name)
                self.runner.times[name] = sent if known is None else known.merged(sent)

    def give(self, node: int | None, feeds: Sequence[Feed], rows: Sequence[Any]) -> None:
        assert rows, "an operator must not emit an empty list"
        self.feed(feeds, rows)
        for output in self.stage.outputs:
            if output.node == node:
                for index, share in output.sharing.split(self.attempt.txid, rows):
                    self.runner.send(self.stage, output, index, share)

    def feed(self, feeds: Sequence[Feed], rows: Sequence[Any]) -> None:
        for feed in feeds:
            node = self.stage.nodes[feed.node]
            emit = partial(self.give, feed.node, node.feeds)
            node.operator.process(self.batches[feed.node], feed.source, rows, emit)


class Runner:
    """All tasks of one group."""

    def __init__(self, topology: Topology, clock: ManualClock | None = None) -> None:
        (self.group,) = plans(topology)
        self.clock = clock or ManualClock()
        self.stages = {stage.id: stage for stage in self.group.stages}
        self.txid, self.attempt = 0, 0
        self.ended = False  # whether the sources have no rows after the batch
        self.idle: Collection[str] = ()  # the sources whose only partition is idle
        self.times: dict[str, SourceTime] = {}  # of sources and windows, at the end of the batch
        self.begun_s: dict[int, float] = {}  # txid → when it has begun
        self.reached: dict[str, dict[int, Time]] = {id: {0: -inf} for id in self.stages}  # by txid
        self.restart()

    def restart(self) -> None:
        """Restart all tasks."""
        self.tasks = {
            id: [Task(self, stage, index) for index in range(stage.parallelism)]
            for id, stage in self.stages.items()
        }

    def batch(self, rows: Sequence[Any] = (), **of_spouts: Sequence[Any]) -> None:
        """Run the next batch; `rows` are those of the only spout."""
        self.txid, self.attempt = self.txid + 1, 0
        self._run(rows, of_spouts)

    def again(self, rows: Sequence[Any] = (), **of_spouts: Sequence[Any]) -> None:
        """Run the batch once more, as after a crash before the master stored its commit."""
        self.attempt += 1
        self._run(rows, of_spouts)

    def send(self, stage: Stage, output: StageOutput, index: int, rows: Sequence[Any]) -> None:
        self.arrived[output.target][index].append((stage.id, output.stream, wired(output, rows)))

    def _run(self, rows: Sequence[Any], of_spouts: Mapping[str, Sequence[Any]]) -> None:
        self.arrived: dict[str, list[list[Any]]] = {
            id: [[] for _ in range(stage.parallelism)] for id, stage in self.stages.items()
        }
        attempt = Attempt(self.txid, self.attempt, 1)
        self.times = {}
        self.begun_s.setdefault(self.txid, self.clock.wall())
        for id, stage in self.stages.items():
            if stage.source is not None:
                self._note_time(stage.source, list(of_spouts.get(id, ()) if of_spouts else rows))
        for id, stage in self.stages.items():
            inputs = {(read.stage, read.stream): read for read in stage.inputs}
            for index, task in enumerate(self.tasks[id]):
                parts = [
                    (inputs[a, b], built(inputs[a, b], c)) for a, b, c in self.arrived[id][index]
                ]
                if stage.source is not None:
                    mine = list(of_spouts.get(id, ()) if of_spouts else rows)
                    mine = mine[index :: stage.parallelism]
                    parts += [(None, mine[i : i + 3]) for i in range(0, len(mine), 3)]
                task.run(attempt, parts)

    def _note_time(self, source: Source, rows: Sequence[Any]) -> None:
        """Take the rows of a source as those of one partition."""
        before = self.reached[source.id][self.txid - 1]
        times = source.time.reader(source.schema).times(rows) if source.time else []
        self.reached[source.id][self.txid] = reached = highest([before, *times])
        about: Any = {"idle": False, "ended": self.ended, "begun_s": self.begun_s[self.txid]}
        if source.id in self.idle:
            reached, before, about = inf, inf, {**about, "idle": True}
        self.times[source.id] = SourceTime(reached, before, **about)


def wired(output: StageOutput, rows: Sequence[Any]) -> list[list[Any]]:
    """Rows as they arrive from MessagePack: as lists."""
    return [list(row) for row in output.schema.rows(rows)]


def built(read: StageInput, rows: list[list[Any]]) -> list[Any]:
    return read.schema.build(rows)


def plans(topology: Topology) -> list[Group]:
    program = topology.extension(StreamProgram)
    for group in program.groups.values():
        group.store = group.store or InMemory()
    return [group.freeze() for group in program.groups.values()]


def collected(stream: BatchStream[Any]) -> list[Any]:
    """A list that collects the rows of a stream, of all batches and tasks."""
    rows: list[Any] = []
    stream.peek(rows.append)
    return rows


def stub_stream(
    emits: Any, id: str = "given", topology: Topology | None = None, **options: Any
) -> tuple[Topology, BatchStream[Any]]:
    """A topology, and a stream in it from a stub of a spout."""
    topology = topology or Topology("t")
    return topology, batches(topology, id, SpoutStub(emits), **options)
