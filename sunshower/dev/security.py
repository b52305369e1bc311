"""Test certificates, and settings of servers with them; separate because they need cryptography."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sunshower.dev.servers import HOST
from sunshower.errors import Unobtainable
from sunshower.installed import check_packages

_VALID = timedelta(days=30)
_AUTHORITY = "Sunshower throw-away authority"


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
    check_packages("servers", "which makes certificates", "cryptography", error=Unobtainable)
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now, pem = datetime.now(UTC), serialization.Encoding.PEM

    def sign(holder: str, key: Any, *extensions: x509.ExtensionType) -> bytes:
        """A certificate of a holder's public key by the authority, as PEM."""
        names = [
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
            for name in (holder, _AUTHORITY)
        ]
        draft = (
            x509.CertificateBuilder(names[1], names[0], key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))  # tolerates clock skew
            .not_valid_after(now + _VALID)
        )
        for extension in (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), *extensions):
            limits = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
            draft = draft.add_extension(extension, critical=limits)
        return draft.sign(ca_key, hashes.SHA256()).public_bytes(pem)

    certificates = Certificates(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    # Python verifies these since 3.13 (VERIFY_X509_STRICT), and the identifiers of both keys.
    signs = dict.fromkeys(
        (
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
            *("key_agreement", "encipher_only", "decipher_only"),
        ),
        False,
    )
    ca_only = (
        x509.BasicConstraints(ca=True, path_length=0),
        x509.KeyUsage(key_cert_sign=True, crl_sign=True, **signs),
    )
    certificates.authority.write_bytes(sign(_AUTHORITY, ca_key, *ca_only))
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    here = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
    )
    for holder in holders:
        key = ec.generate_private_key(ec.SECP256R1())
        as_pem = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = certificates.holder(holder)
        file.touch(mode=0o600)
        file.write_bytes(as_pem + sign(holder, key, issuer, here))
    return certificates


USERS = ("alice", "bob")
_PEM = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True)
class Security:
    """Two more listeners for `Kafka(listeners=…, settings=…)`, with authentication.

        TLS    requires a certificate of our authority
        SASL   over TLS, with a user's password (mechanism PLAIN)

    Authorisation is on. Resources without an ACL allow everything to everybody, and clients of the
    unauthenticated listener are super users.
    """

    certificates: Certificates
    passwords: Mapping[str, str]  # by user

    @property
    def listeners(self) -> dict[str, str]:
        """The security protocols of the listeners, by name."""
        return {"TLS": "SSL", "SASL": "SASL_SSL"}

    @property
    def settings(self) -> dict[str, str]:
        """Settings for the broker's file."""
        users = " ".join(f'user_{user}="{password}"' for user, password in self.passwords.items())
        return {
            **_PEM,
            "ssl.keystore.location": str(self.certificates.holder("broker")),
            "ssl.truststore.location": str(self.certificates.authority),
            "listener.name.tls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f"{_LOGIN} required {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
        }

    def by_certificate(self, folder: Path | None = None) -> dict[str, str]:
        """Client settings for the listener TLS; `folder`: use the certificate of a client there."""
        shown = Certificates(folder) if folder else self.certificates
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.authority),
            "ssl.certificate.location": str(shown.holder("client")),
            "ssl.key.location": str(shown.holder("client")),
        }

    def by_password(self, user: str, password: str | None = None) -> dict[str, str]:
        """Client settings for the listener SASL."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.authority),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password or self.passwords[user],
        }


def secure(folder: Path) -> Security:
    """Issue certificates in `folder`, and generate new passwords. Raises Unobtainable."""
    certificates = issue(folder, "broker", "client")
    return Security(certificates, {user: secrets.token_hex(8) for user in USERS})
