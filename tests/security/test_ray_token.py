"""Ray's token authentication refuses clients that do not have the cluster's token."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import ray

pytestmark = [pytest.mark.ray, pytest.mark.long]  # Ray's client gives up after 20 s


@pytest.mark.parametrize(
    "settings",
    [{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, {"RAY_AUTH_MODE": "disabled"}],
    ids=["another token", "none"],
)
def test_a_client_with_another_token_is_refused(
    ray_cluster: object, settings: dict[str, str]
) -> None:
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, "-m", "sunshower", "list", "--address", address],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"no Ray cluster answers at {address!r}" in done.stderr
    assert "RAY_AUTH_TOKEN_PATH" in done.stderr
