"""Packets between two processes: in order, answered one by one, and only with the right key."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Queue

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from sunshower.actors.packets import Endpoint, PacketSockets, PeerConnection

KEY = b"k" * 32
WITHIN_S = 120.0
HOST = "127.0.0.1"


class Process:
    """The sockets of one process, with a loop of their own; `answers` has all answers."""

    def __init__(self, key: bytes = KEY, answer: Callable[[bytes], int | None] = lambda _: 0):
        self.received: Queue[bytes] = Queue()
        self.answers: Queue[int | None] = Queue()
        self._answer = answer
        self.sockets = PacketSockets(HOST, self._deliver)
        self.sockets.trust(key, WITHIN_S)
        self._stopped = False
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def connect(self, endpoint: Endpoint) -> PeerConnection:
        connection = PeerConnection(self.sockets)
        connection.open(endpoint)
        return connection

    def close(self) -> None:
        self._stopped = True
        self.sockets.wake()
        self._thread.join(WITHIN_S)
        self.sockets.close()

    def _deliver(self, packet: bytes) -> int | None:
        answer = self._answer(packet)
        if answer is not None:
            self.received.put(packet)
        return answer

    def _loop(self) -> None:
        while not self._stopped:
            self.sockets.work(WITHIN_S, [1] if self._stopped else [])


def use_certificates_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's settings for TLS, with an authority of this folder that signs itself."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    for setting, file in (("SERVER_CERT", "cert"), ("SERVER_KEY", "key"), ("CA_CERT", "cert")):
        monkeypatch.setenv(f"RAY_TLS_{setting}", str(folder / f"{file}.pem"))


@pytest.fixture
def processes() -> Iterator[Callable[..., Process]]:
    with ExitStack() as stack:

        def new(*arguments: object, **named: object) -> Process:
            process = Process(*arguments, **named)  # type: ignore[arg-type]
            stack.callback(process.close)
            return process

        yield new


def test_packets_arrive_in_order_and_each_has_its_answer(
    processes: Callable[..., Process],
) -> None:
    here, peer = processes(), processes(answer=len)
    connection = here.connect(peer.sockets.endpoint)
    for length in range(100):
        connection.send(b"x" * length, here.answers.put, 0.0)
    assert [here.answers.get(timeout=WITHIN_S) for _ in range(100)] == list(range(100))
    assert [len(peer.received.get(timeout=WITHIN_S)) for _ in range(100)] == list(range(100))


def test_a_packet_larger_than_all_buffers_arrives_whole(processes: Callable[..., Process]) -> None:
    here, peer = processes(), processes()
    packet = bytes(range(256)) * (1 << 16)
    here.connect(peer.sockets.endpoint).send(packet, here.answers.put, 0.0)
    assert here.answers.get(timeout=WITHIN_S) == 0
    assert peer.received.get(timeout=WITHIN_S) == packet


def test_both_ends_send_at_the_same_time(processes: Callable[..., Process]) -> None:
    first, second = processes(), processes()
    packet = bytes(1 << 22)
    for here, peer in ((first, second), (second, first)):
        connection = here.connect(peer.sockets.endpoint)
        for _ in range(4):
            connection.send(packet, here.answers.put, 0.0)
    for here in (first, second):
        assert [here.answers.get(timeout=WITHIN_S) for _ in range(4)] == [0] * 4


def test_without_the_key_of_the_run_no_packet_is_received(
    processes: Callable[..., Process],
) -> None:
    stranger, peer = processes(key=b"?" * 32), processes()
    stranger.connect(peer.sockets.endpoint).send(b"forged", stranger.answers.put, 0.0)
    assert stranger.answers.get(timeout=WITHIN_S) is None
    assert peer.received.empty()


def test_a_listener_without_the_key_receives_no_packet(processes: Callable[..., Process]) -> None:
    here, stranger = processes(), processes(key=b"?" * 32)
    here.connect(stranger.sockets.endpoint).send(b"secret", here.answers.put, 0.0)
    assert here.answers.get(timeout=WITHIN_S) is None
    assert stranger.received.empty()


def test_connection_with_other_data_is_closed_and_others_work(
    processes: Callable[..., Process],
) -> None:
    here, peer = processes(), processes()
    endpoint = tuple(peer.sockets.endpoint)
    with socket.create_connection(endpoint) as silent, socket.create_connection(endpoint) as loud:
        loud.settimeout(WITHIN_S)
        loud.sendall(b"GET / HTTP/1.1\r\nHost: anything at all, as long as it has 64 bytes\r\n\r\n")
        nonce = loud.recv(32)
        assert len(nonce) == 32
        with suppress(ConnectionResetError):
            assert loud.recv(1) == b"", "it is closed"
        here.connect(peer.sockets.endpoint).send(b"well", here.answers.put, 0.0)
        assert here.answers.get(timeout=WITHIN_S) == 0
        assert silent.recv(32) != nonce, "each connection has a challenge of its own"


def test_a_packet_waits_for_its_answer_until_the_life_has_begun(
    processes: Callable[..., Process],
) -> None:
    begun, asked = threading.Event(), threading.Event()

    def answer(packet: bytes) -> int | None:
        asked.set()
        return int(packet) if begun.is_set() else None

    here, peer = processes(), processes(answer=answer)
    connection = here.connect(peer.sockets.endpoint)
    for number in range(3):
        connection.send(b"%d" % number, here.answers.put, 0.0)
    assert asked.wait(WITHIN_S)
    assert here.answers.empty()
    begun.set()
    peer.sockets.resume()
    assert [here.answers.get(timeout=WITHIN_S) for _ in range(3)] == [0, 1, 2]


def test_a_packet_is_answered_although_the_loop_is_busy_with_it(
    processes: Callable[..., Process],
) -> None:
    """The loop answers a small packet after it has processed it; here that takes for ever."""
    here, received = processes(), list[bytes]()

    def deliver(packet: bytes) -> int:
        received.append(packet)
        return 7

    sockets = PacketSockets(HOST, deliver)
    try:
        sockets.trust(KEY, WITHIN_S)
        here.connect(sockets.endpoint).send(b"1", here.answers.put, 0.0)
        while not received:
            sockets.work(WITHIN_S)
        assert here.answers.get(timeout=WITHIN_S) == 7
    finally:
        sockets.close()


def test_packets_without_an_answer_are_reported_when_the_connection_is_lost(
    processes: Callable[..., Process],
) -> None:
    here = processes()
    with socket.create_server((HOST, 0)) as server:
        connection = here.connect(Endpoint(*server.getsockname()))
        connection.send(b"1", here.answers.put, 0.0)
        connection.send(b"2", here.answers.put, 0.0)
        server.accept()[0].close()
    assert [here.answers.get(timeout=WITHIN_S) for _ in range(2)] == [None, None]
    assert connection.closed
    connection.send(b"3", here.answers.put, 0.0)
    assert here.answers.get(timeout=WITHIN_S) is None


def test_with_tls_packets_arrive_and_other_connections_are_closed(
    processes: Callable[..., Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = processes()
    use_certificates_of(tmp_path / "other", monkeypatch)
    stranger = processes()
    use_certificates_of(tmp_path / "ours", monkeypatch)
    here, peer = processes(), processes()
    packet = bytes(range(256)) * (1 << 13)
    here.connect(peer.sockets.endpoint).send(packet, here.answers.put, 0.0)
    assert here.answers.get(timeout=WITHIN_S) == 0
    assert peer.received.get(timeout=WITHIN_S) == packet
    stranger.connect(peer.sockets.endpoint).send(b"forged", stranger.answers.put, 0.0)
    assert stranger.answers.get(timeout=WITHIN_S) is None
    here.connect(plain.sockets.endpoint).send(b"readable", here.answers.put, 0.0)
    assert here.answers.get(timeout=WITHIN_S) is None
    assert peer.received.empty()
    assert plain.received.empty()


def test_packet_to_an_endpoint_without_a_listener_is_lost(
    processes: Callable[..., Process],
) -> None:
    here = processes()
    with socket.create_server((HOST, 0)) as server:
        endpoint = Endpoint(*server.getsockname())
    here.connect(endpoint).send(b"1", here.answers.put, 0.0)
    assert here.answers.get(timeout=WITHIN_S) is None


def test_packets_are_answered_while_the_loop_is_busy(processes: Callable[..., Process]) -> None:
    here = processes()
    received: Queue[bytes] = Queue()
    busy = PacketSockets(HOST, lambda packet: received.put(packet) or 0)  # `work` is not called
    busy.trust(KEY, WITHIN_S)
    try:
        here.connect(busy.endpoint).send(b"now", here.answers.put, 0.0)
        assert here.answers.get(timeout=WITHIN_S) == 0
        assert received.get(timeout=WITHIN_S) == b"now"
    finally:
        busy.close()
