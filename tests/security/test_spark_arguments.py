"""The secret settings of a Spark session are not among the arguments of its JVM."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from sunshower.spark_integration.sessions.local_spark import LocalSession, LocalSpark
from tests.security.processes import arguments_of_others

WORD = "hunter2-planted"
KEY = "spark.hadoop.fs.s3a.secret.key"
SHOWN = "spark.sunshower.shown"

pytestmark = pytest.mark.spark


def start_and_inspect() -> tuple[bytes, list[str]]:
    """Start a session. Return the arguments of all other processes, and the JVM's secrets."""
    session = LocalSession(LocalSpark(cores=1, settings={KEY: WORD, SHOWN: "visible"}))
    try:
        arguments = arguments_of_others()
        context = session.spark.sparkContext
        hadoop = context._jsc.hadoopConfiguration()
        return arguments, [context.getConf().get(KEY), hadoop.get("fs.s3a.secret.key")]
    finally:
        session.stop()


def test_the_jvm_starts_without_secrets_and_receives_them_afterwards() -> None:
    # In its own process, because the sessions of a process share its JVM.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        arguments, secrets = process.submit(start_and_inspect).result()
    assert WORD.encode() not in arguments
    assert f"{SHOWN}=visible".encode() in arguments, "other settings are arguments"
    assert secrets == [WORD, WORD]
