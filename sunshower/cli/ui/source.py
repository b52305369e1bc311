"""Where the page gets its data: the masters of topologies on a Ray cluster."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from glob import escape
from itertools import count
from math import inf, isfinite, nextafter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sunshower.cli.cluster_options import (
    ANSWER_WITHIN_S,
    ask_all,
    known_component,
    new_lines,
    stored_entries,
)
from sunshower.cli.dead.letters import (
    Ask,
    Found,
    LetterGroup,
    Selection,
    StoredLetter,
    ask_of,
    groups_of,
    marks_of,
    not_replayed,
    read_letters,
    replayed,
)
from sunshower.cli.formatting import elapsed, number_of, value_text
from sunshower.cli.health import task_error_text
from sunshower.cli.statistics import component_numbers, done_by, status_fields, task_numbers
from sunshower.cli.traces.facts import listed_trees, missing, no_such_tree, traces_fields
from sunshower.errors import ClusterError, ConfigError, SourceError, SunshowerError, VersionMismatch
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.metrics import ALL, NAMES, Snapshot, TaskStats
from sunshower.runtime.events.trace_recorder import NO_TRACES, Traces
from sunshower.texts import clip, describe_error, printable
from sunshower.topologies.graph import Component
from sunshower.topologies.retry import ACKED, DEAD_AGAIN, DeadLetter, LetterStore

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun
    from sunshower.runtime.cluster import Run

_FRESH_S = 0.5  # an overview is shared by requests within this time
Look = Callable[[str], Overview]
Facts = dict[str, Any]  # what JSON can represent
Record = Callable[["RayRun", "str | None", float], tuple[Facts, str]]


# ---- replays -------------------------------------------------------------------------------------

_REPLAY_ERRORS_MAX = 5  # that are shown
_ERROR_BYTES = 2_000


@dataclass
class _Replay:
    total: int
    outcomes: Counter[str | None] = field(default_factory=Counter)  # None: not settled
    errors: list[str] = field(default_factory=list)
    is_running: bool = True

    def note_error(self, error: BaseException) -> None:
        if len(self.errors) < _REPLAY_ERRORS_MAX:
            text = str(error) if isinstance(error, SunshowerError) else describe_error(error)
            self.errors.append(clip(text, _ERROR_BYTES))


class ReplaysByTopology:
    """The last replay of each topology."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        """`wall`: Unix time, in seconds."""
        self._wall = wall
        self._lock = threading.Lock()
        self._last: dict[str, _Replay] = {}

    def start(self, name: str, letters: Sequence[StoredLetter], ask: Ask) -> None:
        """Replay letters on a thread. Raises ClusterError while another replay runs."""
        with self._lock:
            before = self._last.get(name)
            if before is not None and before.is_running:
                raise ClusterError(f"dead letters of {name!r} are being replayed; wait for the end")
            self._last[name] = begun = _Replay(len(letters))
        work = (begun, name, letters, ask)
        threading.Thread(target=self._run, args=work, daemon=True).start()

    def progress(self, name: str) -> dict[str, Any]:
        """How many letters have ended in which way; `total` is 0 without a replay."""
        last = self._last.get(name)
        if last is None:
            return {"total": 0, "running": False}
        return {
            "total": last.total,
            "acked": last.outcomes[ACKED],
            "dead_again": last.outcomes[DEAD_AGAIN],
            "not_settled": last.outcomes[None],
            "errors": list(last.errors),
            "running": last.is_running,
        }

    def _run(self, progress: _Replay, name: str, letters: Sequence[StoredLetter], ask: Ask) -> None:
        try:
            for _, outcome in replayed(ask, letters, name, self._wall):
                if isinstance(outcome, SunshowerError):
                    progress.outcomes[None] += 1
                    progress.note_error(outcome)
                else:
                    progress.outcomes[outcome] += 1
        except Exception as error:  # the page shows it
            progress.note_error(error)
        finally:
            progress.outcomes[None] = (
                progress.total - progress.outcomes[ACKED] - progress.outcomes[DEAD_AGAIN]
            )
            progress.is_running = False


# ---- letters -------------------------------------------------------------------------------------

LISTED_MAX = 100
FILES_BYTES_MAX = 256 << 20  # they are in the memory of the server while it reads them
_CELL_BYTES = 200
_VALUE_BYTES = 20_000  # of a letter that is shown
_FIELDS_MAX = 200
_DIGITS_MAX = 18  # of a number in a request
_KEYS_MAX = 50  # of a state that are listed
_GROUPS_MAX = 20
Stores = Mapping[str, LetterStore | None]  # by the bolt that writes there


@dataclass(frozen=True)
class ReadLetters:
    """What the places of a topology hold, in the order in which they were read."""

    letters: list[StoredLetter]
    places: list[str]
    notes: list[str]  # sentences about what could not be read


def read_stores(stores: Stores, settings: Mapping[str, Any]) -> ReadLetters:
    """All letters of a topology. `settings`: of Kafka's client, added to those of the topology.
    Raises ConfigError for files that are too large, SourceError, and KafkaError."""
    places, notes, parts = [], [], list[Found]()
    for bolt, store in stores.items():
        if store is None:
            notes.append(
                f"{bolt} writes dead letters where this page cannot read them; "
                "`sunshower dead` reads JSON lines files and Kafka topics"
            )
        elif store.topic:
            places.append(f"topic {store.topic}")
            parts.append(read_letters((), store.topic, {**store.settings, **settings}))
        else:
            places += store.files
            readable = [path for path in store.files if os.access(path, os.R_OK)]
            notes += [
                f"{path} cannot be read on this server's machine: it is on that of a worker of "
                f"{bolt}"
                for path in store.files
                if path not in readable
            ]
            _check_size(readable)
            if readable:
                parts.append(read_letters([escape(path) for path in readable], None, {}))
    numbers = count(1)
    letters = [replace(letter, number=next(numbers)) for part in parts for letter in part.letters]
    if others := sum(part.others for part in parts):
        notes.append(f"{others:,} lines or messages are not valid dead letters")
    return ReadLetters(letters, places, notes)


def selection_of(chosen: Mapping[str, str]) -> Selection:
    """The selection of these conditions. Raises ConfigError for a time that is not valid."""
    return Selection(
        causes=[chosen["cause"]] if "cause" in chosen else (),
        components=[chosen["component"]] if "component" in chosen else (),
        text=chosen.get("text", ""),
        since_s=_time(chosen, "since"),
        until_s=_time(chosen, "until"),
        group=chosen.get("group", ""),
    )


def find_letter(read: ReadLetters, id: str) -> StoredLetter:
    """The letter with an id. Raises ConfigError."""
    for letter in read.letters:
        if letter.id == id:
            return letter
    raise ConfigError(f"there is no dead letter {clip(id, 40)} any more: refresh the list")


def list_facts(read: ReadLetters, chosen: Mapping[str, str]) -> dict[str, Any]:
    """The newest of the letters that match, with how many there are, and what can be chosen."""
    letters = selection_of(chosen).of(read.letters)
    marks = marks_of(letters)
    unique = {letter.id: letter for letter in letters}
    newest = sorted(unique.values(), key=lambda item: (-item.letter.time, -item.number))
    return {
        "places": read.places,
        "notes": read.notes,
        "all": len(read.letters),
        "matching": len(letters),
        "new": sum(stored not in marks for stored in unique),
        "until": _end(letters),
        "causes": _counted(letter.letter.cause for letter in read.letters),
        "components": _counted(letter.letter.component for letter in read.letters),
        "groups": [_group(group, marks) for group in groups_of(letters)[:_GROUPS_MAX]],
        "letters": [_row(stored, marks.get(stored.id)) for stored in newest[:LISTED_MAX]],
    }


def _group(group: LetterGroup, marks: Mapping[str, Any]) -> dict[str, Any]:
    newest = max(group.letters, key=lambda stored: (stored.letter.time, stored.number))
    first_s, last_s = group.times
    return {
        "group": group.id,
        "component": _word(group.component) or None,
        "cause": _word(group.cause),
        "message": _word(group.message),
        "count": len({stored.id for stored in group.letters}),
        "new": len({stored.id for stored in group.letters if stored.id not in marks}),
        "first": first_s if first_s > 0 and isfinite(first_s) else None,
        "last": last_s if last_s > 0 and isfinite(last_s) else None,
        "record": _cell(newest.letter.record),
    }


def _end(letters: list[StoredLetter]) -> float | None:
    """The time that selects these letters and no newer ones; None if some have no time."""
    times = [letter.letter.time for letter in letters]
    return nextafter(max(times), inf) if times and min(times) > 0 else None


def letter_facts(stored: StoredLetter) -> dict[str, Any]:
    """All of a letter; long values are clipped."""
    letter = stored.letter
    fields = list(letter.record.items())
    return {
        **_row(stored, marks_of([stored]).get(stored.id)),
        "place": stored.place,
        "stream": _word(letter.stream),
        "message": _json(letter.message_id, _VALUE_BYTES),
        "attempts": letter.attempts,
        "worker": letter.worker if letter.worker >= 0 else None,
        "reason": printable(clip(letter.reason, _VALUE_BYTES)),
        "traceback": printable(clip(letter.traceback, _VALUE_BYTES)),
        "record": [
            {"field": _word(name), "value": _json(value, _VALUE_BYTES),
             "is_text": name in letter.as_text}
            for name, value in fields[:_FIELDS_MAX]
        ],
        "fields_left_out": max(0, len(fields) - _FIELDS_MAX),
    }  # fmt: skip


def _row(stored: StoredLetter, mark: Mapping[str, Any] | None) -> dict[str, Any]:
    letter: DeadLetter = stored.letter
    return {
        "letter": stored.id,
        "time": letter.time if letter.time > 0 and isfinite(letter.time) else None,
        "component": _word(letter.component) or None,
        "task": letter.task if letter.task >= 0 else None,
        "spout": _word(letter.spout),
        "cause": _word(letter.cause),
        "error": _word(letter.reason.strip().partition("\n")[0]),
        "record": _cell(letter.record),
        "replayed": None if mark is None else str(mark.get("outcome")),
    }


def _json(value: Any, bytes_max: int) -> str:
    """A value as `sunshower dead show` prints it, clipped."""
    return printable(clip(json.dumps(value, ensure_ascii=False), bytes_max))


def _value(value: Any) -> str:
    return printable(clip(value_text(value), _VALUE_BYTES))


def _fields_of(key: str) -> list[str]:
    """The values of a key that a user has typed, as `sunshower query` takes them."""
    try:
        value = json.loads(key)
    except (ValueError, RecursionError):
        value = key
    if isinstance(value, list):
        return [part if isinstance(part, str) else json.dumps(part) for part in value]
    return [key] if key else []


def _cell(record: Mapping[str, Any]) -> str:
    """A record in a line: texts as they are, other values as JSON."""
    parts = (
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in record.items()
    )
    return printable(clip(", ".join(parts), _CELL_BYTES))


def _word(text: str) -> str:
    return printable(clip(text, _CELL_BYTES))


def _counted(values: Iterable[str]) -> dict[str, int]:
    """How often each value is there, the most frequent ones first; without empty and long ones."""
    short = (value for value in values if 0 < len(value) <= _CELL_BYTES)
    return dict(Counter(short).most_common(LISTED_MAX))


def _check_size(files: list[str]) -> None:
    try:
        size = sum(Path(path).stat().st_size for path in files)
    except OSError as error:  # removed meanwhile
        raise SourceError(f"dead letters cannot be read: {error}") from None
    if size > FILES_BYTES_MAX:
        raise ConfigError(
            f"the files with dead letters have {size:,} bytes, and this page reads at most "
            f"{FILES_BYTES_MAX:,}: use `sunshower dead list {files[0]}`"
        )


def _time(chosen: Mapping[str, str], name: str) -> float | None:
    if name not in chosen:
        return None
    try:
        time_s = float(chosen[name])
    except ValueError:
        time_s = float("nan")
    if not isfinite(time_s):
        raise ConfigError(f"{name} is {clip(chosen[name], 40)}, and not a Unix time in seconds")
    return time_s


# ---- facts ---------------------------------------------------------------------------------------

# Plain data for the page: the fields of `status --json`, and further ones for the page only.
#
# The fields of single tasks come when their component is opened.

_ERRORS_MAX = 50  # of a component that are shown with their tracebacks


def summary_facts(name: str, overview: Overview, now_s: float) -> dict[str, Any]:
    """A line about a topology: state, size and sums over its spouts. `now_s`: Unix time."""
    snapshot = overview.snapshot
    spouts = [snapshot.component(spout.id) for spout in overview.plan.graph.spouts]
    minute = snapshot.windows.get("1m", {})
    rates = [
        done_by(spout, minute[spout.id].counts, overview.plan.graph) / minute[spout.id].for_s
        for spout in overview.plan.graph.spouts
        if spout.id in minute and minute[spout.id].for_s
    ]
    lags = [source.lag for source in snapshot.progress.sources] if snapshot.progress else []
    known = [lag for lag in lags if lag is not None]
    return {
        "topology": name,
        "state": snapshot.state,
        "marks": marks_of_state(overview),
        "rate": sum(rates) if rates else None,
        "lag": sum(known) if known else None,
        "limit": snapshot.progress.limit.text if snapshot.progress else None,
        "up_s": now_s - overview.since_s,
        "workers": len(overview.plan.workers),
        "tasks": len(overview.plan.tasks),
        "acked": sum(counts.acked for counts in spouts),
        "failed": sum(counts.failed for counts in spouts),
        "restarts": snapshot.restarts,
    }


_STALLED_S = 50.0


def marks_of_state(overview: Overview) -> list[str]:
    """What is to be said beside the state of a topology."""
    snapshot, graph = overview.snapshot, overview.plan.graph
    minute = [snapshot.windows.get("1m", {}).get(spout.id) for spout in graph.spouts]
    counts = [activity.counts for activity in minute if activity and activity.for_s >= _STALLED_S]
    is_stalled = (
        snapshot.state == "active"
        and any(count.pending for count in counts)
        and not any(count.acked for count in counts)
    )
    falls_behind = snapshot.progress is not None and any(
        source.falls_behind for source in snapshot.progress.sources
    )
    return (
        ["degraded"] * bool(snapshot.degraded)
        + ["waiting"] * bool(snapshot.waiting())
        + ["nothing completed for a minute"] * is_stalled
        + ["falls behind"] * falls_behind
    )


def why_silent(error: SunshowerError) -> str:
    """Say in place of a state why a topology gave no overview; it may just have been removed."""
    return "of another release" if isinstance(error, VersionMismatch) else "does not answer"


def topology_facts(overview: Overview, up_s: float, window: str | None = None) -> dict[str, Any]:
    """Everything about a topology but its single tasks; durations in seconds, None: unknown. Of the
    windows of time only the one that is named, or the whole time while it is not known yet."""
    snapshot, graph = overview.snapshot, overview.plan.graph
    windows = (window, ALL) if window in NAMES else ()
    fields = status_fields(overview, up_s, tasks=False, windows=windows)
    for component in graph.components.values():
        facts = fields["components"][component.id]
        known = facts.pop("windows")
        facts |= _component(component, snapshot)
        facts["window"] = known.get(window, known[ALL]) if windows else None
    return {
        **fields,
        "marks": marks_of_state(overview),
        "layout": overview.plan.layout.value,
        "tracked": graph.config.tracked,
        "dead_letters": bool(overview.letters),
        "quarantined": [_error(error) for error in snapshot.degraded.values()],
        "edges": [asdict(edge) for edge in overview.edges],
        "history": _history(overview),
    }


def _history(overview: Overview) -> dict[str, Any]:
    """The last hour of the whole topology: rates a second, and the lag; None: not known."""
    history, graph = overview.snapshot.history, overview.plan.graph
    if history is None:
        return {"ago_s": [], "done": [], "failed": [], "replayed": [], "lag": []}
    spouts = [spout.id for spout in graph.spouts]
    return {
        "ago_s": [round(ago_s, 1) for ago_s in history.ago_s.tolist()],
        "done": history.series(spouts, "acked" if graph.config.tracked else "emitted"),
        "failed": history.series(spouts, "failed"),
        "replayed": history.series(spouts, "replayed"),
        "lag": history.series(history.components, "lag"),
    }


def component_facts(overview: Overview, component: str, up_s: float) -> dict[str, Any]:
    """The tasks of a component, its windows of time, and its last errors with tracebacks, the
    newest first. Raises ClusterError if the topology has no such component."""
    snapshot = overview.snapshot
    tasks = known_component(overview.plan.graph, component).parallelism
    stats = {task.task: task for task in snapshot.tasks_of(component)}
    errors = [error for error in snapshot.degraded.values() if error.component == component]
    errors += [error for stat in stats.values() for error in stat.health.last[::-1]]
    return {
        "component": component,
        "windows": component_numbers(snapshot, component, tasks, up_s)["windows"],
        "tasks": [
            {"task": task.index, "worker": task.worker, **_task(stats.get(task.id))}
            | {"quarantined": task.id in snapshot.degraded}
            for task in overview.plan.tasks_of(component)
        ],
        "errors": [_error(error) for error in dict.fromkeys(errors)][:_ERRORS_MAX],
    }


def _component(component: Component, snapshot: Snapshot) -> dict[str, Any]:
    tasks = snapshot.tasks_of(component.id)
    return {
        "kind": "spout" if component.level.is_spout else "bolt",
        "level": component.level.value,
        "queued": sum(task.queued for task in tasks),
        "queue_s": max((task.queue_s for task in tasks), default=0.0),
        "errors": sum(task.health.errors for task in tasks),
    }


def _task(stats: TaskStats | None) -> dict[str, Any]:
    if stats is None:
        return {"standing": None}  # its worker has not reported yet
    return {**task_numbers(stats), "waits": stats.health.wait is not None}


def _error(error: TaskError) -> dict[str, Any]:
    return {
        "component": error.component,
        "task": error.index,
        "worker": error.worker,
        "error": task_error_text(error),
        "traceback": error.traceback,
    }


def consequences(overview: Overview, action: str, workers: int | None) -> list[str]:
    """What an action will do to a topology, in sentences. `workers`: for `rebalance`. Raises
    ConfigError for another action."""
    graph, snapshot, plan = overview.plan.graph, overview.snapshot, overview.plan
    pending = sum(snapshot.component(spout.id).pending for spout in graph.spouts)
    longest_s = max((graph.config_of(spout).message_timeout_s for spout in graph.spouts), default=0)
    declared = [task for task in plan.tasks if task.component in graph.components]
    tasks, before = number_of(len(declared), "task"), len(plan.workers)
    wait = (
        f"Its spouts emit nothing new until the {number_of(pending, 'open tuple')} "
        f"{'is' if pending == 1 else 'are'} complete, for at most {elapsed(longest_s)}."
        if pending
        else "Its spouts emit nothing new meanwhile; no tuple is open now."
    )
    held = [id for id in graph.components if any(t.entries for t in snapshot.tasks_of(id))]
    state = f" ({', '.join(held)})" if held else ""
    match action:
        case "rebalance":
            to = number_of(workers or before, "worker")
            moves = (
                "States move with their tasks. If one cannot, nothing changes, and you see which."
            )
            return [
                f"Its {tasks} are distributed over {to}; now they are on {before}.",
                f"{wait} Those that are open then are emitted again.",
                moves,
            ]
        case "drain":
            return [wait, f"Then its {tasks} are closed, and the run ends."]
        case "kill":
            ended = (
                f"Then its {tasks} on {number_of(before, 'worker')} are closed, and the topology"
            )
            lost = f"What its tasks have in memory{state} is lost; states in stores stay."
            return [
                wait,
                f"{ended} is removed, with its counters, its log and its recorded trees.",
                f"{lost} `sunshower kill {graph.id} --keep FILE` keeps it for a later run.",
            ]
        case "activate" | "deactivate":
            return []
        case _:
            names = "activate, deactivate, rebalance, drain, kill"
            raise ConfigError(f"there is no action {clip(action, 40)!r}; there are: {names}")


def _whole_number(name: str, text: str, least: int) -> int:
    """The number of a parameter. Raises ConfigError."""
    if not (len(text) <= _DIGITS_MAX and text.isdecimal()) or int(text) < least:
        raise ConfigError(f"{name} is a number from {least} up, and not {clip(text, 40)!r}")
    return int(text)


# ---- source --------------------------------------------------------------------------------------


class FreshOverviews:
    """Calls `look` at most twice a second for each topology, however many pages are open. Returns
    the overview, and when it was taken, in Unix time."""

    def __init__(self, look: Look, clock: Callable[[], float] = time.time) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._found: dict[str, tuple[Overview, float]] = {}

    def __call__(self, name: str) -> tuple[Overview, float]:
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            now_s = self._clock()
            last = self._found.pop(name, None)
            if last is None or abs(now_s - last[1]) >= _FRESH_S:
                last = self._look(name), now_s
            self._found[name] = last
            return last

    def forget(self, name: str) -> None:
        """Ask again at the next call."""
        with self._lock:
            self._found.pop(name, None)


class TopologySource:
    """The facts of topologies whose overviews `look` returns; nothing can be done to them.

    Called on several threads. Each method raises ClusterError for a name that is not there, and for
    a topology that does not answer.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        look: Look,
        clock: Callable[[], float] = time.time,
        kafka: Mapping[str, Any] | None = None,
    ) -> None:
        """`clock`: Unix time, in seconds. `kafka`: settings of the client that reads topics with
        dead letters, added to those of a topology."""
        self._names, self._clock = names, clock
        self._look = FreshOverviews(look, clock)
        self.is_frozen = False  # the topologies have ended
        self._shown = ""  # the topology of the last page
        self._kafka = kafka or {}
        self._profiles: dict[str, tuple[Facts, str]] = {}  # the last one of each topology
        self._replays = ReplaysByTopology(clock)
        self._reads = threading.Lock()  # files and topics are read by one request at a time

    def freeze(self, overviews: Mapping[str, Overview]) -> None:
        """Show these from now on, as of now: the topologies have ended. A name that is not there
        has no overview."""
        at_s = self._clock()

        def look(name: str) -> Overview:
            if name not in overviews:
                raise ClusterError(f"{name!r} ended before it could be asked")
            return overviews[name]

        self._look, self.is_frozen = FreshOverviews(look, lambda: at_s), True

    def look_ahead(self) -> None:
        """Look, on a thread, at what a page that is opened now will show: the only topology, or the
        one that was shown last. It is there when the page has loaded, and asks."""

        def look() -> None:
            with suppress(Exception):  # the page asks again, and shows it
                names = [*self._names()]
                if len(names) == 1 or self._shown in names:
                    self._look(names[0] if len(names) == 1 else self._shown)

        threading.Thread(target=look, daemon=True).start()

    def topologies(self) -> list[Facts]:
        """A summary of each topology, sorted by name."""
        return [
            {"topology": name, "state": why_silent(answer)}
            if isinstance(answer, SunshowerError)
            else summary_facts(name, *answer)
            for name, answer in ask_all(self._names(), self._look)
        ]

    def topology(self, name: str, window: str | None = None) -> Facts:
        """Everything about a topology but its single tasks; what its components did in this window
        of time, of those of `sunshower status`."""
        overview, at_s = self._look(name)
        self._shown = name
        facts = topology_facts(overview, at_s - overview.since_s, window)
        for worker in facts["workers"]:
            worker["tasks"] = len(worker["tasks"])  # not thousands of names
        return facts

    def component(self, name: str, component: str) -> Facts:
        """The tasks, the last errors and all windows of time of a component."""
        overview, at_s = self._look(name)
        return component_facts(overview, component, at_s - overview.since_s)

    def traces(self, name: str) -> Facts:
        """Lists of recorded tuple trees, without their edges."""
        plan = self._look(name)[0].plan  # fails soon without its master
        recorded = self._recorded(name, None)
        if list(recorded.silent) == plan.workers:
            raise ClusterError(
                f"no worker of {name!r} answers, so its recorded trees are not known; try again, "
                f"or see `sunshower status {name}`"
            )
        return listed_trees(plan, recorded)

    def trace(self, name: str, root: str) -> Facts:
        """One recorded tuple tree. Raises ConfigError for what is not a root."""
        self._look(name)
        recorded = self._recorded(name, root)
        if not recorded.trees:
            raise ClusterError(". ".join([str(no_such_tree(name, root)), *missing(recorded)]))
        return traces_fields(recorded, recorded.trees)

    def _recorded(self, name: str, root: str | None) -> Traces:
        """What the workers of a topology have recorded."""
        return NO_TRACES

    def letters(self, name: str, chosen: Mapping[str, str]) -> Facts:
        """The newest of the dead letters that satisfy each condition of `chosen`, which may have
        `component`, `cause`, `text`, and `since` and `until` in Unix time. Raises SourceError and
        KafkaError for places that cannot be read, ConfigError for a condition that is not valid."""
        return list_facts(self._read(name), chosen)

    def letter(self, name: str, letter: str) -> Facts:
        """All of the dead letter with this id."""
        return letter_facts(find_letter(self._read(name), letter))

    def replay(self, name: str, chosen: Mapping[str, str]) -> str:
        """Begin to replay the dead letters that `letters` finds, without those that were replayed
        before, or the one whose id is `letter`; returns a sentence about it."""
        read = self._read(name)
        if "letter" in chosen:
            letters = [find_letter(read, chosen["letter"])]
        else:
            letters = not_replayed(selection_of(chosen).of(read.letters))
        if not letters:
            return "there is nothing to replay: all of these letters were replayed before"
        self._replays.start(name, letters, self._ask(name))
        number = f"{len(letters):,} dead letter{'s are' if len(letters) > 1 else ' is'}"
        return f"{number} being replayed"

    def replay_progress(self, name: str) -> Facts:
        """How far the last replay is; `total` is 0 if there was none."""
        return self._replays.progress(name)

    def _read(self, name: str) -> ReadLetters:
        stores = self._look(name)[0].letters
        with self._reads:
            return read_stores(stores, self._kafka)

    def _ask(self, name: str) -> Ask:
        """What replays one letter."""
        raise ClusterError(f"nothing can be done to {name!r} here")

    def logs(self, name: str, component: str = "", after: str = "0") -> Facts:
        """The lines of the log with a number above `after`, of a component or of all."""
        shown = [component] if component else []
        lines, last = new_lines(self._run(name), shown, _whole_number("after", after, 0))
        return {"lines": [asdict(line) for line in lines], "last": last}

    def code(self, name: str, component: str) -> Facts:
        """The functions and classes of the program that a component runs."""
        return {"parts": [asdict(part) for part in self._run(name).code_parts(component)]}

    def state(self, name: str, component: str, key: str = "") -> Facts:
        """The value of a key in the state of a component, or some keys with their values, as JSON.
        `key`: a text, or JSON; an array is a key of several fields."""
        items = stored_entries(self._run(name), component, _fields_of(key), _KEYS_MAX)
        return {"entries": [{"key": _value(each), "value": _value(value)} for each, value in items]}

    def what_happens(self, name: str, action: str, workers: str = "") -> Facts:
        """Sentences about what an action will do; see `consequences`."""
        number = _whole_number("workers", workers, 1) if workers else None
        return {"lines": consequences(self._look(name)[0], action, number)}

    def profile(self, name: str, component: str | None, seconds: float) -> str:
        """Record the workers of a topology, or those of a component, for some seconds; returns a
        sentence about it."""
        raise ClusterError(f"{self._run(name).topology!r} cannot be profiled here")

    def profiled(self, name: str) -> Facts:
        """Where the time went in the last profile."""
        return self._last_profile(name)[0]

    def flame_graph(self, name: str) -> str:
        """The last profile as an SVG file."""
        return self._last_profile(name)[1]

    def _last_profile(self, name: str) -> tuple[Facts, str]:
        if name not in self._profiles:
            raise ClusterError(f"nothing was recorded of {name!r} since this server started")
        return self._profiles[name]

    def _run(self, name: str) -> Run:
        """What answers for a topology."""
        raise ClusterError(f"{name!r} runs in the process of its command: ask there, or on Ray")

    def actions(self) -> list[str]:
        """The names of the actions that `act` takes."""
        return []

    def act(self, name: str, action: str, workers: int | None) -> str:
        """Do something to a topology; returns a sentence about it. `workers`: for `rebalance`."""
        raise ClusterError(f"nothing can be done to {name!r} here")


class RaySource(TopologySource):
    """Topologies on Ray. `end`: what ends one: `kill`, or `drain` where `sunshower run` waits for
    its end. `record`: as `recorded_profile`."""

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        find: Callable[[str], RayRun],
        end: str,
        record: Record,
        kafka: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(names, lambda name: find(name).overview(ANSWER_WITHIN_S), kafka=kafka)
        self._find, self._end, self._record = find, end, record

    def _recorded(self, name: str, root: str | None) -> Traces:
        return NO_TRACES if self.is_frozen else self._find(name).traces(root)

    def _ask(self, name: str) -> Ask:
        return super()._ask(name) if self.is_frozen else ask_of(self._find(name))

    def _run(self, name: str) -> Run:
        if self.is_frozen:
            raise ClusterError(f"{name!r} has ended, and its processes with it")
        return self._find(name)

    def profile(self, name: str, component: str | None, seconds: float) -> str:
        self._run(name)  # it has not ended
        facts, graph = self._record(self._find(name), component, seconds)
        self._profiles[name] = {**facts, "at_s": self._clock()}, graph
        return str(facts["title"])

    def actions(self) -> list[str]:
        return [] if self.is_frozen else ["activate", "deactivate", "rebalance", self._end]

    def act(self, name: str, action: str, workers: int | None) -> str:
        if self.is_frozen:
            return super().act(name, action, workers)
        run = self._find(name)
        try:
            match action:
                case "activate":
                    run.activate()
                    return f"{name} is active"
                case "deactivate":
                    run.deactivate()
                    return f"{name} is inactive"
                case "rebalance":
                    run.rebalance(workers, waits=False)
                    return f"{name} is being rebalanced"
                case "drain":
                    run.drain()
                    return f"{name} finishes what is pending, and ends"
                case "kill":
                    report = run.kill()
                    return f"{name} is gone; {number_of(report.unsettled, 'record')} still pending"
                case _:
                    return super().act(name, action, workers)
        finally:
            self._look.forget(name)
