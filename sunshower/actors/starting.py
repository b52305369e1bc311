"""Starts a local Ray, or connects to a running one."""

from __future__ import annotations

import inspect
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import ray

from sunshower.actors.names import CALL_S, NAMESPACE
from sunshower.config import LOCAL_RAY
from sunshower.errors import ClusterError, SunshowerError, TopologyFailed

if TYPE_CHECKING:
    from sunshower.runtime.control import events

_LOOPBACK = "127."
_ANSWER_S = 5.0
# What a client of HTTP/2 sends first, with an empty SETTINGS frame; a server sends one, too.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME_BYTES = 9  # of its header
_SETTINGS = 4  # the fourth byte of such a frame
# Settings of the whole cluster, which only its head can be started with.
SYSTEM_CONFIG: dict[str, int] = {
    "timeout_ms_task_wait_for_death_info": 50,  # a death is known in 0.5 s, not 1.4 s
    "max_direct_call_object_size": 4 << 20,  # states of tasks are sent in the call itself
    "task_events_report_interval_ms": 0,  # not read; saves 15 % of each call
    "gcs_rpc_server_reconnect_timeout_s": 5,  # if Ray is killed, do not hang 60 s
    "worker_niceness": 0,  # worker.py adds less than Ray's 15 to this
}
# Those of a Ray on this machine that Sunshower starts.
LOCAL_OPTIONS: dict[str, Any] = {
    "include_dashboard": False,
    "object_store_memory": 256 << 20,
    "_system_config": SYSTEM_CONFIG,
}
# In its temporary folder a local Ray makes sockets, whose paths the kernel limits.
_SOCKET = "/ray/session_2026-01-02_03-04-05_000006_1234567/sockets/plasma_store"
_SOCKET_BYTES = 107
_PROBE_BYTES = 1 << 20
_TEMPORARY = "/tmp"  # noqa: S108 (Ray's default)
# A head that can be restarted, with its tables in Redis, needs a longer one.
_RECONNECT = "gcs_rpc_server_reconnect_timeout_s"
_log = logging.getLogger(__name__)
_watches: list[subprocess.Popen[bytes]] = []  # of the local Ray that was started last


def start_ray(address: str | None, quiet: bool, working_dir: Path | None = None) -> None:
    """Start a local Ray, or connect to the one at `address`. Raises ClusterError.

    The files of `working_dir` are in the working directory of all processes that are started from
    here, on all nodes. A Ctrl-C during the start of a local Ray is handled when it has started.
    """
    set_ray_variables()
    _print_notices_apart()
    if address:
        _check_is_ray(address)
        os.environ.pop(LOCAL_RAY, None)
    else:
        _check_temporary_folder()
        os.environ[LOCAL_RAY] = "1"  # Ray's processes inherit it
    try:
        with nullcontext() if address else _interrupt_at_the_end():
            ray.init(
                address=address or "local",
                namespace=NAMESPACE,
                log_to_driver=not quiet,
                logging_level=logging.ERROR,
                runtime_env={"working_dir": str(working_dir)} if working_dir else None,
                **({} if address else LOCAL_OPTIONS),
            )
        if not address:
            _end_agents_with_this_process()
    except Exception as error:
        if address:
            raise ClusterError(
                f"no Ray cluster answers at {address!r}. Start one with `ray start --head`, or "
                "name one with --address HOST:PORT or RAY_ADDRESS. If it requires a token, set "
                f"RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH. Ray's error: {first_line(error)}"
            ) from error
        raise ClusterError(
            f"cannot start a local Ray: {first_line(error)}. "
            "`sunshower doctor` shows what this machine lacks"
        ) from error


def set_ray_variables() -> None:
    """Set variables for the processes of Ray that are started from here, unless the user has."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # two equal lines of a sink are two lines


def _kill_at_end_of_input(fds: set[int]) -> None:
    """Kill the processes behind these file descriptors when the standard input ends; return then,
    or when all of them have ended."""
    while fds:
        ready = select.select([0, *fds], [], [])[0]
        for fd in fds if 0 in ready else ():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        fds.difference_update(fds if 0 in ready else ready)


def _end_agents_with_this_process() -> None:
    """Start a process that kills the agents of the local Ray when this process has been killed.

    The kernel kills what `ray.init` has started, such as the raylet. The raylet's agents notice
    that after two seconds, and then try for a minute to report it to the head, which is gone.
    """
    from ray._private.worker import _global_node  # no public API: see the pin of ray

    raylets = _global_node.all_processes.get("raylet", ()) if _global_node else ()
    fds = []
    for raylet in raylets if hasattr(os, "pidfd_open") else ():
        for thread in Path(f"/proc/{raylet.process.pid}/task").glob("*/children"):
            with suppress(OSError):  # the thread, or the agent, has just ended
                fds += [os.pidfd_open(int(agent)) for agent in thread.read_text().split()]
    if not fds:
        return
    watch_code = "\n".join(
        [
            "import select, signal",
            "from contextlib import suppress",
            inspect.getsource(_kill_at_end_of_input),
            f"{_kill_at_end_of_input.__name__}({ {*fds} })",
        ]
    )
    watch = subprocess.Popen(  # noqa: S603 (this interpreter)
        [sys.executable, "-I", "-S", "-c", watch_code],
        stdin=subprocess.PIPE,  # the end of this process closes it
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        pass_fds=fds,
        start_new_session=True,  # the signals of a terminal do not reach it
    )
    for fd in fds:
        os.close(fd)
    _watches[:] = [watch]


def _check_is_ray(address: str) -> None:
    """Raise ClusterError if another program listens at that address: Ray would try for minutes. Its
    head speaks gRPC, which is HTTP/2."""
    host_and_port = (address_here() or "") if address == "auto" else address
    host, colon, port = host_and_port.rpartition(":")
    if not colon or not port.isdigit() or os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return
    received = b""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S) as connection:
            connection.settimeout(_ANSWER_S)
            connection.sendall(_PREFACE)
            while len(received) < _FRAME_BYTES and (part := connection.recv(_FRAME_BYTES)):
                received += part
    except ConnectionRefusedError:
        return  # the error of Ray says that
    except OSError:
        pass  # it does not answer, or has ended the connection
    if received[3:4] != bytes([_SETTINGS]):
        raise ClusterError(
            f"what listens at {host_and_port} is not the head of a Ray cluster: it does not answer "
            "as one. Give the address that `ray start --head` prints, by default port 6379, with "
            "--address HOST:PORT or RAY_ADDRESS"
        )


def _check_temporary_folder() -> None:
    """Raise ClusterError if the temporary folder of a local Ray cannot be used. Where it is:
    ray._common.utils.get_default_system_temp_dir."""
    name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    folder = os.environ.get(name, _TEMPORARY)
    example = "/var/tmp" if folder.rstrip("/") == _TEMPORARY else _TEMPORARY  # noqa: S108
    remedy = f"Set {name} to a folder that you may write to, such as {name}={example}"
    if not os.path.isabs(folder):
        raise ClusterError(f"{name} is {folder!r}, which is not an absolute path. {remedy}")
    if (excess := len(os.fsencode(folder.rstrip("/") + _SOCKET)) - _SOCKET_BYTES) > 0:
        raise ClusterError(
            f"{name} is {folder!r}, and Ray's sockets in it would have paths that are {excess} "
            f"bytes longer than the {_SOCKET_BYTES} that are possible. Set {name} to a folder with "
            f"a shorter path, such as {name}={example}"
        )
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        why = error.strerror or str(error)
        raise ClusterError(
            f"Ray cannot write its files in the temporary folder {folder!r} ({why}). {remedy}, or "
            "make room there"
        ) from error


@contextmanager
def _interrupt_at_the_end() -> Iterator[None]:
    """Call the handler of Ctrl-C at the end for a first one: a KeyboardInterrupt that interrupts
    the start of Ray's core ends this process with a segmentation fault. For a second one it is
    called at once."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        interrupts.append(number)
        signal.signal(signal.SIGINT, handler)

    signal.signal(signal.SIGINT, note)
    # Ray's processes inherit this: so a run can drain after its terminal is closed.
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.signal(signal.SIGHUP, hangup)
    if interrupts:
        try:
            handler(signal.SIGINT, None)
        except BaseException:
            ray.shutdown()
            raise


def address_here() -> str | None:
    """The address that Ray takes for `auto`: of the Ray on this machine, or of the last one that
    was started here, which may be gone. None if there is none, or if this process has a Ray."""
    from ray._private import services  # no public API: see the pin of ray

    if ray.is_initialized():
        return None
    try:
        address: str = services.get_ray_address_from_environment("auto", None)
    except ConnectionError:
        return None
    return address


@cache
def _print_notices_apart() -> None:
    """Make Ray print its own notices to the standard error: the standard output has what sinks
    print, or the JSON of a command."""
    from ray._private import worker  # no public API: see the pin of ray

    print_lines = worker.print_to_stdstream

    def print_apart(lines: dict[str, Any], ignore_prefix: bool) -> None:
        notice = lines["pid"] == "raylet"
        print_lines({**lines, "is_err": True} if notice else lines, ignore_prefix)

    worker.print_to_stdstream = print_apart


@contextmanager
def without_news() -> Iterator[None]:
    """Keep Ray from printing messages about dead workers, which sunshower reports itself.

    Enter it before Ray starts, and leave it after Ray ends: Ray prints until its end.
    """
    from ray._private import worker as printing  # no public API: see the pin of ray

    before, printing._worker_logs_enabled = printing._worker_logs_enabled, False
    try:
        yield
    finally:
        printing._worker_logs_enabled = before


def warn_of_other_settings() -> None:
    """Log a warning if the cluster was started without the settings that Sunshower is tuned for."""
    from ray._private.state import state  # no public API: see the pin of ray

    running = state.get_system_config()
    if any(
        running.get(name) != wanted for name, wanted in SYSTEM_CONFIG.items() if name != _RECONNECT
    ):
        _log.warning(
            "this Ray cluster has other settings than Sunshower is tuned for: it works, but "
            "notices deaths later and sends large packets more slowly. Start its head with: "
            "ray start --head --system-config='%s'",
            json.dumps(SYSTEM_CONFIG),
        )


def check_joined(address: str) -> None:
    """Raise ClusterError if the Ray that this process has is not the one at `address`."""
    here = ray.get_runtime_context().gcs_address
    host, colon, port = address.rpartition(":")
    if not colon:
        return  # "auto" and similar
    here_host, _, here_port = here.rpartition(":")
    ip = _ip(host)
    if port != here_port or not (ip == _ip(here_host) or ip.startswith(_LOOPBACK)):
        raise ClusterError(
            f"this process has a Ray already, at {here}, and cannot have the one at {address} as "
            "well: leave out the address to use that one, or call ray.shutdown() first"
        )


def _ip(host: str) -> str:
    """The IP address of a machine; its name if that cannot be resolved."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def first_line(error: BaseException) -> str:
    """Type and first line of an exception; Ray's messages include a stack."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"


def cause_of(error: ray.exceptions.RayError) -> object:
    """The exception that a call has raised, or the constructor of the called actor."""
    if isinstance(error, ray.exceptions.ActorDiedError):
        error = error.args[0]
    return error.cause if isinstance(error, ray.exceptions.RayTaskError) else None


def call(topology: str, method: Any, *args: Any, within_s: float = CALL_S) -> Any:
    """Call a method of an actor of a topology. Raises what of Sunshower it raises, TopologyFailed
    for other errors, and ClusterError if there is no answer within that time."""
    try:
        return ray.get(method.remote(*args), timeout=within_s)
    except ray.exceptions.RayError as error:
        if isinstance(cause := cause_of(error), SunshowerError):
            raise cause from None
        raise _failed_call(topology, error) from error


def _failed_call(topology: str, error: ray.exceptions.RayError) -> SunshowerError:
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause
        return TopologyFailed(
            f"topology {topology!r} was asked something and user code raised "
            f"{type(cause).__name__}: {cause}"
        )
    if isinstance(error, ray.exceptions.GetTimeoutError):
        return ClusterError(
            f"topology {topology!r} has not answered in time, and its actors have not ended: they "
            "are paused, busy or cut off, and answer afterwards. What was asked may still happen "
            f"then: `sunshower status {topology}` shows it. Submit nothing again before"
        )
    return ClusterError(
        f"topology {topology!r} does not answer: {first_line(error)}. Its actors may have been "
        "killed or the node is out of memory; submit it again"
    )


def call_once(topology: str, master: Any, event: events.Event) -> Any:
    """Let a master apply an event, and do not repeat that if the master dies, perhaps after it had
    begun to carry it out. Raises as `call`; ClusterError says how to find out."""
    try:
        return call(topology, master.apply.options(max_task_retries=0), event)
    except ClusterError as error:
        if not isinstance(error.__cause__, ray.exceptions.RayActorError):
            raise
        raise ClusterError(
            f"the master of {topology!r} died meanwhile; `sunshower status {topology}` shows "
            f"whether the {event.command} has happened"
        ) from error
