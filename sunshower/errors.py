"""The exceptions of sunshower, as one tree under SunshowerError: `help()` of this module draws it.

Each message says what failed, where, and what to do. Errors with a second base Unavailable say that
a dependency is away, for which tasks wait.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

_PACKAGE = __file__.removesuffix("errors.py")
_LINES_MAX = 15  # of an error in a notebook


class SunshowerError(Exception):
    """Root of the tree: catch this to catch every error that sunshower raises."""

    _in_notebooks: tuple[str, ...] = ()  # lines below the message there

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of all frames: the line of the user's code that has called
        Sunshower, and the message. At most 15 lines."""
        where: list[str] = []
        for frame in traceback.extract_tb(self.__traceback__):
            if frame.filename.startswith(_PACKAGE):
                break
            is_cell = "ipykernel" in frame.filename or frame.filename.startswith("<ipython")
            place = "the cell" if is_cell else f'File "{frame.filename}"'
            where = [f"{place}, line {frame.lineno}:", f"    {frame.line}"]
        text = f"{type(self).__name__}: {self}".splitlines()
        lines = [*where, *text, *self._in_notebooks]
        if len(lines) > _LINES_MAX:
            lines[_LINES_MAX // 2 : _LINES_MAX // 2 + len(lines) - _LINES_MAX + 1] = ["…"]
        return lines


class Unavailable(SunshowerError):
    """A dependency (a database, a store, a broker, Spark) cannot be used at the moment.

    Raise it, or inherit from it beside another error, if waiting helps. The task that raises it
    pauses and tries again; no tuple and no batch is charged an attempt. See outages.py.
    """


class TopologyError(SunshowerError):
    """The declaration is wrong; raised where it is declared, before anything runs."""


class UnknownComponent(TopologyError):
    """An id that the topology does not have."""


class UnknownStream(TopologyError):
    """A stream that its component does not declare."""


class UnknownField(TopologyError):
    """A field that its stream does not have."""


class UnknownOperator(TopologyError, AttributeError):
    """An operator or attribute of a stream that is not there behind its grouping."""


class DuplicateComponent(TopologyError):
    """An id declared twice, or one that is reserved for the system."""

    _in_notebooks = ("If this cell ran before: run the cell of the Topology first, to begin anew.",)


class RecordMismatch(TopologyError):
    """A record type that does not fit the stream it is read from or sent to."""


class ConfigError(SunshowerError):
    """A setting out of range, or two settings that contradict each other."""


class ProtocolError(SunshowerError):
    """User code called the runtime in a contradictory way."""


class AlreadySettled(ProtocolError):
    """A second ack or fail of one tuple, or an emit anchored to a settled one."""


class BadEmit(ProtocolError):
    """An emit of a record that does not fit, or to a stream or task that is not there."""


class WireError(SunshowerError):
    """Bytes that cannot be encoded or decoded."""


class Unserialisable(WireError):
    """A record that MessagePack or Arrow cannot encode for another process."""


class CorruptPacket(WireError):
    """A packet whose checksum or shape is wrong."""


class SourceError(SunshowerError):
    """An input file that is missing, unreadable or cannot be decoded."""


class UnreadableRecord(SunshowerError, ValueError):
    """A message, or a part of an input, that is no record of the type that its source reads."""


class ProjectError(SunshowerError):
    """A project that `sunshower new` cannot make."""


class LoadError(SunshowerError):
    """A topology file that cannot be found, imported or understood."""


class ClusterError(SunshowerError):
    """Ray, or a worker on it, could not do what was requested."""


class CodeNotLoaded(ClusterError):
    """The code of a topology does not load on a node, because a module is missing there."""


class LifecycleError(ClusterError):
    """A topology cannot do that in its current state; the message says what it can do."""


class RequestError(SunshowerError):
    """A request has no answer."""


class RequestFailed(RequestError):
    """The tuple tree of a request failed; the message says why, and in which component."""


class RequestRefused(RequestError):
    """A request was not emitted: it does not fit its stream, or too many are pending."""


class RequestTimeout(RequestError):
    """A request was not answered within `timeout_s`; the message says how far it was."""


class ExperimentError(SunshowerError):
    """An experiment, a fault or an event log that is not valid."""


class VersionMismatch(SunshowerError):
    """A process, or stored data, of another release; the message names both versions."""


class StoreError(SunshowerError):
    """A store cannot do what was requested. `of_value`: because of a value or a row; it may store
    others."""

    def __init__(self, *arguments: object, of_value: bool = False) -> None:
        super().__init__(*arguments)
        self.of_value = of_value


class NodeExists(StoreError):
    """A node that was to be created exists already."""


class NoNode(StoreError):
    """A node that does not exist."""


class WrongVersion(StoreError):
    """A node that another client has changed since it was read."""


class StoreUnreachable(StoreError, Unavailable):
    """A store that does not answer, or that refuses what every record needs."""


class StoreForbidden(StoreError, Unavailable):
    """A store that rejects the name, password or certificate, or the place where everything is to
    be written. No record has caused that."""


class StateLost(StoreError, Unavailable):
    """A store that has lost values of a state: evicted, expired or removed. The task waits until
    they are there again; otherwise it would begin at the initial values."""


class BatchError(SunshowerError):
    """A batch, or its stored data, is not valid."""


class FailedBatch(BatchError):
    """User code fails a batch: all of it is tried again. Storm: FailedException."""


class ReportedFailedBatch(FailedBatch):
    """The same, and the topology shows it among its errors. Storm: ReportedFailedException."""


class StaleAttempt(BatchError):
    """A later attempt, or a later coordinator, has written already; nothing of this one is kept."""


class IncompleteBatch(BatchError):
    """A batch cannot be emitted, because some of it is gone or cannot be read. `rows`: what is
    left, if known; they are put aside if the batch is skipped."""

    rows: Sequence[Any] = ()


class StateMismatch(BatchError):
    """The stored data are of another topology, of another kind of state, or corrupt."""


class ServerError(SunshowerError):
    """A development server cannot be started or stopped."""


class Unobtainable(ServerError):
    """A part of a server (its jars, Java, a package) is missing and cannot be downloaded."""


class KafkaError(SunshowerError):
    """Kafka, or another consumer of its partitions, refused something; waiting does not help."""


class UnknownTopic(KafkaError):
    """A topic or partition that does not exist."""


class NotAuthorised(KafkaError, Unavailable):
    """A credential that Kafka rejects, or a missing right; no message is to blame for that."""


class KafkaUnreachable(KafkaError, Unavailable):
    """No broker answers, or it refuses what every message needs; the message names the address."""


class StaleGeneration(KafkaError):
    """A commit for partitions that were reassigned; nothing of it is kept."""


class BadOffset(KafkaError):
    """A stored offset that is not valid, or missing where one is required; the message says where
    it is stored, or which partition it is of."""


class HttpError(SunshowerError):
    """An HTTP server refused something; the message names its address."""


class HttpUnavailable(HttpError, Unavailable):
    """A server that does not answer, or answers 408, 425, 429 or 5xx. `retry_after_s`: in how many
    seconds it wants the next request."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class HttpRefused(HttpError):
    """A request that a server refuses: sent again, it would be refused again."""


class SparkError(SunshowerError):
    """Spark, or a job that it was given, failed."""


class SparkUnavailable(SparkError, Unavailable):
    """There is no session, or not yet (processors or memory are missing); or a disk is full."""


class SparkMissing(SparkError):
    """Java, a package or jars are missing; waiting does not help."""


class SparkLost(SparkError):
    """The session ended during a job, through no fault of the job: submit it again."""


class SparkTimeout(SparkError):
    """A job exceeded its timeout, and was stopped."""


class RangeGone(SparkError):
    """Kafka records that Spark was to read no longer exist; the message names them."""


class TransformFailed(SparkError):
    """The user's transform raised; the message has its Python traceback, and no Java stack."""


class WriteFailed(SparkError):
    """The result of a transform could not be written to its target: the place, or its rights. A
    full disk is SparkUnavailable."""


class ResultMismatch(SparkError):
    """The result of a transform differs from its declaration; the message names the field."""


class InjectedError(SunshowerError):
    """The error that an injected fault raises instead of user code."""


class InjectedOutage(InjectedError, Unavailable):
    """The error of the fault `away`: the dependency of a component is away."""


class TopologyFailed(SunshowerError):
    """A running topology has failed; the message says which tuple or task, where and why."""


# ---- errors of user code ------------------------------------------------------------------------

Handler: TypeAlias = Callable[[int, FrameType | None], Any]  # of a signal


class EndsProcess(BaseException):
    """Ends the process that runs user code, as SIGKILL would: no error of user code."""


class _Signals:
    """The signals of this process, all of which its main thread handles."""

    has_raised = False  # a handler has: the process, or what it runs, is to end


def type_name(kind: type[Any]) -> str:
    """The name of a type for messages: with its module, unless it is built in. Python 3.13 has some
    types in private modules of a package (`pathlib._local`), which are left out."""
    module = kind.__module__.partition("._")[0]
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def user_errors() -> tuple[type[BaseException], ...]:
    """The types for an `except` clause around user code, which may raise anything:
    `asyncio.CancelledError`, the PanicException of an extension in Rust, `sys.exit()`.

    After a signal such as Ctrl-C only an Exception is an error of user code; an EndsProcess never
    is. To be called in the `except` clause itself, where the exception is known. Not for a block
    with a `yield`, at which GeneratorExit is raised when the generator is closed.
    """
    if isinstance(sys.exception(), EndsProcess):
        return ()
    return (Exception,) if _Signals.has_raised else (BaseException,)


def is_user_error(error: BaseException) -> bool:
    """Whether `user_errors` would catch an exception, which is raised by user code."""
    if isinstance(error, EndsProcess):
        return False
    return isinstance(error, Exception) or not _Signals.has_raised


@contextmanager
def user_errors_suppressed() -> Iterator[None]:
    """Ignore the errors of user code."""
    try:
        yield
    except user_errors():
        pass


def noting(handler: Handler) -> Handler:
    """A signal handler that calls `handler`, and notes if it raises: what it raises passes through
    all user code that it interrupts, until `forget_signals`."""

    def note(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException:
            _Signals.has_raised = True
            raise

    return note


def forget_signals() -> None:
    """What a handler raised has done its work: from now on user code raises errors only."""
    _Signals.has_raised = False


@contextmanager
def interruptible() -> Iterator[None]:
    """While entered, Ctrl-C ends what runs here, as the present handler has it, even in the middle
    of user code. A KeyboardInterrupt that user code raises itself is an error of user code."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    note = noting(handler)
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        forget_signals()
        if signal.getsignal(signal.SIGINT) is note:  # else user code has set another
            signal.signal(signal.SIGINT, handler)
