"""The owner's client of a keeper process: starts servers, signals them, reads their status."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sunshower.errors import ServerError

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
        """Send a signal to a running server."""
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
        for line in lines:
            self._apply(json.loads(line))

    def _apply(self, message: dict[str, Any]) -> None:
        if "started" in message:
            self._pids[message["started"]] = message["pid"]
        elif "ended" in message:
            self._ended[message["ended"]] = message["status"]
        elif "refused" in message:
            raise ServerError(f"{message['refused']} cannot be started: {message['why']}")
