"""Six situations on a real Ray: the page, `status` and `top` name the cause in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sunshower.cli.profiles import recorded_profile
from sunshower.cli.ui.application import served_page
from sunshower.cli.ui.source import RaySource
from sunshower.runtime.plan import Layout
from tests.actors.programs.evidence import submitted
from tests.conftest import Sunshower
from tests.guarantee.deaths import until
from tests.web.conftest import TOKEN, Open
from tests.web.situations import SITUATIONS, broken_deploy, few_workers, skew

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

pytestmark = pytest.mark.browser
USUAL = (skew, few_workers, broken_deploy)  # in `make test`: a key, a thread, an error
LATE = "falls behind by"
WORDS = {  # topology → what is said everywhere
    "skew": ("One of the 4 tasks of score is", "a few keys have most of the load", LATE),
    "slow-store": ("its 2 tasks run its code", "such as a store", LATE),
    "few-workers": ("Worker 0 is full", "share one thread. More workers would help", LATE),
    "poison-key": ("customer='c-13', amount='12,5'",),
    "idle-source": ("It keeps up: its source orders has nothing more to emit.",),
    "broken-deploy": ("convert", "EXCHANGE_RATES_URL"),
}


@pytest.mark.parametrize(
    "situation",
    [
        situation if situation in USUAL else pytest.param(situation, marks=pytest.mark.long)
        for situation in SITUATIONS
    ],
)
def test_the_first_screen_names_the_cause(
    ray_cluster: RayCluster, sunshower: Sunshower, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, open_page: Open, situation: object,
) -> None:  # fmt: skip
    import ray

    assert callable(situation)
    topology = situation()
    name, address = topology.id, ray.get_runtime_context().gcs_address
    words = WORDS[name]
    monkeypatch.setenv("COLUMNS", "100")

    def printed(*command: str) -> str:
        capsys.readouterr()
        assert sunshower(*command, "--address", address) == 0
        return " ".join(capsys.readouterr().out.split())

    source = RaySource(ray_cluster.runs, ray_cluster.find, "kill", recorded_profile)
    with (
        submitted(ray_cluster, topology, layout=Layout.PACK) as run,
        served_page(source, TOKEN, port=0) as url,
    ):
        # Each is asked until it says so: other programs may fill the processors for a moment.
        until(lambda: all(word in printed("top", name, "--once") for word in words))
        until(lambda: all(word in printed("status", name) for word in words))
        page = open_page(url, f"#/t/{name}")
        for word in words:
            page.locator(".limit, .problems, .totals", has_text=word).first.wait_for()
            box = page.get_by_text(word).first.bounding_box()
            assert box is not None
            assert box["y"] < 800  # on the first screen
        check_inside(source, name, run.plan.graph.bolts[0].id)


def check_inside(source: RaySource, name: str, component: str) -> None:
    """The log, the code and a profile come from the processes of a cluster."""
    assert source.logs(name)["lines"]
    (part,) = source.code(name, component)["parts"]
    assert part["place"].startswith("situations.py:")
    assert "def process(self, record: Order)" in part["text"]
    if name == "few-workers":  # once is enough
        assert "samples of 1 worker" in source.profile(name, component, 1.0)
        assert source.profiled(name)["rows"][0][0] == component
        assert source.flame_graph(name).startswith("<?xml")
