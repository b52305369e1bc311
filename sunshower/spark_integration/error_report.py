"""Converts exceptions of Spark jobs to Sunshower errors with Python frames, not Java stacks."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from sunshower.errors import (
    RangeGone,
    SparkError,
    SparkLost,
    SparkUnavailable,
    TransformFailed,
    WriteFailed,
)
from sunshower.outages import is_unavailable
from sunshower.secret import without_secrets

_OUR_FOLDER = str(Path(__file__).parent)
_LIBRARIES = re.compile(r"[/\\](pyspark|py4j|raydp)[/\\]")
_PYTHON = re.compile(
    r"Traceback \(most recent call last\):\n.*?"
    r"(?=\n\s*at [\w$.]+\(|\n\s*(?:JVM|Driver) stacktrace:|\Z)",
    re.DOTALL,
)
_STACK = re.compile(
    r"\n\s*(at [\w$./]+\(|JVM stacktrace:|Driver stacktrace:|== SQL|\.\.\. \d+ more)"
)
# What follows a message, which may have several lines, also blank ones; its remedy is often in the
# last one.
_END = r"(?=\n\s*(?:at [\w$./]+\(|\.\.\. \d+ more|Driver stacktrace:)|\nCaused by: |\Z)"
_CAUSE = re.compile(
    r"(?:Caused by: [\w.$]+: (.*?)|\(executor [^)]*\): ([\w.$]+: .*?))"
    rf"{_END}",
    re.DOTALL,
)
# Spark's Kafka source reports this when offsets of its range have been removed.
_GONE = re.compile(r"Cannot fetch (?:offset|records in)[^\n]*(?=\n[^\n]*data may have been lost)")
_TRACE = "Traceback (most recent call last):\n"
_FULL_DISK = re.compile("No space left on device|Disk quota exceeded")
# Errors of files, file systems and disks; not of Spark or of what it computes.
_FILE_ERROR = re.compile(
    r"(?:java\.io|java\.nio\.file|org\.apache\.hadoop\.(?:fs|security))\.([\w.$]+: .*?)" + _END,
    re.DOTALL,
)


def error_text(error: BaseException) -> str:
    """The text of an exception. Java exceptions fetch it from the JVM, which may have ended."""
    try:
        return without_secrets(str(error))
    except Exception:
        return "its Java is gone"


def write_failure(error: BaseException) -> str:
    """Why a writer could not write a file; empty if its exception has another cause."""
    text = error_text(error)
    if isinstance(error, SparkError) or _PYTHON.search(text):
        return ""
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return f"{type(error).__name__}: {text}"
    causes = _FILE_ERROR.findall(text)
    return str(causes[-1]).strip() if causes else ""


def is_outage(error: BaseException) -> bool:
    """Whether waiting helps: `outages.py` classifies the error, or its text reports a full disk."""
    return is_unavailable(error) or _FULL_DISK.search(error_text(error)) is not None


def spark_error(error: BaseException, what: str, alive: bool) -> SparkError:
    """Convert the `error` of the job `what` to a SparkError. `alive` says whether the JVM still
    runs."""
    if isinstance(error, SparkError) and (alive or not isinstance(error, WriteFailed)):
        return error
    if not alive:
        return SparkLost(
            f"Spark died while it ran {what} ({_first_line(error)}); a new one is started"
        )
    if is_outage(error):
        why = _without_java(error_text(error))
        return SparkUnavailable(f"{what} waits: {type(error).__name__}: {why}")
    text = error_text(error)
    if match := _GONE.search(text):
        return RangeGone(
            f"{what} was to read what Kafka has removed: {match[0].rstrip('. ')}. Retention was "
            "faster than Spark, or the topic was created again: keep records until their batches "
            "are committed"
        )
    if match := _PYTHON.search(text):  # of a UDF, in one of Spark's Python workers
        trace, _, raised = match[0].strip().rpartition("\n")
        return TransformFailed(f"{what} failed in a function of its own: {raised}\n{trace}")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not _LIBRARIES.search(frame.filename) and not frame.filename.startswith(_OUR_FOLDER)
    ]
    raised = f"{type(error).__name__}: {_without_java(text)}"
    trace = "".join([_TRACE, *traceback.format_list(frames)] if frames else []).rstrip()
    return TransformFailed(f"{what} failed: {raised}\n{trace}".rstrip())


def _without_java(text: str) -> str:
    """The message of a Java error without its Java stack."""
    if "\n\tat " not in text:
        return text.strip()
    causes = [cause or other for cause, other in _CAUSE.findall(text)]
    return (causes[-1] if causes else _STACK.split(text, maxsplit=1)[0]).strip()


def _first_line(error: BaseException) -> str:
    lines = error_text(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
