"""Programs with a Ray of their own: no process is left, and nodes may be added, drained or lost.

They are programs because a process can use one Ray only, and the tests use theirs already.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sunshower.actors.flight_recorder import folder_of
from tests.leftovers import check_program, left_behind, marked

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_program_leaves_no_process_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    environment = {**marked(), "PYTHONPATH": str(ROOT)}
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.actors.programs.interrupted", tmp_path],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        run = program.stdout.readline().strip()
        assert folder_of(run).exists()
        program.send_signal(number)
    # For a minute, Ray's agent tries to reach the Ray that has ended.
    assert not left_behind(environment, grace_s=180)
    assert number is signal.SIGKILL or not folder_of(run).exists()


@pytest.mark.long
def test_processes_on_another_machine_are_paused_and_killed(tmp_path: Path) -> None:
    check_program("tests.actors.programs.two_nodes", tmp_path)


@pytest.mark.long
def test_replaced_worker_starts_although_ray_does_not_know_yet_which_node_is_cut_off(
    tmp_path: Path,
) -> None:
    check_program("tests.actors.programs.cut_off_node", tmp_path)


@pytest.mark.long
def test_as_many_workers_as_nodes_are_on_one_node_each(tmp_path: Path) -> None:
    check_program("tests.actors.programs.spread", tmp_path)


@pytest.mark.long
def test_workers_move_to_a_new_node_and_leave_a_drained_one_without_a_loss(
    tmp_path: Path,
) -> None:
    check_program("tests.actors.programs.drained", tmp_path)


@pytest.mark.long
def test_workers_are_where_their_requests_fit_and_those_that_do_not_fit_are_reported(
    tmp_path: Path,
) -> None:
    check_program("tests.actors.programs.resource_requests", tmp_path)


@pytest.mark.long
def test_the_autoscaler_adds_the_node_that_a_worker_waits_for(tmp_path: Path) -> None:
    check_program("tests.actors.programs.autoscaled", tmp_path)


@pytest.mark.long
def test_a_head_whose_tables_are_in_redis_is_restarted_without_loss(tmp_path: Path) -> None:
    check_program("tests.actors.programs.restarted_head", tmp_path)
