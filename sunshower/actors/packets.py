"""The sockets between workers; separate because it is a protocol that is tested on its own.

Packets go in one direction, answers in the other.

    who connects                          who listens
                  ◀── 32 random bytes ──
        32 random bytes, proof A ──▶          A = HMAC(key, "A" + both random values)
                  ◀── proof B ──             B = HMAC(key, "B" + both random values)
             length, packet ──▶               as often as wanted, without waiting
                  ◀── one byte, an Answer    for each packet, in order

The loop's thread reads and writes all sockets between two slices of work; it answers small packets
after the slice that processes them. While user code keeps the loop's thread busy, a second thread
does that, so a packet is answered within twice `_BUSY_S`, however long user code takes, unless it
keeps the interpreter's lock.

Ray tells who listens where, and keeps the run's key. (A call of a Ray actor costs 1 to 2 ms of
processor time in both processes together, a packet here about 0.05 ms.)
"""

from __future__ import annotations

import errno
import heapq
import hmac
import logging
import os
import secrets
import select
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sized
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import ray

from sunshower.actors.names import NAMESPACE, worker_name
from sunshower.runtime.events.injected_faults import WELL, Fate, flipped
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.worker import Worker

_LOG = logging.getLogger("sunshower")
_OnAnswer = Callable[[int | None], None]  # receives the answer; None if the connection is lost

_LENGTH = struct.Struct("<I")
_NONCE_BYTES = _PROOF_BYTES = 32
_PACKET_BYTES_MAX = 1 << 30
_WAIT_MAX_S = 3600.0  # epoll and TCP have limits
_BUSY_S = 0.05  # how long the loop's thread may be busy before the second thread takes over
_SMALL_BYTES = 1 << 12
_SHORT_S = 0.01  # up to this time, a wait ends in time by some microseconds
_SELECTED_MAX = 1024  # select() knows no file descriptors from this number on
_QUEUE = 128  # connections that wait to be accepted, or for their proof


# ---- framed socket -------------------------------------------------------------------------------

Protocol = Generator[int, bytes, None]  # yields how many bytes it reads next
_READ_BYTES = 1 << 18


class FramedSocket:
    """One socket without blocking. `protocol` gets the bytes that it asks for."""

    def __init__(self, selector: selectors.BaseSelector, sock: socket.socket) -> None:
        self.closed = False
        self._selector, self._socket = selector, sock
        self._inbox, self._outbox = bytearray(), deque[memoryview]()
        self._is_tls = self._in_handshake = isinstance(sock, ssl.SSLSocket)
        self._events = selectors.EVENT_READ | selectors.EVENT_WRITE  # that it waits for
        selector.register(sock, self._events, self)

    def follow(self, protocol: Protocol, closed: Callable[[], object] = lambda: None) -> None:
        """Read by this protocol from now on; `closed` is called at the end."""
        self._protocol, self._closed = protocol, closed
        self._wanted = next(protocol)

    def write(self, data: bytes) -> None:
        """Send at once what the socket takes, and the rest later."""
        self._outbox.append(memoryview(data))
        if len(self._outbox) == 1:
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
        if not self.closed and self._events != waits:
            self._events = waits
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
                if len(data) < _READ_BYTES and not self._is_tls:  # TLS may hold more
                    return
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


# ---- sockets -------------------------------------------------------------------------------------


class Endpoint(NamedTuple):
    """Where a process listens."""

    host: str
    port: int


class PeerConnection:
    """The connection to one peer. Packets wait in it until it is open."""

    def __init__(self, sockets: PacketSockets) -> None:
        self._sockets = sockets
        self._waiting: list[bytes] | None = []  # until the peer has proved who it is
        self._unanswered = deque[tuple[_OnAnswer, float]]()  # for each packet without an answer
        self._connection: FramedSocket | None = None
        self.closed = False

    def open(self, endpoint: Endpoint) -> None:
        """Connect, from any thread."""
        with self._sockets.lock:
            if self.closed:
                return
            try:
                sock = self._sockets.dial(endpoint)
                self._connection = FramedSocket(self._sockets.selector, sock)
                self._connection.follow(self._protocol(self._connection), self.close)
            except OSError:
                self.close()
        self._sockets.wake()

    def silent_s(self, now: float) -> float:
        """For how long the oldest packet without an answer waits for it."""
        with self._sockets.lock:
            return now - self._unanswered[0][1] if self._unanswered else 0.0

    def send(self, packet: bytes, on_answer: _OnAnswer, now: float) -> None:
        """Send a packet; `on_answer` is called once, with the lock held."""
        with self._sockets.lock:
            if self.closed:
                on_answer(None)
                return
            self._unanswered.append((on_answer, now))
            if self._waiting is not None:
                self._waiting.append(packet)
            else:
                assert self._connection is not None
                self._connection.write(_LENGTH.pack(len(packet)) + packet)

    def close(self) -> None:
        """Close the connection; packets without an answer get None. From any thread."""
        with self._sockets.lock:
            if self.closed:
                return
            self.closed = True
            if self._connection is not None:
                self._connection.close()
            while self._unanswered:
                self._unanswered.popleft()[0](None)

    def _protocol(self, connection: FramedSocket) -> Protocol:
        theirs = yield _NONCE_BYTES
        mine = secrets.token_bytes(_NONCE_BYTES)
        connection.write(mine + self._sockets.proof(b"A", theirs, mine))
        if not hmac.compare_digest((yield _PROOF_BYTES), self._sockets.proof(b"B", theirs, mine)):
            return
        waiting, self._waiting = self._waiting or [], None
        for packet in waiting:
            connection.write(_LENGTH.pack(len(packet)) + packet)
        while True:
            (answer,) = yield 1
            if not self._unanswered:
                return
            self._unanswered.popleft()[0](answer)


class PacketSockets:
    """The listening socket of a process, and its connections.

    `deliver` receives each packet and returns the answer, or None as long as there is none yet:
    then `resume` asks again. It is called with the lock held.
    """

    def __init__(self, host: str, deliver: Callable[[bytes], int | None]) -> None:
        self.lock = threading.RLock()
        self.selector = selectors.DefaultSelector()
        fileno = getattr(self.selector, "fileno", None)
        self._waits_exactly = fileno is not None and fileno() < _SELECTED_MAX
        self._key: bytes | None = None
        self._timeout_ms = 0
        self._deliver = deliver
        self._held: list[tuple[FramedSocket, bytes]] = []
        self._answers: list[tuple[FramedSocket, bytes]] = []  # that the next `work` writes
        self._unproven: dict[FramedSocket, None] = {}  # those without a proof, oldest first
        self._tls = _contexts()
        self._listener = socket.create_server((host, 0), family=_family(host), backlog=_QUEUE)
        self._listener.setblocking(False)
        self.endpoint = Endpoint(host, self._listener.getsockname()[1])
        self._wakes, self._wake = socket.socketpair()
        self._wakes.setblocking(False)
        self._wake.setblocking(False)
        self.selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self.selector.register(self._wakes, selectors.EVENT_READ, self._woken)
        self._is_waiting = self._is_closed = False
        self._worked_s = time.monotonic()
        threading.Thread(target=self._work_when_busy, name="packets", daemon=True).start()

    def trust(self, key: bytes, timeout_s: float) -> None:
        """Accept connections of those that have the run's key. A connection is lost if its bytes
        do not arrive within `timeout_s`."""
        self._key, self._timeout_ms = key, int(min(timeout_s, _WAIT_MAX_S) * 1000)

    def work(self, wait_s: float | None, mail: Sized = ()) -> None:
        """Read and write all sockets, after waiting for the first of them; None: as long as it
        takes. `wake` ends the wait, and there is none while there is mail."""
        if self._answers:
            self._write_answers()
        self._is_waiting = True  # before looking at the mail: who adds to it wakes afterwards
        longest_s = 0.0 if mail else _WAIT_MAX_S
        wait_s = longest_s if wait_s is None else min(wait_s, longest_s)
        events = self._wait(wait_s) if wait_s else self.selector.select(0)
        self._is_waiting = False
        self._worked_s = time.monotonic()
        if events:
            self._handle(events)

    def wake(self) -> None:
        """End the wait of `work`, from any thread."""
        if self._is_waiting:
            with suppress(BlockingIOError):
                self._wake.send(b"\0")

    def resume(self) -> None:
        """Ask again for the answers to packets that had none yet."""
        with self.lock:
            held, self._held = self._held, []
            for connection, packet in held:
                self._answer(connection, packet)
            self._write_answers()

    def close(self) -> None:
        """Close all sockets. Nothing else may be called afterwards."""
        with self.lock:
            self._is_closed = True
            for key in list(self.selector.get_map().values()):
                if isinstance(key.data, FramedSocket):
                    key.data.close()
            for resource in (self._listener, self._wakes, self._wake, self.selector):
                resource.close()

    def dial(self, endpoint: Endpoint) -> socket.socket:
        """A socket that connects. Raises OSError."""
        sock = socket.socket(_family(endpoint.host), socket.SOCK_STREAM)
        try:
            self._set_up(sock)
            if self._tls is not None:  # before it connects: a socket that connects refuses to
                sock = self._tls[1].wrap_socket(sock, do_handshake_on_connect=False)
            error = sock.connect_ex(tuple(endpoint))
            if error not in (0, errno.EINPROGRESS):
                raise OSError(error, os.strerror(error))
        except OSError:
            sock.close()
            raise
        return sock

    def proof(self, side: bytes, theirs: bytes, mine: bytes) -> bytes:
        """What only those know that have the run's key."""
        assert self._key is not None, "trust() comes first"
        return hmac.digest(self._key, side + theirs + mine, "sha256")

    def _wait(self, wait_s: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Not inline: by this function a profile knows that a worker waits."""
        if self._waits_exactly and wait_s < _SHORT_S:  # epoll counts whole milliseconds
            select.select([self.selector], [], [], wait_s)
            wait_s = 0.0
        return self.selector.select(wait_s)

    def _handle(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        with self.lock:
            for key, mask in events:
                if not isinstance(key.data, FramedSocket):
                    key.data()
                elif not key.data.closed:
                    if mask & selectors.EVENT_WRITE:
                        key.data.flush()
                    if mask & selectors.EVENT_READ and not key.data.closed:
                        key.data.read()

    def _work_when_busy(self) -> None:
        while True:
            time.sleep(_BUSY_S)
            if not self._is_waiting and time.monotonic() - self._worked_s > _BUSY_S:
                with self.lock:
                    if self._is_closed:
                        return
                    try:
                        self._write_answers()
                        self._handle(self.selector.select(0))
                        self._write_answers()
                    except Exception:
                        _LOG.exception("packets cannot be read")
                self.wake()  # `_woken` may have read what was to end a wait

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._close_unproven(1)  # otherwise the listener stays ready
            return
        try:
            self._set_up(sock)
            if self._tls is not None:
                sock = self._tls[0].wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False
                )
        except OSError:  # the peer has closed it already
            sock.close()
            return
        connection = FramedSocket(self.selector, sock)
        self._unproven[connection] = None
        connection.follow(self._serve(connection), lambda: self._unproven.pop(connection, None))
        self._close_unproven(len(self._unproven) - _QUEUE)

    def _close_unproven(self, count: int) -> None:
        """Close the oldest connections that have not proved that they have the key."""
        for connection in list(self._unproven)[: max(0, count)]:
            connection.close()

    def _serve(self, connection: FramedSocket) -> Protocol:
        mine = secrets.token_bytes(_NONCE_BYTES)
        connection.write(mine)
        hello = yield _NONCE_BYTES + _PROOF_BYTES
        theirs, proof = hello[:_NONCE_BYTES], hello[_NONCE_BYTES:]
        if self._key is None or not hmac.compare_digest(proof, self.proof(b"A", mine, theirs)):
            return
        self._unproven.pop(connection, None)
        connection.write(self.proof(b"B", mine, theirs))
        while True:
            (length,) = _LENGTH.unpack((yield _LENGTH.size))
            if length > _PACKET_BYTES_MAX:
                return
            self._answer(connection, (yield length))

    def _answer(self, connection: FramedSocket, packet: bytes) -> None:
        held = any(waiting is connection for waiting, _ in self._held)  # answers keep their order
        answer = None if held else self._deliver(packet)
        if answer is None:
            self._held.append((connection, packet))
            return
        self._answers.append((connection, bytes((answer,))))
        if len(packet) > _SMALL_BYTES:
            self._write_answers()

    def _write_answers(self) -> None:
        """Small packets are answered when the loop has processed them, and has sent what it made:
        so a tuple does not wait for the answer to the packet that it came in."""
        with self.lock:
            answers, self._answers = self._answers, []
            for connection, answer in answers:
                if not connection.closed:
                    connection.write(answer)

    def _set_up(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a node may lose its power
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._timeout_ms)

    def _woken(self) -> None:
        with suppress(BlockingIOError):
            while self._wakes.recv(1024):
                pass


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """For who listens and who connects, from Ray's own settings; None if Ray does not use TLS."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    files = [os.environ[f"RAY_TLS_{name}"] for name in ("SERVER_CERT", "SERVER_KEY", "CA_CERT")]
    sides = []
    for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        context = ssl.create_default_context(purpose, cafile=files[2])
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # it never negotiates again
        context.load_cert_chain(files[0], files[1])
        context.verify_mode, context.check_hostname = ssl.CERT_REQUIRED, False
        sides.append(context)
    return sides[0], sides[1]


# ---- sender --------------------------------------------------------------------------------------
# Sends a worker's packets to its peers, and injects the network faults of an experiment.
#
# Everything runs on the loop's thread without sleeping: delayed packets wait here until the loop
# calls `send` again. They belong to one life of the worker, and are dropped with it.

_Put = Callable[[Callable[[], Any]], None]
_Late = tuple[float, int, Callable[[], None]]  # due time, sequence number, action


def _ignore(answer: int | None) -> None:
    """Of a copy of a packet only the first answer counts."""


class PacketSender:
    """Sends the packets of one core to its peers.

    `put` adds a call to the loop's mailbox, from any thread.
    """

    def __init__(self, run: str, core: Worker, sockets: PacketSockets, put: _Put) -> None:
        self._run = run
        self._core = core
        self._answer_s = core.plan.graph.config.worker_timeout_s / 2
        self._sockets = sockets
        self._put = put
        self._peers: dict[int, PeerConnection] = {}
        self._generator = seeded(secrets.randbits(128))
        self._thread = threading.get_ident()  # the loop's, which creates it
        self._late: list[_Late] = []
        self._count = 0

    def send(self, now: float) -> float | None:
        """Send the core's outgoing packets, and delayed packets that are due.

        Returns the seconds until the next delayed packet is due; None if there is none.
        """
        while self._late and self._late[0][0] <= now:
            heapq.heappop(self._late)[-1]()
        for peer, seq, packet in self._core.outgoing():
            fate = self._core.fate(peer)
            if fate is WELL:
                self._carry(peer, packet, now, partial(self._answered, peer, seq))
            else:
                self._send_with_faults(fate, peer, seq, packet, now)
        return max(self._late[0][0] - now, 0.0005) if self._late else None

    def _send_with_faults(self, fate: Fate, peer: int, seq: int, packet: bytes, now: float) -> None:
        if fate.corrupt:
            packet = flipped(packet, self._generator)
        on_answer = self._answered if fate.heard else self._answer_lost
        if not fate.delays_s and fate.fails:
            self._put(partial(self._core.answered, peer, seq, None))
        for copy, delay_s in enumerate(fate.delays_s):  # only the answer to the first copy counts
            answered = _ignore if copy else partial(on_answer, peer, seq)
            carry = partial(self._carry, peer, packet, now + delay_s, answered)
            if delay_s:
                self._count += 1
                late: _Late = (now + delay_s, self._count, carry)
                heapq.heappush(self._late, late)
            else:
                carry()

    def close(self) -> None:
        """Close the connections to all peers."""
        for connection in self._peers.values():
            connection.close()

    def _carry(self, peer: int, packet: bytes, now: float, on_answer: _OnAnswer) -> None:
        connection = self._peers.get(peer)
        if connection is not None and connection.silent_s(now) > self._answer_s:
            connection.close()
        if connection is None or connection.closed:
            connection = self._peers[peer] = self._connect(peer)
        connection.send(packet, on_answer, now)

    def _connect(self, peer: int) -> PeerConnection:
        """Ask the peer's actor where it listens, and connect. Returns at once."""
        connection = PeerConnection(self._sockets)
        try:
            actor = ray.get_actor(worker_name(self._run, peer), namespace=NAMESPACE)
        except Exception:  # it is being replaced, or Ray's head does not answer
            connection.close()
            return connection

        def on_endpoint(call: Future[Endpoint]) -> None:
            if call.exception():
                connection.close()
            else:
                connection.open(call.result())

        actor.endpoint.remote().future().add_done_callback(on_endpoint)
        return connection

    def _answered(self, peer: int, seq: int, answer: int | None) -> None:
        """Runs on any thread: an answer that makes no work is applied on the loop's, and all others
        are added to the mailbox."""
        known = None if answer is None else Answer(answer)
        if known is Answer.ACCEPTED and threading.get_ident() == self._thread:
            self._core.answered(peer, seq, known)
            return
        if known is Answer.STALE and (connection := self._peers.get(peer)) is not None:
            self._put(connection.close)  # the peer may have been replaced by another process
        self._put(partial(self._core.answered, peer, seq, known))

    def _answer_lost(self, peer: int, seq: int, answer: int | None) -> None:
        """Report a failed call to the core, although the packet has arrived."""
        self._put(partial(self._core.answered, peer, seq, None))
