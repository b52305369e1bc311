"""The HTTP interface of the page: its files, plain data as JSON, and actions behind a token."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sunshower.errors import SunshowerError
from sunshower.texts import json_of
from sunshower.web.protection import TOKEN_HEADER, Protection, has_token
from sunshower.web.source import ExperimentSource, TopologySource

STATIC = Path(__file__).parent / "static"
_BODY_BYTES = 4096  # of an action


def make_application(
    source: TopologySource,
    token: str,
    hosts: Collection[str],
    experiments: ExperimentSource | None = None,
) -> Starlette:
    """The application. `token`: what actions need; `hosts`: see `is_own_host`; `experiments`: None
    has no runs."""
    return Starlette(
        routes=[
            Route("/", _page),
            Mount("/static", _Static(directory=STATIC)),
            Route("/api/topologies", _reading(lambda _: {"topologies": source.topologies()})),
            Route("/api/topology", _reading(partial(_topology, source), "name")),
            Route(
                "/api/component",
                _reading(
                    lambda q: source.component(q["name"], q["component"]), "name", "component"
                ),
            ),
            Route("/api/traces", _reading(lambda q: source.traces(q["name"]), "name")),
            Route(
                "/api/trace",
                _reading(lambda q: source.trace(q["name"], q["root"]), "name", "root"),
            ),
            *(_experiment_routes(experiments) if experiments else ()),
            Route("/api/action", _acting(source, token), methods=["POST"]),
        ],
        middleware=[Middleware(Protection, hosts=hosts)],
    )


def _experiment_routes(source: ExperimentSource) -> list[Route]:
    """A report is offered as a file to save: as a part of this site its styles would not apply."""
    saved = {"Content-Disposition": 'attachment; filename="report.html"'}
    return [
        Route("/api/experiments", _reading(lambda _: source.experiments())),
        Route("/api/experiment", _reading(lambda q: source.experiment(q["run"]), "run")),
        Route(
            "/api/experiment/chart",
            _reading(
                lambda q: Response(source.chart(q["run"], q["name"]), media_type="image/png"),
                "run",
                "name",
            ),
        ),
        Route(
            "/api/experiment/report",
            _reading(lambda q: Response(source.report(q["run"]), 200, saved, "text/html"), "run"),
        ),
    ]


class _Static(StaticFiles):
    """Files that browsers may keep, and ask for again: an update must not need a reload."""

    def file_response(self, *given: Any, **named: Any) -> Response:
        found = super().file_response(*given, **named)
        found.headers["Cache-Control"] = "no-cache"
        return found


def _page(_: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})


def _topology(source: TopologySource, given: dict[str, str]) -> dict[str, Any]:
    return {**source.topology(given["name"]), "actions": source.actions()}


def _reading(
    read: Callable[[dict[str, str]], dict[str, Any] | Response], *parameters: str
) -> Callable[[Request], Response]:
    """A route that answers with what `read` returns for these query parameters; facts as JSON."""

    def answer(request: Request) -> Response:
        given = {name: request.query_params.get(name) for name in parameters}
        found = {name: value for name, value in given.items() if value is not None}
        if len(found) < len(parameters):
            return _json({"error": f"give these parameters: {', '.join(parameters)}"}, 400)
        try:
            answered = read(found)
            return answered if isinstance(answered, Response) else _json(answered)
        except SunshowerError as error:
            return _json({"error": str(error)}, 404)

    return answer


def _acting(source: TopologySource, token: str) -> Callable[[Request], Awaitable[Response]]:
    async def act(request: Request) -> Response:
        if not has_token(request, token):
            return _json(
                {
                    "error": "this needs the token that the command printed when it started, in "
                    f"the header {TOKEN_HEADER}"
                },
                401,
            )
        try:
            name, action, workers = _parse_action(await _body(request), source.actions())
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        try:
            said = await run_in_threadpool(source.act, name, action, workers)
        except SunshowerError as error:
            return _json({"error": str(error)}, 409)
        return _json({"said": said})

    return act


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _BODY_BYTES:
            raise ValueError(f"the body of an action has at most {_BODY_BYTES:,} bytes")
    return body


def _parse_action(body: bytes, actions: Collection[str]) -> tuple[str, str, int | None]:
    """The topology, the action and the number of workers. Raises ValueError."""
    try:
        given = json.loads(body)
    except RecursionError:
        given = None
    match given:
        case {"name": str(name), "action": str(action)}:
            workers = given.get("workers")
        case _:
            raise ValueError('an action is such as {"name": "words", "action": "activate"}')
    if action not in actions:
        raise ValueError(f"there is no action {action!r}; there are: {', '.join(actions)}")
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ValueError("workers is a number from 1 up, or null")
    return name, action, workers


def _json(facts: dict[str, Any], status: int = 200) -> Response:
    return Response(json_of(facts), status, media_type="application/json")
