"""Passwords, keys and addresses that contain them, in a type that does not print them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, environ
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sunshower.arguments import TEXT, Instance, checked
from sunshower.errors import ConfigError

HIDDEN = "•••"
_SHORTEST = 4  # characters: to replace shorter texts would change too much else
# Settings of Kafka's and Spark's clients that hold a secret, by a part of their name.
_SECRET_NAME = re.compile(
    r"passw|passphrase|secret|token|credential|jaas|oauthbearer\.c|user\.info|\.pem$"
    r"|azure\.sas\.|(access|account|api|private|encryption)[._-]?key",
    re.IGNORECASE,
)
_OPEN_NAME = re.compile(
    r"location|endpoint|class|provider|callback|enable|timeout|renew", re.IGNORECASE
)
_URL = re.compile(r"(?P<scheme>[A-Za-z][\w+.:-]*://)(?:(?P<login>[^/?#;]*)@)?(?P<rest>[^?#@;]*)")
_PAIR = re.compile(r"\s*(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)+)\s*")
_PARAMETER = re.compile(  # a name; its quoted value, or the value up to a space, and up to & or ;
    r"([\w.-]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(?=((?:[^\s'\\]|\\.)+))([^\s&;]+))"
)
_OPEN_PAIRS = {"host", "hostaddr", "port", "dbname", "user", "sslmode"}


class Secret:
    """A text that `repr`, `str`, `format` and JSON do not show: they show `shown` instead.

    Accepted wherever a password, a setting or an address is given. The text is pickled with the
    topology, because workers need it; see docs/SECURITY.md.
    """

    __slots__ = ("_shown", "_text")

    def __init__(self, text: str, shown: str = HIDDEN) -> None:
        replace(TEXT, is_secret=True).check("Secret: text", text)
        TEXT.check("Secret: shown", shown)
        self._text, self._shown = text, shown
        _remember(text, shown)

    @classmethod
    @checked(ConfigError, "Secret.from_environment")
    def from_environment(cls, name: str) -> Secret:
        """The value of an environment variable of this process. Raises ConfigError."""
        if name not in environ:
            raise ConfigError(f"there is no environment variable {name}: set it to the secret")
        return cls(environ[name])

    @classmethod
    @checked(ConfigError, "Secret.from_file", path=Instance((str, PathLike), "a path", False))
    def from_file(cls, path: str | PathLike[str]) -> Secret:
        """The text of a file without the newlines at its end. Raises ConfigError."""
        try:
            return cls(Path(path).read_text(encoding="utf-8").rstrip("\r\n"))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigError(f"the secret in {path} cannot be read: {why}") from None

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return self._shown

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self._shown, spec)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return self._text.__hash__()

    def __reduce__(self) -> tuple[type[Secret], tuple[str, str]]:
        return Secret, (self._text, self._shown)


ADDRESS = Instance((str, Secret), 'an address, such as "postgresql://host/database"', False, True)


def reveal(value: Any) -> Any:
    """The text of a Secret; any other value as it is."""
    return value.reveal() if isinstance(value, Secret) else value


def address(url: str | Secret) -> Secret:
    """A URL or a connection string as a Secret that shows it without passwords."""
    if not isinstance(url, str):
        return url
    return Secret(url, shown(url))


def shown(url: str) -> str:
    """A URL or a connection string (`host=… dbname=…`) without passwords and parameters. A text
    that is neither is not shown at all, because a secret may be anywhere in it."""
    if (match := _URL.match(url)) is not None:
        login, rest = match["login"], match["rest"]
        if "@" in url[match.end() :]:
            return match["scheme"] + HIDDEN
        if login is not None:
            name, colon, _ = login.partition(":")
            rest = f"{name}:{HIDDEN}@{rest}" if colon else f"{HIDDEN}@{rest}"  # may be a token
        return match["scheme"] + rest + (f"?{HIDDEN}" if match.end() < len(url) else "")
    at, pairs = 0, []
    while (pair := _PAIR.match(url, at)) is not None:
        at = pair.end()
        pairs.append(f"{pair[1]}={pair[2] if pair[1].lower() in _OPEN_PAIRS else HIDDEN}")
    return " ".join(pairs) if pairs and at == len(url) else HIDDEN


def protected(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a client's settings in which those that hold secrets are a Secret."""
    return {name: _setting(name, value) for name, value in settings.items()}


def revealed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the settings for the client itself."""
    return {name: reveal(value) for name, value in settings.items()}


def is_secret(name: str) -> bool:
    """Whether a setting of that name holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _OPEN_NAME.search(name)


def _setting(name: str, value: Any) -> Any:
    if not isinstance(value, str) or not value:
        return value
    if is_secret(name):
        return Secret(value)
    return address(value) if "://" in value and shown(value) != value else value


# ---- texts of others ----------------------------------------------------------------------------

_known: dict[str, str] = {}  # the secrets of this process → what is shown instead


def _remember(text: str, shown: str) -> None:
    """Show this text as `shown` in `without_secrets`, and hide the passwords in it if it is an
    address."""
    login = (match["login"] or "") if (match := _URL.match(text)) else ""
    password = login.partition(":")[2]
    parts = re.split("[:@]", password)  # where a client may split it that is not ours
    for name, *values in _PARAMETER.findall(text):
        if is_secret(name):  # a timeout or a name may well be in other texts
            parts += [*values, *(re.sub(r"\\(.)", r"\1", value) for value in values)]
    if text != shown:  # else it is an address without a secret
        _hide(text, shown)
        _hide(unquote(text), unquote(shown))
    for secret in (password, *parts):
        _hide(secret, HIDDEN)
        _hide(unquote(secret), HIDDEN)


def _hide(text: str, shown: str) -> None:
    """Remember what is shown instead of a text: nothing of it if that differs from before."""
    if len(text) >= _SHORTEST:
        _known[text] = HIDDEN if _known.get(text, shown) != shown else shown


def without_secrets(text: str) -> str:
    """`text`, such as the message of a client's error, without the secrets of this process."""
    for secret in sorted(_known, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, _known[secret])
    return text
