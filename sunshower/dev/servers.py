"""The base class of Kafka and ZooKeeper servers: folder, keeper, ports, wait for readiness."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

from sunshower.dev.jars import Look, Release, cache, class_path
from sunshower.errors import ServerError, Unobtainable
from sunshower.installed import java_home

READY_WITHIN_S = 240.0  # 5 s on an idle machine; three brokers on a very busy one took 64 s
END_WITHIN_S = 60.0
_TAIL_LINES = 12
_ARCHIVING = "classes"
_TRIES = 3
_TAKEN = b"Address already in use"
_JVM = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true"),
    *(
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.showThreadName=false",
    ),
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)
_SHORT_LIVED = "-XX:TieredStopAtLevel=1"  # compiles less: a third less work until it is ready


# ---- ports ---------------------------------------------------------------------------------------

HOST = "127.0.0.1"
_FIRST = 20_000
_USUALLY = 32_768
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """Claims on ports, held until they are released or this process ends.

    For outgoing connections the kernel chooses ports from a range. A client that repeatedly
    connects to a stopped server in that range can be connected to itself. So claims are below the
    range. A claim is an abstract socket name, which only one process can bind.
    """

    def __init__(self) -> None:
        self._claims: dict[int, socket.socket] = {}

    def claim(self) -> int:
        """A free port. Raises ServerError when there is none."""
        last = _first_outgoing()
        start = random.randrange(_FIRST, last)
        for port in chain(range(start, last), range(_FIRST, start)):
            claim = _claim(port)
            if claim and is_free(port):
                self._claims[port] = claim
                return port
            if claim:
                claim.close()
        raise ServerError(f"no port from {_FIRST} to {last - 1} is free on this machine")

    def release(self) -> None:
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()


def is_free(port: int) -> bool:
    """Whether a server could listen there now. Raises ServerError for a privileged port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((HOST, port))
            probe.listen()  # with SO_REUSEADDR two sockets may bind, but only one may listen
        except PermissionError as error:
            raise ServerError(f"port {port} is reserved: choose one above 1023") from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        return True


def answers(port: int) -> bool:
    """Whether a server accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _claim(port: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0sunshower-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim


def _first_outgoing() -> int:
    try:
        first = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _USUALLY
    return first if first > _FIRST + 1000 else _USUALLY


# ---- keeper client -------------------------------------------------------------------------------

_SCRIPT = Path(__file__).with_name("keeper.py")


class KeeperClient:
    """Starts a keeper in a session of its own, so that Ctrl-C reaches only the owner.

    With `remove`, servers are killed, and the folder is removed after the last one has ended;
    without, they have `grace_s` to shut down.
    """

    def __init__(self, folder: Path, *, remove: bool, grace_s: float = 30.0) -> None:
        """Raises ServerError if the folder cannot be created."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ServerError(f"{folder} cannot be a server's folder: {error.strerror}") from error
        arguments = [str(folder) if remove else "", "0" if remove else str(grace_s)]
        with (folder / "keeper.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own script
                [sys.executable, "-I", "-S", str(_SCRIPT), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        self._pids: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._unread = b""

    @property
    def pid(self) -> int:
        """The keeper's process id: SIGTERM ends it and all its servers."""
        return self._process.pid

    def start(self, name: str, command: list[str], log: Path) -> int:
        """Start a server; returns its pid. Raises ServerError when it cannot be executed."""
        self._pids.pop(name, None)
        self._ended.pop(name, None)
        self._send(start=name, command=command, log=str(log))
        while name not in self._pids:
            self._receive(None)
        return self._pids[name]

    def status(self, name: str) -> int | None:
        """The exit status of a server; None while it runs."""
        self._receive(0)
        return self._ended.get(name)

    def signal(self, name: str, number: int) -> None:
        self._send(signal=name, number=number)

    def wait(self, name: str, within_s: float) -> int:
        """Wait until a server has ended; returns its status. Raises ServerError."""
        end_s = time.monotonic() + within_s
        while (status := self.status(name)) is None:
            if (left_s := end_s - time.monotonic()) <= 0:
                raise ServerError(f"{name} was asked to end {within_s:g} s ago, and still runs")
            self._receive(left_s)
        return status

    def stay(self) -> None:
        """Let the servers outlive this process; then only SIGTERM to the keeper ends them."""
        self._send(stay=True)
        self._close()

    def end(self) -> None:
        """End all servers and the keeper, and wait for it."""
        with contextlib.suppress(ServerError):
            self._send(finish=True)
        self._close()
        self._process.wait()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()

    def _send(self, **request: object) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise ServerError("the keeper of the servers is gone, and so are they") from error

    def _receive(self, within_s: float | None) -> None:
        """Process messages of the keeper, waiting for them up to `within_s`; None: no limit."""
        assert self._process.stdout
        file = self._process.stdout.fileno()
        if not select.select([file], [], [], within_s)[0]:
            return
        data = os.read(file, 1 << 16)
        if not data:
            raise ServerError("the keeper of the servers is gone, and so are they")
        *lines, self._unread = (self._unread + data).split(b"\n")
        for message in map(json.loads, lines):
            if "started" in message:
                self._pids[message["started"]] = message["pid"]
            elif "ended" in message:
                self._ended[message["ended"]] = message["status"]
            elif "refused" in message:
                raise ServerError(f"{message['refused']} cannot be started: {message['why']}")


# ---- classes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassArchive:
    """The path of the archive for one Java and one set of jars; Java rejects any other.

    An empty file means that it cannot be made here. Java then starts without one.
    """

    path: Path

    def options(self, classes: Path) -> list[str]:
        """Options for `java`: use the archive, or list the classes that it should contain."""
        if self.path.exists():
            return [f"-XX:SharedArchiveFile={self.path}"] if self.path.stat().st_size else []
        return [f"-XX:DumpLoadedClassList={classes}"]

    def making(self, classes: Path) -> list[str]:
        """Options for `java`, beside the class path, to make the archive. Then call `publish`."""
        written = classes.read_bytes()
        whole = classes.with_name(f"whole-{classes.name}")  # the server still writes to `classes`
        whole.write_bytes(written[: written.rfind(b"\n") + 1])
        return [
            *("-Xshare:dump", f"-XX:SharedClassListFile={whole}"),
            f"-XX:SharedArchiveFile={self._part}",
        ]

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Lock the archive; yields whether it does not exist, and no other process makes it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield not self.path.exists()

    def publish(self, good: bool) -> None:
        """Move the finished archive to its path; if not `good`, an empty file."""
        if not good:
            self._part.write_bytes(b"")
        self._part.replace(self.path)

    @property
    def _part(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}")


def archive_of(release: Release, java: Path, class_path: str) -> ClassArchive:
    """The archive of a release, which may not exist yet, beside the folder of the jars. Its name
    has a hash of everything that Java checks before it accepts an archive."""
    files = [java.resolve(), *map(Path, class_path.split(os.pathsep))]
    facts = [f"{file} {file.stat().st_mtime_ns} {file.stat().st_size}" for file in files]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    return ClassArchive(cache().with_name("classes") / f"{release.name}-{key}.jsa")


# ---- servers -------------------------------------------------------------------------------------


class PortTaken(ServerError):
    """Another process uses the requested port, or has just taken one that was free."""


@dataclass(frozen=True)
class Upkeep:
    """Where and how servers run."""

    folder: Path | None = None  # None: a temporary folder
    keep: bool = False  # whether the folder outlives the servers
    short_lived: bool = True  # ready with less work, slower under load
    look: Look = lambda _: None


USUAL = Upkeep()


def find_java() -> Path:
    """The executable `java` of the servers. Raises Unobtainable."""
    needs = "Kafka and ZooKeeper need a Java of version 17 or later"
    return java_home(needs, "servers", Unobtainable) / "bin" / "java"


class Servers:
    """Servers of one release in one folder.

    They end when this object's process does, even if that is killed; only `stay` lets them outlive
    it.
    """

    release: Release

    def __init__(self, upkeep: Upkeep) -> None:
        self._folder = upkeep.folder and upkeep.folder.absolute()
        self._keep = upkeep.keep
        self._jvm = (*_JVM, _SHORT_LIVED) if upkeep.short_lived else _JVM
        self._look = upkeep.look
        self._ports = Ports()
        self._client: KeeperClient | None = None
        self._pids: dict[str, int] = {}
        self._logged: dict[str, int] = {}  # size of a log when its server was last started
        self._java: list[str] = []
        self._class_path = ""
        self._archive: ClassArchive | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start all, and wait until they answer. Raises ServerError and leaves nothing running."""
        java, self._class_path = find_java(), class_path(self.release, self._look)
        self._java = [str(java), *self._jvm]
        self._archive = archive_of(self.release, java, self._class_path)
        self._folder = self._folder or Path(tempfile.mkdtemp(prefix="sunshower-"))
        for tries_left in reversed(range(_TRIES)):
            self._client = KeeperClient(self.folder, remove=not self._keep)
            try:
                self._start()
                self._archive_classes(self._archive)
            except BaseException as error:
                self.stop()
                if not isinstance(error, PortTaken) or not tries_left:
                    raise
            else:
                break
        return self

    def stop(self) -> None:
        """End all: servers with a folder to keep are shut down, others are killed."""
        if self._client:
            self._client.end()
            self._client = None
        self._ports.release()
        self._pids.clear()

    def stay(self) -> None:
        """Let the servers outlive this process; SIGTERM to their keeper ends them."""
        self._kept().stay()
        self._client = None
        self._ports.release()  # the servers listen there now

    @property
    def keeper(self) -> int:
        return self._kept().pid

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(self._pids.values())

    @property
    def address(self) -> str:
        """The client addresses as host:port, separated by commas."""
        raise NotImplementedError

    @property
    def folder(self) -> Path:
        """The folder of data and logs."""
        if not self._folder:
            raise ServerError(f"{self.release.name} has no folder before it is started")
        return self._folder

    def logs(self) -> list[Path]:
        return [self.log(name) for name in self._pids]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _start(self) -> None:
        raise NotImplementedError

    def _port(self, wanted: int | None) -> int:
        """The port `wanted`, if it is free; without one, any free port."""
        if not wanted:
            return self._ports.claim()
        if not is_free(wanted):
            raise PortTaken(f"port {wanted} is taken: {self.release.name} cannot listen there")
        return wanted

    def _launch(self, name: str, *arguments: str) -> None:
        archive = self._archive.options(self._classes(name)) if self._archive else []
        self._execute(name, *archive, "-cp", self._class_path, *arguments)

    def _execute(self, name: str, *arguments: str) -> None:
        log = self.log(name)
        self._logged[name] = log.stat().st_size if log.exists() else 0
        self._pids[name] = self._kept().start(name, [*self._java, *arguments], log)

    def _classes(self, name: str) -> Path:
        """The file where a server lists the classes it loads if there is no archive."""
        return self.folder / f"{name}.classes"

    def _archive_classes(self, archive: ClassArchive) -> None:
        """Make the archive, which speeds up starts, from the classes of the last started server."""
        last = self._classes([*self._pids][-1])
        with contextlib.suppress(OSError), archive.locked() as wanted:
            if wanted:
                self._look("archiving the classes, once: the next start takes about half the time")
                self._execute(_ARCHIVING, *archive.making(last), "-cp", self._class_path)
                try:
                    archive.publish(self._kept().wait(_ARCHIVING, READY_WITHIN_S) == 0)
                    del self._pids[_ARCHIVING]
                except ServerError:  # timed out on a busy machine; the next start tries again
                    self._signal(_ARCHIVING, signal.SIGKILL)
        for file in self.folder.glob("*.classes"):
            file.unlink()

    def _run(self, names: Iterable[str]) -> None:
        """Wait until these programs have exited. Raises ServerError if one failed."""
        for name in names:
            if self._kept().wait(name, READY_WITHIN_S):
                raise self._failed(name, "has failed")
            del self._pids[name]

    def _await(self, names: Iterable[str], answer: Callable[[], bool]) -> None:
        names, end_s = list(names), time.monotonic() + READY_WITHIN_S
        while not answer():
            for name in names:
                if self._kept().status(name) is not None:
                    raise self._failed(name, "has ended instead of answering")
            if time.monotonic() > end_s:
                raise self._failed(names[-1], f"does not answer after {READY_WITHIN_S:g} s")
            time.sleep(0.05)

    def _signal(self, name: str, number: int) -> None:
        if name not in self._pids:
            raise ServerError(f"{name} is not running; there are {', '.join(self._pids) or 'none'}")
        self._kept().signal(name, number)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self._kept().wait(name, END_WITHIN_S)
            del self._pids[name]
        elif number == signal.SIGSTOP:
            until_s = time.monotonic() + END_WITHIN_S
            while not _is_stopped(self._pids[name]) and time.monotonic() < until_s:
                time.sleep(0.001)

    def _kept(self) -> KeeperClient:
        if not self._client:
            raise ServerError(f"{self.release.name} was not started, or has been stopped")
        return self._client

    def _failed(self, name: str, what: str) -> ServerError:
        with self.log(name).open("rb") as log:
            log.seek(self._logged[name])
            written = log.read()
        lines = written.decode(errors="replace").splitlines()[-_TAIL_LINES:]
        text = "\n".join([f"{name} {what}. The end of its log, {self.log(name)}:", *lines])
        return PortTaken(text) if _TAKEN in written else ServerError(text)


def _is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped: the keeper has only sent the signal."""
    try:
        stats = [
            (thread / "stat").read_text(encoding="utf-8", errors="replace")
            for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:  # a thread has just ended
        return False
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


# ---- properties ----------------------------------------------------------------------------------

_QUICK = {
    "auto.create.topics.enable": "false",  # an unknown topic is an error
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.retention.check.interval.ms": "1000",  # deletes and compacts soon
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.segment.delete.delay.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
    "leader.imbalance.check.interval.seconds": "5",
}
_SESSION_MS = "6000"  # a broker without a heartbeat for so long is removed


def write_properties(file: Path, settings: Mapping[str, object]) -> None:
    """Write the settings of a Java server, one a line."""
    lines = [f"{key}={value}\n" for key, value in settings.items()]
    file.write_text("".join(lines), encoding="utf-8")


def properties(
    brokers: int,
    data: Path,
    ports: Mapping[str, int],
    protocols: Mapping[str, str],
) -> dict[str, str]:
    """The settings of both kinds of broker; ports and security protocols are by listener."""
    listeners = ",".join(f"{name}://{HOST}:{ports[name]}" for name in protocols)
    safe = str(min(brokers, 2))
    return _QUICK | {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": _map(protocols),
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        "default.replication.factor": str(min(brokers, 3)),
        "offsets.topic.replication.factor": str(min(brokers, 3)),
        "transaction.state.log.replication.factor": str(min(brokers, 3)),
        "transaction.state.log.min.isr": safe,
        "min.insync.replicas": safe,
    }


def kraft(
    common: Mapping[str, str],
    broker: int,
    controllers: Mapping[int, int],
    protocols: Mapping[str, str],
) -> dict[str, str]:
    """Settings of a KRaft broker and controller; `controllers` are all their ports, by id."""
    voters = ",".join(f"{id}@{HOST}:{port}" for id, port in controllers.items())
    return {
        **common,
        "process.roles": "broker,controller",
        "node.id": str(broker),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{common['listeners']},CONTROLLER://{HOST}:{controllers[broker]}",
        "listener.security.protocol.map": _map({**protocols, "CONTROLLER": "PLAINTEXT"}),
        "broker.session.timeout.ms": _SESSION_MS,
        "broker.heartbeat.interval.ms": "1000",
        "metadata.max.idle.interval.ms": "5000",  # less work while idle
        "group.consumer.heartbeat.interval.ms": "500",  # the new protocol assigns with heartbeats
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.min.session.timeout.ms": "1000",
    }


def on_zookeeper(common: Mapping[str, str], broker: int, connect: str) -> dict[str, str]:
    """Settings of a broker that registers itself and its topics in ZooKeeper."""
    return {
        **common,
        "broker.id": str(broker),
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": _SESSION_MS,
    }


def _map(protocols: Mapping[str, str]) -> str:
    return ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
