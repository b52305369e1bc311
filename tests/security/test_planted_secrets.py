"""Searches the output, files and stored values of a topology on Ray for its secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray._private import worker
from ray.experimental import internal_kv
from typer.testing import CliRunner

from sunshower import Bolt, Number, RayCluster, Spout, Topology
from sunshower.actors import event_log_files
from sunshower.actors.names import NAMESPACE
from sunshower.actors.store import keys
from sunshower.cli import make_app
from sunshower.errors import ClusterError, TopologyFailed
from sunshower.experiments.experiment import Experiment, prepare
from sunshower.experiments.runner.experiment_runner import RunRequest, Variant, group_plan, run_plan
from sunshower.secret import Secret
from sunshower.state import RedisState
from tests.security.processes import arguments_of_others

WORD = "hunter2-planted-" + "q" * 8
URL = f"redis://me:{WORD}@127.0.0.1:1/0"


class Leaky(Bolt[Number, None]):
    """User code whose client repeats the password in its errors."""

    def __init__(self) -> None:
        self.state = RedisState(URL)
        self.word = Secret(WORD)

    def process(self, record: Number) -> None:
        raise ValueError(f"cannot use {self.state.url.reveal()} with {self.word.reveal()}")


class Numbers(Spout[Number]):
    def records(self) -> Iterator[Number]:
        return map(Number, range(10_000))


def leaky_topology() -> Topology:
    topology = Topology("leaky", workers=2, attempts_max=3)
    topology.spout("numbers", Numbers()).shuffle().bolt("leaky", Leaky())
    return topology


def keys_with_secret() -> list[str]:
    """Return the keys in Ray's store whose value contains the secret."""
    values = ((key, internal_kv._internal_kv_get(key, namespace=NAMESPACE)) for key in keys(""))
    return [key for key, value in values if WORD.encode() in (value or b"")]


def files_with_secret(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and WORD.encode() in path.read_bytes()
    ]


@pytest.mark.ray
def test_no_output_of_a_failing_topology_shows_a_secret(
    ray_cluster: RayCluster,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with caplog.at_level(logging.DEBUG):
        run = ray_cluster.submit(leaky_topology().graph(), sample=1)
        assert keys_with_secret() == [f"{run.id}/plan/0/"], "the workers need the secret"
        with pytest.raises(TopologyFailed) as raised:
            run.wait(150)
        overview = run.overview()
        history = event_log_files.find(run.id)
        assert history is not None
        for shown in (str(raised.value), repr(overview), repr(run.history())):
            assert WORD not in shown
        assert "•••" in str(overview.error)
        assert not files_with_secret(Path(history.path))
        assert WORD.encode() not in arguments_of_others()
        logs = Path(worker._global_node.get_logs_dir_path())
        run.stop()
        assert keys_with_secret() == []
        assert keys(run.id) == []
        assert not files_with_secret(logs)
    assert WORD not in caplog.text
    assert WORD not in "".join(capfd.readouterr())


class Unstartable(Leaky):
    def __getstate__(self) -> object:
        raise RuntimeError("cannot be pickled")


@pytest.mark.ray
def test_plans_are_removed_from_rays_store_however_a_run_ends(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    with RayCluster() as cluster:  # a client of the same Ray
        killed = cluster.submit(leaky_topology().graph(), active=False)
        killed.kill(0)
        assert keys_with_secret() == []

        at_once = cluster.submit(leaky_topology().graph(), active=False)
        at_once.kill_actors()  # the second Ctrl-C
        at_once.stop()
        at_once.stop()
        assert keys_with_secret() == []

        (tmp_path / "file").touch()
        with monkeypatch.context() as patch:
            patch.setattr("tempfile.tempdir", str(tmp_path / "file"))
            with pytest.raises(ClusterError, match="history cannot be kept"):
                cluster.submit(leaky_topology().graph(), sample=1)  # the plan was stored before
        assert keys_with_secret() == []

        lost = cluster.submit(leaky_topology().graph(), active=False)
        ray.kill(
            ray.get_actor(f"{lost.id}/master", namespace=NAMESPACE)
        )  # as an operator of Ray may do
        assert keys_with_secret() == [f"{lost.id}/plan/0/"]
        again = cluster.submit(leaky_topology().graph(), active=False)
        assert keys_with_secret() == [f"{again.id}/plan/0/"]
        lost.stop()

        other = RayCluster()  # another client of the same Ray
        other.find("leaky").stop()
        assert keys_with_secret() == []


# ---- in one process -----------------------------------------------------------------------------


def topology(password: str, rate: int) -> Topology:
    assert password
    declared = Topology("t")
    declared.spout("numbers", Numbers())
    return declared


@pytest.mark.parametrize("password", [WORD, Secret(WORD)])
def test_plan_files_of_experiments_contain_no_secret(password: object) -> None:
    experiment = Experiment(
        name="planted",
        topology=topology,
        plan=lambda: (),
        checkers=(),
        parameters={"password": WORD, "rate": 5},
        seconds_max=1.0,
    )
    chosen = {"password": password, "rate": 7}
    variants = [Variant(chosen, 1), Variant(chosen, 2)]
    request = RunRequest("file.py", "sim", None, ("password",))
    prepared = prepare(experiment, 1, chosen)
    files = (
        run_plan(request, prepared, variants[0]),
        group_plan(request, experiment, variants, "command"),
    )
    for content in files:
        assert WORD not in json.dumps(content, default=repr)
    assert "--set-from-file password=FILE" in files[0]["command"]
    assert prepared.parameters["rate"] == 7


@pytest.mark.parametrize(
    "command",
    [
        ["kafka", "lag", "words", "--set", f"sasl.password={WORD}"],
        ["kafka", "lag", "words", "--set", f"ssl.key.password={WORD}"],
        ["experiment", "run", "FILE", "--set", f"password={WORD}"],
    ],
)
def test_the_command_line_refuses_secrets_and_names_other_ways(
    command: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "planted.py"
    file.write_text(
        "from sunshower.experiments.experiment import Experiment\n"
        "from tests.security.test_planted_secrets import topology\n"
        'planted = Experiment(name="planted", topology=topology, plan=lambda: (), checkers=(),\n'
        '    parameters={"password": "none", "rate": 5}, seconds_max=1.0)\n'
    )
    done = CliRunner().invoke(
        make_app(), [str(file) if word == "FILE" else word for word in command]
    )
    assert done.exit_code == 2
    assert WORD not in done.output
    assert "--set-from-file" in done.output
    assert "--set-from-env" in done.output


def test_secrets_come_from_files_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sunshower.kafka.partitions import broker_offsets

    seen: dict[str, object] = {}
    monkeypatch.setattr(broker_offsets, "lags", lambda settings, *_: seen.update(settings) or [])
    (tmp_path / "word").write_text(WORD + "\n")
    monkeypatch.setenv("KEY_WORD", WORD + "2")
    done = CliRunner().invoke(
        make_app(),
        [
            *("kafka", "lag", "words", "--set-from-file", f"sasl.password={tmp_path / 'word'}"),
            *("--set-from-env", "ssl.key.password=KEY_WORD"),
        ],
    )
    assert done.exit_code == 0, done.output
    assert seen["sasl.password"] == Secret(WORD)
    assert seen["ssl.key.password"] == Secret(WORD + "2")
    assert WORD not in str(seen)
    for wrong in (["--set-from-file", "sasl.password"], ["--set-from-env", "=KEY_WORD"]):
        assert CliRunner().invoke(make_app(), ["kafka", "lag", "words", *wrong]).exit_code == 2
