"""What Ray itself prints stays apart from what a command prints."""

from __future__ import annotations

import pytest
from ray._private import worker

from sunshower.actors.cluster import RayCluster


@pytest.mark.ray
@pytest.mark.parametrize(("pid", "apart"), [("raylet", True), (4711, False)])
def test_notices_of_ray_go_to_the_standard_error(
    ray_cluster: RayCluster, capsys: pytest.CaptureFixture[str], pid: object, apart: bool
) -> None:
    worker.print_to_stdstream({"lines": ["a line"], "pid": pid, "is_err": False}, True)
    printed = capsys.readouterr()
    assert ("a line" in printed.err, "a line" in printed.out) == (apart, not apart)
