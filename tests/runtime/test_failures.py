"""A failure as text: cause, place and reason, each only where it is known."""

from __future__ import annotations

import pytest

from sunshower import Cause, Failure


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Failure(Cause.TIMEOUT), "timeout"),
        (Failure(Cause.FAILED, "count", 2, "no word"), "failed by bolt in count[2]: no word"),
        (
            Failure(Cause.ACTOR_DIED, "__acker", reason="a report was lost"),
            "actor died in __acker: a report was lost",
        ),
    ],
)
def test_text_names_a_task_only_if_the_failure_has_one(failure: Failure, text: str) -> None:
    assert str(failure) == text
