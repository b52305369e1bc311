"""Whatever happens to a run, no record is missing from its window: at least once."""

from __future__ import annotations

import pytest

from sunshower.trident import sliding, tumbling
from tests.topologies.operators.windows.window_swarm import DISORDER, Click, hurt, model, noted

TUMBLING = tumbling(seconds=30, field="at", late=DISORDER)
SLIDING = sliding(seconds=30, every=10, field="at", late=DISORDER)


@pytest.mark.parametrize("seed", range(40))
def test_no_click_is_missing_from_its_windows(seed: int) -> None:
    window = (TUMBLING, SLIDING)[seed % 2]

    def windows_of(click: Click) -> list[float]:
        first = click.at - click.at % window.every + window.every
        return [first + n * window.every for n in range(window.panes)]

    found, expected = noted(hurt(seed, window)), model(seed, windows_of)
    missing = {p: (found[p], n) for p, n in expected.items() if max(found[p], default=0) < n}
    assert not missing, f"seed {seed}"
    assert found.keys() == expected.keys()
