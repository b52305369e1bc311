"""Issues test certificates: an authority, and holders with a key each, as PEM files."""

from __future__ import annotations

import importlib.util
import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower.dev.ports import HOST
from sunshower.errors import Unobtainable

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder

_VALID = timedelta(days=30)


@dataclass(frozen=True)
class Certificates:
    """Certificate files for servers and clients on this machine.

    Each holder has one file with its key (PKCS#8, no password) and its certificate. Java servers
    use it as a keystore of type PEM, OpenSSL clients as both key file and certificate file.
    """

    folder: Path

    @property
    def authority(self) -> Path:
        """The CA certificate, which all servers and clients trust."""
        return self.folder / "authority.pem"

    def holder(self, name: str) -> Path:
        """The file of a holder that `issue` was called with."""
        return self.folder / f"{name}.pem"


def issue(folder: Path, *holders: str) -> Certificates:
    """Create a new authority and certificates for this machine.

    Each holder's common name is its name. All are valid for 127.0.0.1 and localhost, for servers
    and clients, for 30 days. Raises Unobtainable if the package `cryptography` is missing.
    """
    if not importlib.util.find_spec("cryptography"):
        raise Unobtainable(
            "certificates are made with the package cryptography, and it is missing: "
            "make setup EXTRAS=servers"
        )
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    made = Certificates(folder)
    folder.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _named("Sunshower throw-away authority")
    constraint = x509.BasicConstraints(ca=True, path_length=0)
    authority = _sign(
        _draft(authority_name, authority_key)
        .issuer_name(authority_name)
        .add_extension(constraint, critical=True),
        authority_key,
    )
    made.authority.write_bytes(_pem(authority))
    here = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
    )
    for holder in holders:
        key = ec.generate_private_key(ec.SECP256R1())
        draft = _draft(_named(holder), key).issuer_name(authority_name)
        certificate = _sign(draft.add_extension(here, critical=False), authority_key)
        file = made.holder(holder)
        file.touch(mode=0o600)
        file.write_bytes(_key_pem(key) + _pem(certificate))
    return made


def _named(common_name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _draft(subject: x509.Name, key: EllipticCurvePrivateKey) -> CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # tolerates clock skew
        .not_valid_after(now + _VALID)
    )


def _sign(draft: CertificateBuilder, key: EllipticCurvePrivateKey) -> Certificate:
    from cryptography.hazmat.primitives import hashes

    return draft.sign(key, hashes.SHA256())


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
