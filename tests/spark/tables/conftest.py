"""Skips fsync, which is slow on a busy disk."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", int)
