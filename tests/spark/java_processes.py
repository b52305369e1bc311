"""Finds the Java processes of Spark that this process has started, directly or through Ray."""

from __future__ import annotations

from collections.abc import Collection

import psutil


def java_processes() -> list[psutil.Process]:
    """The Java processes that run now."""
    return [one for one in psutil.Process().children(recursive=True) if _is_java(one)]


def java_left(before: Collection[psutil.Process] = (), grace_s: float = 120.0) -> list[str]:
    """The commands of the processes that are not in `before`, and still run after `grace_s`."""
    started = [process for process in java_processes() if process not in before]
    _, alive = psutil.wait_procs(started, timeout=grace_s)
    return [" ".join(one.cmdline())[-120:] for one in alive]


def _is_java(process: psutil.Process) -> bool:
    try:
        return process.name() == "java" and "kafka.Kafka" not in process.cmdline()
    except psutil.NoSuchProcess:
        return False
