"""A session that dies before its first words: the next one begins anew."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.spark.conftest import obtain

PROGRAM = """
from sunshower.spark_integration.sessions import local_spark as local

lives, warm = [], local.LocalSession.warm


def warmed(session):
    lives.append(session)
    if len(lives) == 1:
        session._java.kill()
    warm(session)


local.LocalSession.warm = warmed
place = local.LocalSpark(cores=1, memory="512m")
try:
    local.LocalSession(place)
except Exception:
    print("did not open, java ended:", lives[0]._java.poll() is not None)
session = local.LocalSession(place)
print("opened:", session.alive(), session.owned)
session.stop()
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_java_that_dies_while_a_session_opens_does_not_keep_the_next_one_from_opening() -> None:
    obtain()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-2:] == [
        "did not open, java ended: True",
        "opened: True True",
    ], done.stderr
