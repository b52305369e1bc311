"""Checks that the packages of a connector are installed."""

from __future__ import annotations

from importlib.util import find_spec

from sunshower.errors import ConfigError


def check_package(package: str, extra: str, where: str) -> None:
    """Raise ConfigError, which names the extra, if `package` is not installed."""
    if find_spec(package) is None:
        raise ConfigError(f"{where} needs {package}, which is missing: make setup EXTRAS={extra}")
