"""Compiles the functions of a stage into one, so that a row passes no function of the runtime.

What `flat_map(split).filter(keep).map(short)` does with a record is

    def stage(row0):
        for row1 in split_2(row0) or ():  # flat_map: words.py:3
            if type(row1) is not type_3 or len(row1) != 1: check([row1], schema_4, split_2)
            if not keep_5(row1): continue  # filter: words.py:8
            row3 = short_6(row1)  # map: words.py:12
            yield row3

`function_of_record` is for ordinary streams: a row passes all steps before the next row is made, so
there may be rows without end. `generated_steps` is for the rows of a batch: all of them pass a step
before the next step begins. Both are made of the same parts, those of `_STEPS`. Debuggers and
tracebacks find the source, because it is in `linecache`. If it cannot be compiled, the steps run
one by one, as with the setting generated_stages=False.
"""

from __future__ import annotations

import inspect
import linecache
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

from sunshower.records import Schema
from sunshower.texts import describe_error
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Emit, Operator, Rows
from sunshower.topologies.operators.schemas import code_name
from sunshower.topologies.operators.steps import (
    EachRow,
    Filter,
    Map,
    NumberBranch,
    Peek,
    Project,
    RowFunction,
    RowOperator,
    TakeBranch,
    check_rows,
    line_of,
)

Expand: TypeAlias = Callable[[Any], Iterable[Any]]  # of a record: the rows that steps make of it

_LOG = logging.getLogger("sunshower")
_LOOPS_MAX = 15  # nested in one function; Python compiles at most 20


# ---- parts ---------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """What a step does with a row.

    `let`: makes a row, the value of `text`; `each`: makes rows, those of the iterable `text`; `if`:
    passes the row on if `text` is true; `do`: evaluates `text`, and passes the row on.
    """

    kind: Literal["let", "each", "if", "do"]
    text: str


_Name: TypeAlias = Callable[[Any, str], str]  # of an object, by which generated code calls it


def _each_row(step: Any, row: str, name: _Name) -> list[_Part]:
    call = f"{name(step.function, code_name(step.function))}({row})"
    return [_Part("each", call if inspect.isgeneratorfunction(step.function) else f"{call} or ()")]


def _call(kind: Literal["let", "if", "do"], step: Any, row: str, name: _Name) -> list[_Part]:
    return [_Part(kind, f"{name(step.function, code_name(step.function))}({row})")]


def _number_branch(step: Any, row: str, name: _Name) -> list[_Part]:
    calls = [f"{name(test.function, code_name(test.function))}({row})" for test in step.filters]
    numbers = "".join(f"{number} if {call} else " for number, call in enumerate(calls))
    return [_Part("let", f"({numbers}{len(calls)}, {row})")]


def _take_branch(step: Any, row: str, _: _Name) -> list[_Part]:
    return [_Part("if", f"{row}[0] == {step.number}"), _Part("let", f"{row}[1]")]


def _project(step: Any, row: str, name: _Name) -> list[_Part]:
    call = f"{name(step.schema.key(step.fields), 'fields')}({row})"
    return [_Part("let", f"({call},)" if len(step.fields) == 1 else call)]


def _expand(step: Any, row: str, name: _Name) -> list[_Part]:
    if (text := step.source_of_one(row, name)) is not None:
        return [_Part("let", text)]
    return [_Part("each", f"{name(step.expand, type(step).__name__)}({row})")]


_STEPS: Mapping[type, tuple[str, Callable[[Any, str, _Name], list[_Part]]]] = {
    EachRow: ("flat_map", _each_row),
    Map: ("map", partial(_call, "let")),
    Filter: ("filter", partial(_call, "if")),
    Peek: ("peek", partial(_call, "do")),
    NumberBranch: ("branch", _number_branch),
    TakeBranch: ("branch", _take_branch),
    Project: ("project", _project),
}


# ---- source --------------------------------------------------------------------------------------


class _Source:
    """Source that is being written, and the objects that it names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {"__name__": __name__, "check": check_rows}
        self._names: dict[int, str] = {}  # by the ids of the objects, which `objects` keeps

    def name(self, value: Any, wish: str) -> str:
        """The name that an object has in the source: `wish` and a number."""
        if id(value) not in self._names:
            name = f"{re.sub('[^A-Za-z0-9_]', '_', wish)[:40]}_{len(self.objects)}"
            name = name if name.isidentifier() else f"_{name}"
            self.objects[name], self._names[id(value)] = value, name
        return self._names[id(value)]

    def parts(self, step: RowOperator, row: str) -> tuple[list[_Part], str]:
        """The parts of a step that reads `row`, and a comment that says which step it is."""
        word, write = _STEPS.get(type(step), (type(step).__name__, _expand))
        place = line_of(getattr(step, "function", None))
        comment = repr(f"  # {word}: {place}" if place else f"  # {word}")[1:-1]
        return write(step, row, self.name), comment

    def check(self, step: RowOperator, row: str) -> str:
        """A line that raises BadEmit for a row of another type or width than those of the step;
        empty if no user code has made the row."""
        if step.makes is None:
            return ""
        kind, width = self.name(step.makes.instances, "type"), len(step.makes.fields)
        other = f" or len({row}) != {width}" if step.makes.type is tuple else ""
        return f"if type({row}) is not {kind}{other}: {self.check_all(step, f'[{row}]')}"

    def check_all(self, step: RowOperator, rows: str) -> str:
        """A call that raises BadEmit if one of `rows` is not a record of the step's schema."""
        function = getattr(step, "function", step)
        code = self.name(function, code_name(function))
        return f"check({rows}, {self.name(step.makes, 'schema')}, {code})"

    def function(self, component: str) -> Callable[[Any], Any]:
        """The function `stage`, compiled."""
        text = "\n".join(self.lines) + "\n"
        file = f"<stage {component} {crc32(text.encode()):08x}>"  # see GENERATED in profiles.py
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(_compiled(text, file), self.objects)  # noqa: S102  (only names that are made here)
        function: Callable[[Any], Any] = self.objects["stage"]
        return function


_compiled = lru_cache(maxsize=1024)(partial(compile, mode="exec"))


# ---- a record ------------------------------------------------------------------------------------


def function_of_record(
    steps: Sequence[RowOperator], context: Context, *, are_last: bool = True
) -> Expand:
    """A function of a record that returns an iterable of the rows that all steps make of it. Its
    errors are those of the steps; a StopIteration of one is a RuntimeError. `are_last`: the rows
    leave the stage, and the caller checks them."""
    if are_last and len(steps) == 1 and inspect.isgeneratorfunction(call := _call_of(steps[0])):
        return call  # as it is: without a call in between for each record
    generated = _generated(partial(_source_of_record, steps, are_last=are_last), context)
    return generated or _one_by_one(steps, are_last=are_last)


def _call_of(step: Any) -> Expand:
    """What makes rows of a row."""
    call: Expand = step.function if type(step) is EachRow else step.expand
    return call


def _source_of_record(steps: Sequence[RowOperator], *, are_last: bool) -> _Source:
    source, groups, following = _Source(), _by_loops(steps), ""
    for number in reversed(range(len(groups))):
        name = f"stage{number or ''}"  # no name of a user's function: those end in _ and a number
        lines = _lines_of_record(source, groups[number], following, are_last=are_last)
        source.lines += [f"def {name}(row0):", *(f"    {line}" for line in lines)]
        following = name
    return source


def _lines_of_record(
    source: _Source, steps: Sequence[RowOperator], following: str, *, are_last: bool
) -> list[str]:
    """The lines of a function that reads `row0`: of a generator function, unless it makes rows in
    no loop but the last. `following`: the name of the function that reads what this one makes."""
    yields = bool(following) or not are_last or any(map(_loops, steps[:-1]))
    lines, pad, row = list[str](), "", "row0"
    for number, step in enumerate(steps, start=1):
        parts, comment = source.parts(step, row)
        for kind, text in parts:
            if kind == "each" and not yields:
                return _without_stop_iteration([*lines, f"return {text}{comment}"])
            if kind == "if":
                leave = "continue" if pad else "return" if yields else "return ()"
                lines.append(f"{pad}if not {text}: {leave}{comment}")
            elif kind == "do":
                lines.append(f"{pad}{text}{comment}")
            else:
                row = f"row{number}"
                line = f"{row} = {text}" if kind == "let" else f"for {row} in {text}:"
                lines.append(f"{pad}{line}{comment}")
                pad += "    " if kind == "each" else ""
        is_checked_later = are_last and not following and number == len(steps)
        if not is_checked_later and (check := source.check(step, row)):
            lines.append(pad + check)
    if yields:
        return [*lines, f"{pad}yield from {following}({row})" if following else f"{pad}yield {row}"]
    return _without_stop_iteration([*lines, f"return ({row},)"])


def _without_stop_iteration(lines: Sequence[str]) -> list[str]:
    """The lines of a function, so that it does as a generator function with a StopIteration: its
    caller would take it for the end of the records."""
    return [
        "try:",
        *(f"    {line}" for line in lines),
        "except StopIteration as error:",
        '    raise RuntimeError("generator raised StopIteration") from error',
    ]


def _loops(step: RowOperator) -> bool:
    """Whether a step makes several rows of one."""
    return type(step) is EachRow or type(step) not in _STEPS


def _by_loops(steps: Sequence[RowOperator]) -> list[Sequence[RowOperator]]:
    """The steps in groups, none of which has too many loops for one function."""
    starts = [at for at, step in enumerate(steps) if _loops(step)][_LOOPS_MAX::_LOOPS_MAX]
    bounds = zip([0, *starts], [*starts, len(steps)], strict=True)
    return [steps[first:end] for first, end in bounds]


def _one_by_one(steps: Sequence[RowOperator], *, are_last: bool) -> Expand:
    """The same without generated code: a generator of each step reads that of the step before."""

    def run(record: Any) -> Iterator[Any]:
        rows: Iterable[Any] = (record,)
        for number, step in enumerate(steps, start=1):
            rows = _expanded(step, rows, checks=not are_last or number < len(steps))
        yield from rows

    return run


def _expanded(step: RowOperator, rows: Iterable[Any], *, checks: bool) -> Iterator[Any]:
    schema = step.makes if checks else None
    kind, width = (None, None) if schema is None else (schema.instances, len(schema.fields))
    for row in rows:
        for record in step.expand(row):
            if schema is not None and (
                type(record) is not kind or (kind is tuple and len(record) != width)
            ):
                check_rows([record], schema, getattr(step, "function", step))
            yield record


# ---- the rows of a batch -------------------------------------------------------------------------


class GeneratedSteps(Operator):
    """Steps that read each other's rows, as one operator: all rows pass a step, and then the next
    one. It is neither prepared nor closed, because its steps are."""

    by_row = True

    def __init__(self, run: Callable[[Rows], Rows]) -> None:
        self._run = run

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        if outputs := self._run(rows):
            emit(outputs)


def can_generate(operator: Operator | None) -> bool:
    """Whether an operator may be one of `generated_steps`."""
    return type(operator) in _STEPS


def generated_steps(
    operators: Sequence[Operator | None], context: Context
) -> GeneratedSteps | None:
    """Operators of which each reads the rows of the one before, as one; None if there is no
    generated code for them: each processes its rows itself."""
    if not all(map(can_generate, operators)):
        return None
    run = _generated(partial(_source_of_rows, operators), context)
    return None if run is None else GeneratedSteps(run)


def _source_of_rows(steps: Sequence[Any]) -> _Source:
    source = _Source()
    source.lines.append("def stage(rows):")
    for step in steps:
        source.lines += (f"    {line}" for line in _lines_of_rows(source, step))
        if step.makes is not None:
            source.lines.append(f"    {source.check_all(step, 'rows')}")
    source.lines.append("    return rows")
    return source


def _lines_of_rows(source: _Source, step: RowOperator) -> Iterator[str]:
    if isinstance(step, RowFunction) and step.concurrency:
        together = source.name(step.expand_all, code_name(step.function))
        yield f"rows = {together}(rows)  # {_STEPS[type(step)][0]}: all calls at the same time"
        return
    parts, comment = source.parts(step, "row")
    for kind, text in parts:
        match kind:
            case "let":
                yield f"rows = [{text} for row in rows]{comment}"
            case "each":
                yield f"rows = [output for row in rows for output in {text}]{comment}"
            case "if":
                yield f"rows = [row for row in rows if {text}]{comment}"
            case "do":
                yield f"for row in rows: {text}{comment}"


# ---- generating ----------------------------------------------------------------------------------


def _generated(write: Callable[[], _Source], context: Context) -> Callable[[Any], Any] | None:
    """The function whose source `write` returns; None if it is turned off, or not possible."""
    if not context.generated_stages:
        return None
    try:
        return write().function(context.component)
    except Exception as error:  # whatever it is, the steps do without
        _LOG.warning(
            "bolt %s: its functions are called one by one, because they could not be compiled "
            "into one (%s)",
            context.component,
            describe_error(error),
        )
        return None


def code_of_record(steps: Sequence[RowOperator], *, are_last: bool) -> str:
    """The source of what `function_of_record` returns."""
    return "\n".join(_source_of_record(steps, are_last=are_last).lines)


def code_of_rows(steps: Sequence[Operator]) -> str:
    """The source of what `generated_steps` runs."""
    return "\n".join(_source_of_rows(steps).lines)


# ---- the stage as it runs: its operators, and what reads the rows that each of them emits --------

# `StageBuilder.frozen_nodes` makes the nodes. Two drivers run them: `OperatorBolt` on an ordinary
# stream, a tree per record, and `StageBolt` in exactly-once batches, a transaction per batch.


class Feed(NamedTuple):
    """An input of an operator: its node in the stage, and the number of the input."""

    node: int
    source: int


@dataclass(frozen=True)
class StageNode:
    """An operator, and what reads the rows that it emits. `stream`: of an ordinary stream, the
    stream on which they leave the stage."""

    operator: Operator
    feeds: tuple[Feed, ...] = ()
    schema: Schema | None = None  # of what it emits; None: nothing needs to know
    stream: str | None = None


def behind(nodes: Sequence[StageNode], first: int) -> Iterator[int]:
    """A node, and all that its rows reach: each before its readers."""
    yield first
    for feed in nodes[first].feeds:
        yield from behind(nodes, feed.node)


def row_chains(
    nodes: Sequence[StageNode], fed: Sequence[Feed] = (), sends: Sequence[int | None] = ()
) -> list[list[int]]:
    """The nodes whose functions become one: each of a chain is the only reader of the node before,
    whose rows go nowhere else. `fed`: the inputs of rows from outside; `sends`: the nodes whose
    rows leave the stage, besides those with a stream."""
    only_reader = {
        index: node.feeds[0].node
        for index, node in enumerate(nodes)
        if len(node.feeds) == 1 and node.stream is None and index not in sends
        if can_generate(node.operator) and can_generate(nodes[node.feeds[0].node].operator)
    }
    others = (node.feeds for index, node in enumerate(nodes) if index not in only_reader)
    chains = []
    for first in sorted({feed.node for feeds in (fed, *others) for feed in feeds}):
        chain = [first]
        while chain[-1] in only_reader:
            chain.append(only_reader[chain[-1]])
        if can_generate(nodes[first].operator):
            chains.append(chain)
    return chains
