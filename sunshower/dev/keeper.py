"""The keeper process: runs servers for an owner process, and ends them when the owner ends.

Run as a script, with the standard library only. Its owner communicates over two pipes, with one
JSON object a line:

    in   {"start": name, "command": […], "log": file}   {"signal": name, "number": 9}
         {"finish": true}   {"stay": true}              afterwards the owner may exit
    out  {"started": name, "pid": …}  {"refused": name, "why": …}  {"ended": name, "status": …}

When the owner ends in any way, or on SIGTERM, the keeper ends all servers and removes the folder
if it was started with one. If the keeper itself is killed, the kernel kills the servers.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_KERNEL = ctypes.CDLL(None)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_OWNER = 0  # standard input


class _Stop(Exception):
    """The owner has ended, or a request to end has arrived."""


class ServerKeeper:
    """Runs the servers, by name."""

    def __init__(self) -> None:
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self._events = selectors.DefaultSelector()
        self._staying = False
        self._unread = b""
        self._watch(_OWNER, self._listen)
        self._owner = os.pidfd_open(os.getppid())  # a child of the owner may keep the pipe open
        self._watch(self._owner, self._owner_ended)

    def keep(self) -> None:
        """Handle events until `_Stop` is raised."""
        with contextlib.suppress(_Stop):
            while True:
                for key, _ in self._events.select():
                    key.data()

    def end(self, grace_s: float) -> None:
        """Send SIGTERM to all servers, and SIGKILL to those that still run after `grace_s`."""
        running = [server for server in self.servers.values() if server.poll() is None]
        for server in running:
            server.send_signal(signal.SIGTERM if grace_s else signal.SIGKILL)
        end_s = time.monotonic() + grace_s
        for server in running:
            try:
                server.wait(max(end_s - time.monotonic(), 0) if grace_s else None)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def _listen(self) -> None:
        data = os.read(_OWNER, 1 << 16)
        if not data:
            self._forget(_OWNER)
            self._owner_ended()
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._execute(json.loads(line))

    def _owner_ended(self) -> None:
        if not self._staying:
            raise _Stop
        self._forget(self._owner)

    def _execute(self, request: dict[str, Any]) -> None:
        if "start" in request:
            self._start(request["start"], request["command"], request["log"])
        elif "signal" in request:
            self.servers[request["signal"]].send_signal(request["number"])
        elif "stay" in request:
            self._staying = True
        elif "finish" in request:
            raise _Stop

    def _start(self, name: str, command: list[str], log: str) -> None:
        keeper = os.getpid()

        def die_with_keeper() -> None:
            _KERNEL.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            if os.getppid() != keeper:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with open(log, "ab") as output:
                server = subprocess.Popen(  # noqa: S603 - the owner's own command
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    preexec_fn=die_with_keeper,  # noqa: PLW1509 - there are no threads here
                )
        except OSError as error:
            _send(refused=name, why=str(error))
            return
        self.servers[name] = server
        end = os.pidfd_open(server.pid)
        self._watch(end, lambda: self._ended(name, server, end))
        _send(started=name, pid=server.pid)

    def _ended(self, name: str, server: subprocess.Popen[bytes], end: int) -> None:
        self._forget(end)
        os.close(end)
        _send(ended=name, status=server.wait())

    def _watch(self, file: int, react: Callable[[], None]) -> None:
        self._events.register(file, selectors.EVENT_READ, react)

    def _forget(self, file: int) -> None:
        with contextlib.suppress(KeyError):
            self._events.unregister(file)


def _send(**message: object) -> None:
    with contextlib.suppress(OSError):  # the owner has ended
        os.write(1, json.dumps(message).encode() + b"\n")


def _stop(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stop


def main(folder: str, grace_s: str) -> None:
    """Run servers until the end; then end them all, and remove `folder` unless it is empty."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    keeper = ServerKeeper()
    try:
        keeper.keep()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        keeper.end(float(grace_s))
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
