"""Ray's own words: kept off the screen from before it starts until after its end."""

from __future__ import annotations

from ray._private import worker as printing

from sunshower.actors.output import without_news, worker_output


def test_ray_is_silent_until_it_has_ended() -> None:
    assert printing._worker_logs_enabled
    with without_news():
        with worker_output(lambda *_: None):
            assert not printing._worker_logs_enabled
        assert not printing._worker_logs_enabled, "here Ray ends, and has news of the dead"
    assert printing._worker_logs_enabled
