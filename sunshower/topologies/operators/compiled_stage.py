"""The bolt of a stage: operators of an ordinary stream between two repartitionings.

The rows of an input pass the functions first, alone, so that an exception fails this input and no
other. What they make of all inputs of a batch is gathered: aggregators combine it, states are
written once, and the results leave for the next stages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from sunshower.errors import user_errors_suppressed
from sunshower.records import Schema, is_table
from sunshower.topologies.components import Bolt, Context
from sunshower.topologies.operators.generated_stages import (
    StageNode,
    behind,
    code_of_record,
    code_of_rows,
    function_of_record,
    generated_steps,
    row_chains,
)
from sunshower.topologies.operators.port import Attempt, Keyed, Operator, Passing, Rows
from sunshower.topologies.operators.schemas import code_name
from sunshower.topologies.operators.states import entries_of
from sunshower.topologies.operators.steps import (
    FunctionOperator,
    RowFunction,
    RowOperator,
    check_rows,
)
from sunshower.topologies.operators.windows.watermarks import WATERMARKS

if TYPE_CHECKING:
    from sunshower.topologies.async_calls import AsyncCalls
    from sunshower.topologies.async_functions import CallLimits
    from sunshower.topologies.operators.windows.watermarks import LateRecords
    from sunshower.topologies.operators.windows.window_operator import WindowOperator

_BATCH = Attempt(0, 0, 0)  # operators that need a number of the batch count themselves


class OperatorBolt(Bolt[Any, Any]):
    """Runs the operators of a stage: the first functions, `steps`, for each record, what follows
    them for the rows of a batch.

    `nodes`: the first one passes on what arrives. `window`: the operator that makes rows of
    watermarks, and `ended`: the node that emits them. `schema`: of the rows behind the steps.
    `stream`: the one that these rows leave on, each as part of its own record's tree, if nothing
    else reads them.
    """

    expand: Callable[[Any], Any]  # the rows of a record, after all steps; a coroutine if `calls`

    def __init__(
        self, nodes: Sequence[StageNode], window: Any = None, ended: int | None = None
    ) -> None:
        self._nodes, self._window, self._ended = nodes, window, ended
        # of each node: the nodes that read its rows, and whether they take tables
        self._readers = [
            [(feed.node, nodes[feed.node].operator.takes_tables) for feed in node.feeds]
            for node in nodes
        ]
        self.steps, self._root = _steps_of(nodes)
        root = nodes[self._root]
        self.schema: Schema = root.schema or Schema(())
        self.stream = root.stream if not root.feeds else None
        self.passes = not self.steps
        # the only reader of these rows, which runs first; None: they have several
        self._first = root.feeds[0].node if len(root.feeds) == 1 and not root.stream else None
        first = None if self._first is None else nodes[self._first].operator
        # whether it gets the tables that its senders have sent, instead of their rows
        self.takes_tables = self.passes and any(takes for _, takes in self._readers[self._root])
        self.combines = getattr(first, "makes_parts", False)
        # whether the rows that it sends are combined from all inputs of a batch
        behind_root = [*behind(nodes, self._root)]
        readers = (nodes[node].operator for node in behind_root)
        tables_combined = any(getattr(reader, "makes_parts", False) for reader in readers)
        self.makes_fewer = self.combines or (self.takes_tables and tables_combined)
        slot = getattr(first, "slot", None)  # of totals, which are written per batch
        is_stored = getattr(slot, "factory", None) is not None
        # whether it takes the shared batches of several senders as one: totals are written once
        # then, and a window, to which each brings few rows
        self.joins_shared = self.passes and (is_stored or (window is not None and first is window))
        self._combined: Any = None  # of this batch: what `add` has combined
        self.reads_watermarks = ended is not None
        # what reads both rows of a batch and those of watermarks is there once
        firsts = [0] if ended is None else [0, ended]
        order = [*dict.fromkeys(node for first in firsts for node in behind(nodes, first))]
        operators = [nodes[node].operator for node in order]
        self.operators: list[Any] = [
            operator for operator in operators if not isinstance(operator, Passing)
        ]
        # what processes the rows that a node gets, and the node that emits what it makes
        self._runs = {node: (nodes[node].operator, node) for node in order}
        ticks = [getattr(operator, "tick_s", None) for operator in self.operators]
        self.keeps_state = window is not None or self.keyed is not None
        self.tick_s = min((tick_s for tick_s in ticks if tick_s is not None), default=None)
        self._cleanups = ExitStack()  # of what is prepared, the last first; each is called
        self._async = [
            step for step in self.steps if isinstance(step, RowFunction) and step.concurrency
        ]
        self.concurrency = max((step.concurrency for step in self._async), default=0)
        self.ordered = all(step.ordered for step in self._async)
        self.calls: AsyncCalls | None = None  # the event loop of the async functions of its steps

    @property
    def maker(self) -> Any:
        """What has made the rows of `expand`: a function, or an operator without one."""
        steps = [step for step in self.steps if step.makes is not None] or self.steps
        return getattr(steps[-1], "function", steps[-1]) if steps else self

    @property
    def call_limits(self) -> list[CallLimits | None]:
        """Those of its functions; None: it is no async one."""
        calls = (getattr(step, "inner", step) for step in self.operators)  # of OfUpdates
        return [operator.limits for operator in calls if isinstance(operator, FunctionOperator)]

    def prepare(self, context: Context) -> None:
        if self._async:
            from sunshower.topologies.async_calls import AsyncCalls

            self.calls = AsyncCalls(context.clock)
            self._cleanups.callback(self.calls.close)
        for step in self._async:
            step.calls = self.calls
        try:
            for operator in self.operators:
                operator.prepare(context)
                self._cleanups.callback(operator.cleanup)
            if self._async:
                self.expand = _async_function(self.steps, context, self.ordered)
            else:
                self.expand = function_of_record(self.steps, context)
            for chain in self._chains():
                generated = generated_steps([self._nodes[node].operator for node in chain], context)
                if generated is not None:
                    self._runs[chain[0]] = generated, chain[-1]
        except BaseException:
            with user_errors_suppressed():  # what has failed first says whether there is an outage
                self.cleanup()
            raise

    def add(self, rows: Sequence[Any]) -> None:
        """Combine some rows of a batch before the others, if the bolt `combines`."""
        assert self._first is not None, "it does not combine"
        operator = self._nodes[self._first].operator
        if self._combined is None:
            self._combined = operator.start(_BATCH)
        operator.process(self._combined, 0, rows, list[Any]().extend)

    def gather(self, rows: Rows) -> dict[str, Rows]:
        """The rows that a batch sends, by stream; `rows`: without those that were added."""
        outputs: dict[str, Rows] = {}
        added, self._combined = self._combined, None
        if self._first is None:
            self._pass_on(self._root, rows, outputs)
        else:
            self._run(self._first, rows, outputs, added)
        return outputs

    def advance(self, marks: Sequence[Any]) -> dict[str, Rows]:
        """The rows that watermarks bring, by stream."""
        outputs: dict[str, Rows] = {}
        if self._ended is not None:
            self._pass_on(self._ended, self._window.advance(marks), outputs)
            if self._window.marks:
                outputs[WATERMARKS] = self._window.marks
        return outputs

    @property
    def window(self) -> WindowOperator | None:
        """The operator that follows watermarks; None: there is none."""
        return self._window if self.reads_watermarks else None

    def announce(self, records: Sequence[Any]) -> None:
        self._combined = None
        for step in self.steps[:1]:
            _call(step, "announce", records)

    def flush(self) -> None:
        for operator in self.operators:
            _call(operator, "flush")

    def discard(self) -> None:
        for operator in self.operators:
            _call(operator, "discard")

    def tick(self) -> None:
        for operator in self.operators:
            _call(operator, "tick")

    def figures(self) -> dict[str, float]:
        """Those of its operators, such as ambiguous times, or rows without a match in a table."""
        sums: dict[str, float] = {}
        for operator in self.operators:
            reader = getattr(operator, "reader", None)  # of event times
            of_reader = reader.figures() if reader is not None else {}
            for name, value in {**of_reader, **(_call(operator, "figures") or {})}.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums

    def __sunshower_late__(self) -> LateRecords | None:
        return getattr(self._window, "late_records", None)

    def in_memory(self) -> Iterator[str]:
        """The names of states that are in the memory of the tasks."""
        for operator in self.operators:
            slot, store = getattr(operator, "slot", None), getattr(operator, "store", None)
            if hasattr(operator, "snapshot"):
                is_stored = getattr(slot, "factory", None) or getattr(store, "is_stored", False)
                if not is_stored:
                    yield f"the state {getattr(slot or store, 'name', 'of an operator')!r}"

    def snapshot(self) -> list[Any] | None:
        state = [_call(operator, "snapshot") for operator in self.operators]
        return None if all(part is None for part in state) else state

    def restore(self, state: list[Any] | None) -> None:
        state = state or [None] * len(self.operators)
        for operator, part in zip(self.operators, state, strict=True):
            _call(operator, "restore", part)

    def __sunshower_code__(self) -> list[str]:
        """The source of the functions that its steps become, and what calls the async ones."""
        codes = []
        for plain, step in _parts(self.steps):
            if plain:
                codes.append(code_of_record(plain, are_last=step is None))
            if step is not None:
                codes.append(f"# for all rows at the same time: {code_name(step.function)}")
        chains = ([self._nodes[node].operator for node in chain] for chain in self._chains())
        return codes + [code_of_rows(chain) for chain in chains]

    def result(self) -> Any:
        """What the last aggregator of this stage has in memory: key → value."""
        results = (_call(operator, "result") for operator in reversed(self.operators))
        return next((result for result in results if result is not None), None)

    @property
    def keyed(self) -> Keyed | None:
        """The last operator of this stage that has a value for each key; None if none has."""
        return next(
            (operator for operator in reversed(self.operators) if isinstance(operator, Keyed)), None
        )

    def __sunshower_state_entries__(self) -> int | None:
        return entries_of(self.operators)

    def cleanup(self) -> None:
        self._cleanups.close()

    def _chains(self) -> list[list[int]]:
        """The nodes whose functions become one, behind the steps and behind the watermarks."""
        chains = {chain[0]: chain for chain in row_chains(self._nodes)}
        emitters = [self._root] if self._ended is None else [self._root, self._ended]
        readers = (node for emitter in emitters for node in [*behind(self._nodes, emitter)][1:])
        return [chains[node] for node in dict.fromkeys(readers) if node in chains]

    def _run(self, node: int, rows: Rows, outputs: dict[str, Rows], batch: Any = None) -> None:
        """Process the rows that a node gets. `batch`: the operator's, if it has processed some rows
        already."""
        operator, last = self._runs[node]
        if len(rows) or batch is not None:
            outcomes: list[Rows] = []
            batch = operator.start(_BATCH) if batch is None else batch
            operator.process(batch, 0, rows, outcomes.append)
            operator.finish(batch, _BATCH, outcomes.append)
            self._pass_on(last, _joined(outcomes), outputs)

    def _pass_on(self, emitter: int, rows: Rows, outputs: dict[str, Rows]) -> None:
        """Give the rows that a node emits to its readers, and to `outputs`."""
        if not len(rows):
            return
        node = self._nodes[emitter]
        if (stream := node.stream) is not None:
            outputs[stream] = _joined([outputs[stream], rows]) if stream in outputs else rows
        plain = rows
        for reader, takes_tables in self._readers[emitter]:
            if not takes_tables and is_table(plain):
                assert node.schema is not None
                plain = node.schema.rows_of_table(plain)
            self._run(reader, rows if takes_tables else plain, outputs)


def _steps_of(nodes: Sequence[StageNode]) -> tuple[list[RowOperator], int]:
    """The functions that can run for each record, because the rows have one reader each, and the
    node that emits what they make."""
    steps, last = list[RowOperator](), 0
    while nodes[last].stream is None and len(nodes[last].feeds) == 1:
        reader = nodes[last].feeds[0].node
        if not isinstance(operator := nodes[reader].operator, RowOperator):
            break
        steps.append(operator)
        last = reader
    return steps, last


def _joined(parts: Sequence[Rows]) -> Rows:
    """Rows that were emitted one after the other: all lists, or all tables."""
    if len(parts) < 2:
        return parts[0] if parts else ()
    if not is_table(parts[0]):
        return list(chain.from_iterable(parts))
    import pyarrow as pa

    joined: Rows = pa.concat_tables(parts)
    return joined


def _async_function(
    steps: Sequence[RowOperator], context: Context, ordered: bool
) -> Callable[[Any], Awaitable[list[Any]]]:
    """An async function of a record that runs all steps. Calls of an async step are made for all
    rows and records at the same time. If `ordered`, what follows it, up to the begin of the next
    calls, is done for one record after the other, in the order in which their runs began."""
    from sunshower.topologies.async_calls import Turns, all_of, begin_all

    parts = [
        (function_of_record(plain, context, are_last=step is None) if plain else None, step)
        for plain, step in _parts(steps)
    ]
    turns = [Turns() for _ in parts[1:]] if ordered else []
    numbers = count()

    async def run(record: Any) -> list[Any]:
        number, passed = next(numbers), 0
        records: list[Any] = [record]
        try:
            for index, (plain, step) in enumerate(parts):
                if turns and index:
                    await turns[index - 1].wait(number)
                if plain:
                    records = [row for before in records for row in plain(before)]
                calls: list[Awaitable[Any]] = []
                if step is not None:
                    calls += map(step.expand_async, records)
                if len(calls) > 1 or (plain and not index):  # else it begins below, at once
                    calls = begin_all(calls)
                if turns and index:
                    passed = index
                    turns[index - 1].leave(number)
                if step is not None:
                    records = [row for rows in await all_of(calls) for row in rows]
                    if step.makes is not None:
                        check_rows(records, step.makes, step.function)
        finally:
            for turn in turns[passed:]:
                turn.leave(number)
        return records

    return run


def _parts(
    steps: Sequence[RowOperator],
) -> list[tuple[list[RowOperator], RowFunction | None]]:
    """The steps in parts: plain ones, and the async one that ends the part, if any."""
    parts: list[tuple[list[RowOperator], RowFunction | None]] = []
    plain: list[RowOperator] = []
    for step in steps:
        if isinstance(step, RowFunction) and step.concurrency:
            parts.append((plain, step))
            plain = []
        else:
            plain.append(step)
    return [*parts, (plain, None)] if plain else parts


def _call(operator: Operator, method: str, *arguments: Any) -> Any:
    function = getattr(operator, method, None)
    return function(*arguments) if callable(function) else None
