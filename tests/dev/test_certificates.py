"""Test certificates: peers that trust the same authority connect, all others are refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from sunshower.dev.certificates import Certificates, issue


def shake_hands(server: Certificates, client: Certificates) -> str:
    """The name by which the server knows its client, after a handshake in memory."""
    hall = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(server.authority))
    hall.verify_mode = ssl.CERT_REQUIRED
    hall.load_cert_chain(server.holder("server"))
    guest = ssl.create_default_context(cafile=str(client.authority))
    guest.load_cert_chain(client.holder("client"))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    inside = hall.wrap_bio(there, back, server_side=True)
    outside = guest.wrap_bio(back, there, server_hostname="127.0.0.1")
    waiting = [outside, inside]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    peer = inside.getpeercert()
    assert peer
    return str(peer["subject"][0][0][1])


def test_who_trusts_the_same_authority_is_let_in(tmp_path: Path) -> None:
    made = issue(tmp_path, "server", "client")
    assert shake_hands(made, made) == "client"


def test_a_stranger_is_refused(tmp_path: Path) -> None:
    ours = issue(tmp_path / "ours", "server", "client")
    others = issue(tmp_path / "others", "server", "client")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(ours, others)


def test_a_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    made = issue(tmp_path, "server")
    assert made.holder("server").stat().st_mode & 0o077 == 0
