"""A socket that never blocks, and passes a protocol the number of bytes that it requests."""

from __future__ import annotations

import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable, Generator

Protocol = Generator[int, bytes, None]  # yields how many bytes it reads next
_READ_BYTES = 1 << 18


class FramedSocket:
    """One socket without blocking. `protocol` gets the bytes that it asks for."""

    def __init__(self, selector: selectors.BaseSelector, sock: socket.socket) -> None:
        self.closed = False
        self._selector, self._socket = selector, sock
        self._inbox, self._outbox = bytearray(), deque[memoryview]()
        self._in_handshake = isinstance(sock, ssl.SSLSocket)  # the handshake of TLS is not over
        selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def follow(self, protocol: Protocol, closed: Callable[[], object] = lambda: None) -> None:
        """Read by this protocol from now on; `closed` is called at the end."""
        self._protocol, self._closed = protocol, closed
        self._wanted = next(protocol)

    def write(self, *parts: bytes) -> None:
        """Send at once what the socket takes, and the rest later."""
        idle = not self._outbox
        self._outbox.extend(memoryview(part) for part in parts)
        if idle:
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        waits = selectors.EVENT_READ
        try:
            self._do_handshake()
            while self._outbox:
                sent = self._socket.send(self._outbox[0])
                if sent < len(self._outbox[0]):
                    self._outbox[0] = self._outbox[0][sent:]
                else:
                    self._outbox.popleft()
        except ssl.SSLWantReadError:
            pass
        except (BlockingIOError, ssl.SSLWantWriteError):
            waits |= selectors.EVENT_WRITE
        except OSError:
            self.close()
        if not self.closed and self._selector.get_key(self._socket).events != waits:
            self._selector.modify(self._socket, waits, self)

    def read(self) -> None:
        """Read what has arrived, and let the protocol use it."""
        try:
            if self._in_handshake:
                self._do_handshake()
                self.flush()
            while not self.closed and (data := self._socket.recv(_READ_BYTES)):
                self._inbox += data
                self._advance()
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except ssl.SSLWantWriteError:
            self.flush()
            return
        except (OSError, StopIteration):
            pass
        self.close()

    def _do_handshake(self) -> None:
        if self._in_handshake:
            assert isinstance(self._socket, ssl.SSLSocket)
            self._socket.do_handshake()
            self._in_handshake = False

    def _advance(self) -> None:
        begin, inbox = 0, self._inbox
        while len(inbox) - begin >= self._wanted and not self.closed:
            end = begin + self._wanted
            chunk = bytes(memoryview(inbox)[begin:end])
            begin = end
            self._wanted = self._protocol.send(chunk)
        del inbox[:begin]

    def close(self) -> None:
        """Close the socket."""
        if not self.closed:
            self.closed = True
            self._selector.unregister(self._socket)
            self._socket.close()
            self._closed()
