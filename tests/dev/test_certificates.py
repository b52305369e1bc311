"""Test certificates: peers that trust the same authority connect, all others are refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from sunshower.dev.security import Certificates, issue


def shake_hands(server: Certificates, client: Certificates) -> str:
    """The name by which the server knows its client, after a handshake in memory."""
    server_context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=str(server.authority)
    )
    server_context.verify_mode = ssl.CERT_REQUIRED
    server_context.load_cert_chain(server.holder("server"))
    client_context = ssl.create_default_context(cafile=str(client.authority))
    client_context.load_cert_chain(client.holder("client"))
    for context in (server_context, client_context):
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = server_context.wrap_bio(to_server, to_client, server_side=True)
    client_side = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    waiting = [client_side, server_side]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    peer = server_side.getpeercert()
    assert peer
    return str(peer["subject"][0][0][1])


def test_peers_that_trust_the_same_authority_connect(tmp_path: Path) -> None:
    certificates = issue(tmp_path, "server", "client")
    assert shake_hands(certificates, certificates) == "client"


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours = issue(tmp_path / "ours", "server", "client")
    others = issue(tmp_path / "others", "server", "client")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(ours, others)


def test_only_its_owner_can_read_a_key(tmp_path: Path) -> None:
    certificates = issue(tmp_path, "server")
    assert certificates.holder("server").stat().st_mode & 0o077 == 0
