"""Settings for brokers and clients that authenticate with TLS certificates or passwords."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sunshower.dev.certificates import Certificates, issue

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
