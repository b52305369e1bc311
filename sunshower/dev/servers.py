"""The base class of Kafka and ZooKeeper servers: folder, keeper, ports, wait for readiness."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from sunshower.dev.classes import ClassArchive, archive_of
from sunshower.dev.jars import Look, Release, class_path
from sunshower.dev.keeper_client import KeeperClient
from sunshower.dev.ports import Ports, is_free
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


def silent(_: str) -> None:
    """Ignore progress messages."""


class PortTaken(ServerError):
    """Another process uses the requested port, or has just taken one that was free."""


@dataclass(frozen=True)
class Upkeep:
    """Where and how servers run."""

    folder: Path | None = None  # None: a temporary folder
    keep: bool = False  # whether the folder outlives the servers
    short_lived: bool = True  # ready with less work, slower under load
    look: Look = silent


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """The process id of the keeper."""
        return self._kept().pid

    @property
    def processes(self) -> tuple[int, ...]:
        """The process ids of all servers."""
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
        """The log files of all servers."""
        return [self.log(name) for name in self._pids]

    def log(self, name: str) -> Path:
        """The log file of one server."""
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
