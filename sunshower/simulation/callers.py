"""A simulated caller of a stream of requests, on a machine that never fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sunshower.errors import ClusterError, RequestError, SunshowerError, TopologyFailed, user_errors
from sunshower.runtime.request_calls import Caller
from sunshower.simulation.environment import SimEnvironment
from sunshower.simulation.network import SimProcess
from sunshower.topologies.requests import Reply, RequestProgress

_ADDRESS = -2  # nobody calls it


class SimCaller(SimProcess):
    """Sends one request until it is answered; `has_ended` then, or when it has failed."""

    def __init__(
        self,
        env: SimEnvironment,
        worker: Callable[[], int],
        name: str,
        value: Any,
        timeout_s: float,
    ) -> None:
        """`worker`: says which worker has the requests now."""
        super().__init__(env.world, env.conditions, _ADDRESS, "caller")
        id = f"{int(self._world.draw() * 2**53):x}"
        self._caller = Caller(name, value, timeout_s, id, self._world.now_s)
        self._name, self._worker, self._network = name, worker, env.network
        self._error: RequestError | None = None
        self._world.after(timeout_s, self._send, False)
        self._send()

    @property
    def has_ended(self) -> bool:
        """Whether there is an answer or an error."""
        return self._error is not None or self._caller.answer is not None

    @property
    def result(self) -> list[Any]:
        """The rows of the answer. Raises the error of the request."""
        if self._error is not None:
            raise self._error
        assert self._caller.answer is not None, "the request has not ended"
        return self._caller.answer

    def _send(self, goes_on: bool = True) -> None:
        if self.has_ended:
            return
        try:
            request = self._caller.request(self._world.now_s)
        except RequestError as error:
            self._error = error
            return
        if goes_on:
            failed = partial(self._network.unanswered, self, self._receive)
            given = (self, self._name, request, self._receive)
            self._network.call(self, self._worker(), "answer_caller", *given, failed=failed)

    def _receive(self, reply: Reply | RequestProgress | None) -> None:
        """Take the reply of the worker; None: it has died."""
        if not self.has_ended:
            try:
                self._caller.receive(reply or ClusterError("its worker does not answer"))
            except RequestError as error:
                self._error = error
            self._world.after(self._caller.wait_s, self._send)


@contextmanager
def user_code_of(topology: str) -> Iterator[None]:
    """Around a call of user code: raises TopologyFailed for errors that are not Sunshower's."""
    try:
        yield
    except SunshowerError:
        raise
    except user_errors() as error:
        raise TopologyFailed(
            f"topology {topology!r} was asked something and user code raised "
            f"{type(error).__name__}: {error}"
        ) from error
