"""Runs topologies on Ray: the production implementation of the `Cluster` port."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import ray

from sunshower.actors.names import NAMESPACE, run_of, topology_of
from sunshower.actors.starting import check_joined, start_ray, warn_of_other_settings
from sunshower.arguments import NONE, PATH, TEXT, AnyOf, checked
from sunshower.errors import ClusterError
from sunshower.runtime.plan import Layout, make_plan
from sunshower.topologies.graph import Graph

if TYPE_CHECKING:  # imported while Ray starts
    from sunshower.actors.run import RayRun
    from sunshower.runtime.cluster import Look
    from sunshower.runtime.control.savepoint import Savepoint


class RayCluster:
    """A local Ray that ends with this object, or a running one at `address`.

    Use it as a context manager: its end stops all submitted topologies, unless it is `detached`.
    In a process that is connected to Ray already, it uses that Ray. The files of `working_dir` are
    in the working directory of its workers, on all nodes. Raises ClusterError if Ray cannot be
    started or reached, or if the process is connected to another one than `address`.
    """

    name = "ray"

    @checked(ClusterError, address=AnyOf((TEXT, NONE)), working_dir=AnyOf((PATH, NONE)))
    def __init__(
        self,
        address: str | None = None,
        *,
        quiet: bool = True,
        detached: bool = False,
        working_dir: Path | None = None,
    ) -> None:
        self._owned = not ray.is_initialized()
        self._detached = detached
        self._runs: list[RayRun] = []
        if self._owned:
            threading.Thread(target=_load_meanwhile, name="loading", daemon=True).start()
            start_ray(address, quiet, working_dir)
            return
        if address is not None:
            check_joined(address)
        if working_dir is not None:
            raise ClusterError(
                "this process is connected to Ray already, so its workers' working directory "
                "cannot be changed: call ray.shutdown() first, or leave out working_dir"
            )

    def submit(
        self,
        graph: Graph,
        layout: Layout = Layout.PACK,
        *,
        active: bool = True,
        sample: int | None = None,
        resume: Savepoint | None = None,
        look: Look | None = None,
    ) -> RayRun:
        """Start a topology and wait until all its workers have joined; `look` is called with
        snapshots meanwhile. With `sample`, the event log has one tree in so many.

        The event log is kept in files on this machine until the topology is stopped, and uses its
        clock: a worker that starts on another machine fails. Raises ClusterError for that, if a
        topology of that name exists, and if its workers do not fit on the nodes: there is no limit
        to the wait for one that Ray's autoscaler may add. ExperimentError for a sample below 1;
        LifecycleError for a savepoint that does not fit.
        """
        from sunshower.actors.run import RayRun
        from sunshower.actors.store import claimed, remove_leftovers

        warn_of_other_settings()
        plan = make_plan(graph, layout)
        plan = plan if resume is None else resume.resumed(plan)
        run = RayRun(f"{graph.id}-{uuid.uuid4().hex[:8]}", plan)
        self._runs.append(run)
        with claimed(graph.id):  # until the master is registered, which `runs` then finds
            if graph.id in self.runs():
                raise ClusterError(
                    f"a topology {graph.id!r} is there already: `sunshower status {graph.id}` "
                    f"shows it, `sunshower kill {graph.id}` ends and removes it"
                )
            remove_leftovers(graph.id)
            if resume is None:
                graph.begin_outputs()
            run.create(active, sample, resume)
        run.start(look, resumes=resume is not None)
        return run

    def runs(self) -> dict[str, str]:
        """Topology → run, for all topologies on this cluster, from any client."""
        actors = ray.util.list_named_actors(all_namespaces=True)
        names = [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]
        return {topology_of(run): run for name in names if (run := run_of(name))}

    def find(self, topology: str) -> RayRun:
        """A topology that any client has submitted. Its plan has no user code. Raises ClusterError
        if it does not exist, VersionMismatch if a client of another release submitted it."""
        from sunshower.actors.run import RayRun
        from sunshower.actors.store import RayStore

        runs = self.runs()
        if topology not in runs:
            running = f"there are: {', '.join(sorted(runs))}" if runs else "none is there"
            raise ClusterError(
                f"there is no topology {topology!r} on this cluster; {running}. "
                "Start one with `sunshower submit FILE.py`"
            )
        RayStore(runs[topology]).check_version("this client")
        return RayRun(runs[topology])

    def close(self) -> None:
        """Stop the topologies submitted here, unless detached, and the Ray started here."""
        for run in () if self._detached else self._runs:
            run.stop()
        if self._owned:
            ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _load_meanwhile() -> None:
    """Import what the first topology needs: a start of Ray mostly waits for other processes."""
    import ray.util.serialization_addons

    import sunshower.actors.run  # noqa: F401

    with suppress(ImportError):  # no public API: see the pin of ray
        import ray._common.pydantic_compat  # noqa: F401
