"""A real ZooKeeper server that can be killed, paused and restarted."""

from __future__ import annotations

import signal
import socket

from sunshower.dev.jars import ZOOKEEPER
from sunshower.dev.security import Certificates
from sunshower.dev.servers import HOST, USUAL, Servers, Upkeep, write_properties

_NAME = "zookeeper"
_PROPERTIES = {
    "tickTime": 500,  # the minimal session timeout is two ticks
    "maxSessionTimeout": 60_000,  # the default is twenty ticks
    "maxClientCnxns": 0,  # no limit
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
}

_TLS = {  # only the Netty listener supports TLS
    "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
    "ssl.keyStore.type": "PEM",
    "ssl.trustStore.type": "PEM",
}


class ZooKeeper(Servers):
    """One server. `port` 0: any free one. Its data survives the end of its process; with `sync`
    also a power failure, as that of a ZooKeeper in production does, which costs time.

    With `tls` it also listens at a port for TLS, as the holder "zookeeper" of these certificates;
    clients there need a certificate of the same authority.
    """

    release = ZOOKEEPER

    def __init__(
        self,
        upkeep: Upkeep = USUAL,
        *,
        port: int = 0,
        tls: Certificates | None = None,
        sync: bool = False,
    ) -> None:
        super().__init__(upkeep)
        self._wanted = port
        self._options = (
            f"-Dzookeeper.forceSync={'yes' if sync else 'no'}",
            "-Dzookeeper.preAllocSize=1024",  # KiB by which the log grows, instead of 64 MiB
        )
        self._tls = tls
        self.port = port
        self.port_tls = 0

    @property
    def connect(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def connect_tls(self) -> str:
        return f"{HOST}:{self.port_tls}"

    @property
    def address(self) -> str:
        return self.connect

    @property
    def pid(self) -> int:
        return self._pids[_NAME]

    def kill(self) -> None:
        """Kill it with SIGKILL; the data stays, and `restart` uses it."""
        self._signal(_NAME, signal.SIGKILL)

    def pause(self) -> None:
        """Stop the process with SIGSTOP, and wait until it is stopped; its port stays open."""
        self._signal(_NAME, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process with SIGCONT."""
        self._signal(_NAME, signal.SIGCONT)

    def restart(self) -> None:
        """Start it again after `kill`, at the same port, with the same data."""
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._launch(_NAME, *self._options, main, self._file())
        self._look("waiting for ZooKeeper to answer")
        self._await([_NAME], self._answers)

    def _start(self) -> None:
        self.port = self._port(self._wanted)
        if self._tls:
            self.port_tls = self._port(None)
        self.restart()

    def _file(self) -> str:
        file = self.folder / "zookeeper.properties"
        here: dict[str, object] = {"dataDir": self.folder / "zookeeper", "clientPort": self.port}
        here["clientPortAddress"] = HOST
        if self._tls:
            here |= _TLS | {"secureClientPort": self.port_tls, "secureClientPortAddress": HOST}
            here["ssl.keyStore.location"] = self._tls.holder(_NAME)
            here["ssl.trustStore.location"] = self._tls.authority
        write_properties(file, _PROPERTIES | here)
        return str(file)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=2) as line:
                line.sendall(b"srvr")
                return b"Mode: standalone" in line.makefile("rb").read()
        except OSError:
            return False
