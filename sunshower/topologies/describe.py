"""Renders a graph: text, a Mermaid flowchart, HTML for notebooks, or the code of its stages."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from pathlib import Path, PurePath
from textwrap import dedent
from types import FunctionType, MethodType
from typing import Any

from sunshower.config import Config
from sunshower.secret import without_secrets
from sunshower.texts import clip
from sunshower.topologies.components import DEFAULT, Stateless
from sunshower.topologies.graph import (
    Component,
    Graph,
    Level,
    StreamSpec,
    Subscription,
    is_internal,
)
from sunshower.topologies.groupings import LocalOrShuffle, NoneGrouping, Shuffle
from sunshower.topologies.groupings import describe as word
from sunshower.topologies.operators.steps import line_of
from sunshower.topologies.programs import is_library

_PAGE = Path(__file__).resolve().parents[1] / "cli/ui/static"
_EXPORT = re.compile(r"export\{([^}]*)\}")  # the last statement of a library
_SHUFFLED = (Shuffle, LocalOrShuffle, NoneGrouping)
_WITHOUT_STATE = (Level.OPERATORS, Level.ANSWERS)  # operators group their keys themselves


def as_text(graph: Graph, *, internals: bool = True) -> str:
    """Return each component with its tasks, level, inputs and streams, without a final newline;
    `internals`: also the coordinators of batches, and their streams."""
    components = [c for c in graph.components.values() if internals or not is_internal(c.id)]
    width = max((len(component.id) for component in components), default=0)
    blocks = ["\n".join(_block(graph, c, width, internals)) for c in components]
    return "\n\n".join([f"topology {graph.id}: {_tracking(graph.config)}", *blocks])


def state_notes(graph: Graph) -> list[str]:
    """A line for each bolt that would count wrongly if it kept a state: its records are shuffled
    over several tasks. Operators and sinks of Sunshower keep none."""
    notes = ((bolt, _state_note(graph, bolt)) for bolt in graph.bolts)
    return [f"{bolt.id} × {bolt.parallelism}: {note}" for bolt, note in notes if note]


def as_code(graph: Graph) -> str:
    """Return the Python source that the functions of each stage become."""
    blocks = []
    for component in graph.components.values():
        code_of = getattr(component.implementation, "__sunshower_code__", None)
        codes = code_of() if callable(code_of) else []
        blocks += [f"# {component.id}\n{code}" for code in codes]
    return "\n\n".join(blocks) or "# no stage has functions"


@dataclass(frozen=True)
class CodePart:
    """A function or a class of a program that a component runs."""

    name: str
    place: str  # file and line, `shop.py:41`
    text: str  # its source; empty: it cannot be read


def code_parts(component: Component) -> list[CodePart]:
    """The functions and classes of the program that a component runs, in declared order, up to 20;
    without secrets, and long ones clipped. A component of Sunshower alone has none."""
    parts: dict[Any, CodePart] = {}
    waiting, seen = [component.implementation], dict[int, Any]()
    while waiting and len(parts) < _CODE_MAX and len(seen) < _LOOKED_MAX:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, str | bytes | int | float | None):
            continue
        seen[id(value)] = value  # so that its id is not used again
        code = value.__func__ if isinstance(value, MethodType) else value
        if not isinstance(code, FunctionType | type):
            code = type(code)
        if (part := _code_part(code)) is not None:
            parts.setdefault(code, part)
        if not isinstance(value, type):
            with suppress(Exception):  # attributes may run code of the user
                named = (
                    (name, each) for name, each in _parts_of(value) if not _is_global(value, name)
                )
                waiting += reversed([each for _, each in named])
    return list(parts.values())


_CODE_MAX, _CODE_BYTES = 20, 20_000
_LOOKED_MAX = 2_000  # objects
_PACKAGE = str(Path(__file__).parents[1])


def _is_global(value: Any, name: str) -> bool:
    return isinstance(value, FunctionType) and name not in value.__code__.co_freevars


def _code_part(code: FunctionType | type) -> CodePart | None:
    """The source of a function or class; None if no user has written it."""
    try:
        file = inspect.getsourcefile(code) or ""
    except (OSError, TypeError):
        return None
    if not file or file.startswith(("<", _PACKAGE)) or is_library(file):
        return None
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        lines, first = [], getattr(getattr(code, "__code__", None), "co_firstlineno", 0)
    text = dedent("".join(lines))
    return CodePart(
        code.__qualname__,
        f"{PurePath(file).name}:{first}",
        clip(without_secrets(text), _CODE_BYTES),
    )


def as_mermaid(graph: Graph) -> str:
    """Return a Mermaid flowchart: spouts are rounded, an arrow's text is its grouping."""
    number = {id: f"c{n}" for n, id in enumerate(graph.components)}  # ids may not suit Mermaid
    lines = ["flowchart LR"]
    for component in graph.components.values():
        left, right = ("([", "])") if component.level.is_spout else ("[", "]")
        label = _quoted(f"{component.id} × {component.parallelism}")
        lines.append(f"    {number[component.id]}{left}{label}{right}")
    for bolt in graph.bolts:
        for subscription in bolt.inputs:
            label = _quoted(" ".join(_edge(subscription)))
            lines.append(f"    {number[subscription.source]} -->|{label}| {number[bolt.id]}")
    return "\n".join(lines)


def _tracking(config: Config) -> str:
    if not config.tracked:
        return "untracked"
    ackers = "an acker for each worker" if config.ackers is None else f"ackers: {config.ackers}"
    return f"{ackers}, timeout: {config.message_timeout_s:g} s"


def _block(graph: Graph, component: Component, width: int, internals: bool) -> Iterator[str]:
    timeout_s = component.message_timeout_s
    timeout = "" if timeout_s is None else f", timeout: {timeout_s:g} s"
    tick = "" if component.tick_s is None else f", a tick every {component.tick_s:g} s"
    says = f"{component.level.value}{timeout}{tick}"
    yield f"{component.id:{width}}  × {component.parallelism}  {says}"
    for subscription in component.inputs:
        if is_internal(subscription.stream) and not internals:
            continue
        yield f"{'':{width}}  ← {subscription.source} {' '.join(_edge(subscription))}"
    for spec in component.streams.values():
        if is_internal(spec.id) and not internals:
            continue
        yield f"{'':{width}}  → {' '.join(_stream(spec))}"
    if note := _state_note(graph, component):
        yield f"{'':{width}}  ! {note}"


def _state_note(graph: Graph, component: Component) -> str:
    """What to consider if the component keeps a state; empty if it keeps none, or may."""
    code = component.implementation
    kind = code if isinstance(code, type) else type(code)
    is_stateless = component.level in _WITHOUT_STATE or issubclass(kind, Stateless)
    if component.level.is_spout or component.parallelism < 2 or is_stateless:
        return ""
    for read in component.inputs:
        if isinstance(read.grouping, _SHUFFLED):
            fields = graph.components[read.source].streams[read.stream].schema.fields
            call = f' (.fields("{fields[0]}"))' if fields else ""
            return f"each task sees a part of every key; group by the key{call} if it keeps state"
    return ""


def _edge(subscription: Subscription) -> Iterator[str]:
    if subscription.stream != DEFAULT:
        yield f"{subscription.stream}:"
    yield word(subscription.grouping)


def _stream(spec: StreamSpec) -> Iterator[str]:
    if spec.id != DEFAULT:
        yield f"{spec.id}:"
    yield spec.schema.name
    if spec.direct:
        yield "direct"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "#quot;") + '"'


# ---- what cannot be sent ------------------------------------------------------------------------


def unsendable_part(value: Any, send: Callable[[Any], Any]) -> str:
    """Which part of a component cannot be sent, for an error: " (`own`, a lock, of the function f,
    shop.py:13)"; empty if that is not known. `send` raises for what cannot be sent."""
    path: list[tuple[str, Any]] = []
    function = None
    while len(path) < _DEPTH_MAX:
        for name, part in _parts_of(value):
            if _is_refused(part, send):
                path.append((name, part))
                break
        else:
            break
        if isinstance(value, FunctionType):
            function = value
        value = path[-1][1]
    if not path:
        return ""
    where = ""
    if function is not None:
        where = f", of the function {function.__name__}, {line_of(function)}"
    name, part = path[-1]
    return f" (`{name}`, a {type(part).__qualname__}{where})"


_DEPTH_MAX = 20


def _is_refused(part: Any, send: Callable[[Any], Any]) -> bool:
    try:
        send(part)
    except Exception:  # pickle runs code of the user
        return True
    return False


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """The named parts of a value: what a function refers to, attributes, elements."""
    if isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is empty
                yield name, cell.cell_contents
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield name, value.__globals__[name]
    elif isinstance(value, partial):
        yield from (("func", value.func), *((f"{part!r:.40}", part) for part in value.args))
    elif isinstance(value, dict):
        yield from ((str(name), part) for name, part in value.items())
    elif isinstance(value, list | tuple | set):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    else:
        slots = [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ())]
        names = [*getattr(value, "__dict__", ()), *slots]
        yield from ((name, getattr(value, name)) for name in names if hasattr(value, name))


# ---- for notebooks ------------------------------------------------------------------------------


def as_html(graph: Graph) -> str:
    """The graph as the page draws it, by its code; where scripts do not run, the text."""
    shown = [component for component in graph.components.values() if not is_internal(component.id)]
    ids = {component.id for component in shown}
    nodes = [
        {
            "id": c.id,
            "isSpout": c.level.is_spout,
            "facts": f"{'spout' if c.level.is_spout else 'bolt'} × {c.parallelism}",
        }
        for c in shown
    ]
    edges = {  # two components may be connected by several streams
        (read.source, c.id): {"source": read.source, "target": c.id}
        for c in shown
        for read in c.inputs
        if read.source in ids and not is_internal(read.stream)
    }
    drawn = json.dumps({"nodes": nodes, "edges": [*edges.values()]}).replace("<", "\\u003c")
    text = escape(as_text(graph, internals=False))
    return (
        f"<div><pre>{text}</pre><script>((box, given) => {{\n{_drawing()}\n"
        f"drawGraph(box, given);}})(document.currentScript?.parentElement, {drawn});"
        "</script></div>"
    )


@cache
def _drawing() -> str:
    """The scripts of the page that place and draw a graph, as one function body."""
    library = (_PAGE / "vendor/dagre.js").read_text(encoding="utf-8")
    exported = _EXPORT.search(library)
    assert exported is not None
    parts = (part.partition(" as ") for part in exported[1].split(","))
    names = {public: private for private, _, public in parts}
    dagre = (
        f"const [Graph, place] = (() => {{ {library[: exported.start()]} "
        f"return [{names['Graph']}, {names['layout']}]; }})();"
    )
    modules = [(_PAGE / name).read_text(encoding="utf-8") for name in ("layout.js", "notebook.js")]
    plain = re.sub(r"^import .*$|^export ", "", "\n".join(modules), flags=re.MULTILINE)
    return f"{dagre}\n{plain}".replace("</script", "<\\/script")
