"""Accesses Maven repositories through jgo, without mvn or Java."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from sunshower.errors import Unobtainable

_TIMEOUT_S = 60


def context(cache: Path) -> Any:
    """A jgo context that caches downloads in `cache`. Raises Unobtainable without jgo."""
    if not importlib.util.find_spec("jgo"):
        raise Unobtainable("jgo, which fetches it, is missing: make setup EXTRAS=servers")
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext

    named = GlobalSettings.load().repositories
    central = MavenContext().remote_repos
    return MavenContext(repo_cache=cache, remote_repos=central | named, timeout=_TIMEOUT_S)
