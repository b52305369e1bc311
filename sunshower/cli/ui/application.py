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

from sunshower.cli.ui.experiments import ExperimentFolders
from sunshower.cli.ui.protection import TOKEN_HEADER, Protection, has_token
from sunshower.cli.ui.source import Facts, TopologySource
from sunshower.errors import SunshowerError
from sunshower.texts import json_of

CONDITIONS = ("component", "cause", "text", "since", "until")  # that select dead letters
STATIC = Path(__file__).parent / "static"
_BODY_BYTES = 4096  # of an action


def make_application(
    source: TopologySource,
    token: str,
    hosts: Collection[str],
    experiments: ExperimentFolders | None = None,
) -> Starlette:
    """The application. `token`: what actions need; `hosts`: see `is_own_host`; `experiments`: None
    has no runs."""
    return Starlette(
        routes=[
            Route("/", _page),
            Mount("/static", _Static(directory=STATIC)),
            Route("/api/topologies", _reading(lambda _: {"topologies": source.topologies()})),
            Route(
                "/api/topology",
                _reading(partial(_topology, source), "name", optional=("window",)),
            ),
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
            Route("/api/letters", _reading(partial(_letters, source), "name", optional=CONDITIONS)),
            Route(
                "/api/letter",
                _reading(lambda q: source.letter(q["name"], q["letter"]), "name", "letter"),
            ),
            Route("/api/replay", _reading(lambda q: source.replay_progress(q["name"]), "name")),
            Route("/api/replay", _acting(partial(_replay, source), token), methods=["POST"]),
            *(_experiment_routes(experiments) if experiments else ()),
            Route("/api/action", _acting(partial(_act, source), token), methods=["POST"]),
        ],
        middleware=[Middleware(Protection, hosts=hosts)],
    )


def _experiment_routes(source: ExperimentFolders) -> list[Route]:
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
    """Files that browsers may keep, and ask for again: an update must not need a reload. They are
    small, so each is read at once, not in three steps on other threads as a FileResponse is."""

    def file_response(self, *given: Any, **named: Any) -> Response:
        found = super().file_response(*given, **named)
        if isinstance(found, FileResponse):
            found = Response(Path(found.path).read_bytes(), headers=found.headers)
        found.headers["Cache-Control"] = "no-cache"
        return found


def _page(_: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})


def _topology(source: TopologySource, given: dict[str, str]) -> Facts:
    found = source.topology(given["name"], given.get("window"))
    return {**found, "actions": source.actions()}


def _letters(source: TopologySource, given: dict[str, str]) -> Facts:
    return source.letters(given.pop("name"), given)


def _reading(
    read: Callable[[dict[str, str]], Facts | Response],
    *parameters: str,
    optional: Collection[str] = (),
) -> Callable[[Request], Response]:
    """A route that answers with what `read` returns for these query parameters, without `optional`
    ones that are not given or empty; facts as JSON."""

    def answer(request: Request) -> Response:
        given = {name: request.query_params.get(name) for name in parameters}
        found = {name: value for name, value in given.items() if value is not None}
        found |= {name: request.query_params[name] for name in optional
                  if request.query_params.get(name)}  # fmt: skip
        if len(found) < len(given):
            return _json({"error": f"give these parameters: {', '.join(parameters)}"}, 400)
        try:
            answered = read(found)
            return answered if isinstance(answered, Response) else _json(answered)
        except SunshowerError as error:
            return _json({"error": str(error)}, 404)

    return answer


def _acting(
    prepare: Callable[[bytes], Callable[[], str]], token: str
) -> Callable[[Request], Awaitable[Response]]:
    """A route that does what `prepare` returns for a body; that raises ValueError for a wrong one.
    Without the token it does nothing."""

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
            do = prepare(await _body(request))
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        try:
            said = await run_in_threadpool(do)
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


def _replay(source: TopologySource, body: bytes) -> Callable[[], str]:
    """The replay that a body asks for. Raises ValueError."""
    match _loaded(body):
        case {"name": str(name), "letters": dict(chosen)} if chosen.keys() <= {
            *CONDITIONS,
            "letter",
        } and all(isinstance(value, str) for value in chosen.values()):
            return partial(source.replay, name, {k: value for k, value in chosen.items() if value})
    raise ValueError(
        'a replay is such as {"name": "words", "letters": {"cause": "exception"}}; conditions are '
        f"texts: letter, {', '.join(CONDITIONS)}"
    )


def _loaded(body: bytes) -> Any:
    """The value of a JSON text; None for one that is nested too deeply. Raises ValueError."""
    try:
        return json.loads(body)
    except RecursionError:
        return None


def _act(source: TopologySource, body: bytes) -> Callable[[], str]:
    """The action that a body asks for. Raises ValueError."""
    actions = source.actions()
    given = _loaded(body)
    match given:
        case {"name": str(name), "action": str(action)}:
            workers = given.get("workers")
        case _:
            raise ValueError('an action is such as {"name": "words", "action": "activate"}')
    if action not in actions:
        raise ValueError(f"there is no action {action!r}; there are: {', '.join(actions)}")
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ValueError("workers is a number from 1 up, or null")
    return partial(source.act, name, action, workers)


def _json(facts: Facts, status: int = 200) -> Response:
    return Response(json_of(facts), status, media_type="application/json")
