"""Seeds of a test, of which `make test` runs the first ones and `make test-all` all."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(count: int, short: int) -> list[Any]:
    """Return 0 … `count` - 1; those from `short` on are marked `long`."""
    return [pytest.param(n, marks=pytest.mark.long) if n >= short else n for n in range(count)]
