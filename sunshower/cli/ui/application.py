"""The HTTP interface of the page; separate because it serves any source of data, also a test's."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import json
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sunshower.cli.profiles import graph_policy
from sunshower.cli.ui.source import Facts, TopologySource
from sunshower.errors import ConfigError, ExperimentError, SunshowerError
from sunshower.experiments.outcome import Outcome
from sunshower.experiments.report.drawing import counted, outcome_summary
from sunshower.experiments.runner.run_folders import (
    PLAN,
    REPORT,
    RunFolder,
    facts_of,
    figures_of_all,
    points_of,
    run_paths,
)
from sunshower.texts import json_of

PROFILE_S = 5.0  # the length of a profile, in seconds
CONDITIONS = ("component", "cause", "text", "since", "until", "group")  # that select dead letters
STATIC = Path(__file__).parent / "static"
_BODY_BYTES = 4096  # of an action
_NO_CACHE = {"Cache-Control": "no-cache"}  # browsers ask again, so an update needs no reload


# ---- protection ----------------------------------------------------------------------------------
# Protects the page: checks the Host header, adds headers to answers, and checks the token.
#
# A page of another site can send requests to a server on loopback. It cannot read the answers,
# because they have no CORS headers. With a DNS name of its own that leads to this machine it
# could, so only names of this machine are accepted as Host. Such a page could still make the
# server work, so browsers that say that a request comes from another site get the page itself, and
# nothing else. Actions need a token that only the user has.

TOKEN_HEADER = "X-Sunshower-Token"  # noqa: S105 - the name of a header
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_OTHER_SITES = ("cross-site", "same-site")  # as browsers say in Sec-Fetch-Site


class Protection:
    """Refuses requests with a foreign Host header, or made by another site; adds HEADERS to every
    answer."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        if not is_own_host(headers.get("host", ""), self._hosts):
            refusal = PlainTextResponse(
                "The Host header names no address of this server. Open the page at the address "
                "that the command has printed.\n",
                status_code=400,
            )
            await refusal(scope, receive, with_headers)
        elif headers.get("sec-fetch-site") in _OTHER_SITES and scope["path"] != "/":
            refusal = PlainTextResponse("A page of another site asks.\n", status_code=403)
            await refusal(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)


def own_hosts(host: str) -> set[str]:
    """The names of this machine that browsers may use for a server that listens at `host`."""
    return {"localhost", host, socket.gethostname(), socket.getfqdn()}


def is_own_host(header: str, hosts: Collection[str]) -> bool:
    """Return whether a Host header is an IP address, which no DNS answer can redirect, or one of
    `hosts`."""
    name = header.lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in hosts
    return True


def has_token(request: Request, token: str) -> bool:
    """Return whether a request has the token, compared in constant time."""
    token_sent = request.headers.get(TOKEN_HEADER, "")
    return hmac.compare_digest(token_sent.encode(), token.encode())


# ---- experiments ---------------------------------------------------------------------------------

LISTED_MAX = 200
EVIDENCE_MAX = 200  # lines of one checker
RECOVERIES_MAX = 50
MEMBERS_MAX = 200  # of a sweep
_PLAN_FIELDS = ("about", "cluster", "topology", "layout", "seed", "parameters", "command", "begun",
                "ended")  # fmt: skip


class ExperimentFolders:
    """The runs below a folder. A run has the name NAME/TIME, and one of a sweep NAME/TIME/001.

    Called on several threads.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def experiments(self) -> dict[str, Any]:
        """The newest runs, LISTED_MAX at most, and how many there are."""
        paths = run_paths(self._root)
        rows = [self._row(path) for path in paths[:LISTED_MAX]]
        return {"folder": str(self._root), "count": len(paths), "runs": rows}

    def experiment(self, run: str) -> dict[str, Any]:
        """What the report of a run or a group has. Raises SunshowerError."""
        folder = self._folder(run)
        facts = {
            "run": run,
            "experiment": folder.name,
            "is_group": folder.is_group,
            **{name: folder.plan.get(name) for name in _PLAN_FIELDS},
            "verdict": folder.verdict,
            "facts": facts_of(folder.plan),
            "charts": sorted(path.stem for path in folder.path.glob("*.png")),
            "has_report": (folder.path / REPORT).is_file(),
        }
        if folder.is_group:
            return {**facts, **_group(folder)}
        if folder.is_over:
            return {**facts, **_outcome(folder.outcome)}
        error = None
        try:
            folder.outcome  # noqa: B018 - its error says why there is none, and the way out
        except ExperimentError as unfinished:
            error = str(unfinished)
        return {**facts, "error": error}

    def chart(self, run: str, name: str) -> bytes:
        """A chart of a run as PNG. Raises SunshowerError."""
        folder = self._folder(run)
        for path in folder.path.glob("*.png"):
            if path.stem == name:
                return path.read_bytes()
        raise ExperimentError(f"the run {run} has no chart {name!r}")

    def report(self, run: str) -> bytes:
        """The report of a run, an HTML page. Raises SunshowerError."""
        path = self._folder(run).path / REPORT
        if not path.is_file():
            raise ExperimentError(
                f"the run {run} has no {REPORT}; make one with: sunshower experiment show "
                f"{path.parent} --report"
            )
        return path.read_bytes()

    def _row(self, path: Path) -> dict[str, Any]:
        run = path.relative_to(self._root).as_posix()
        folder = RunFolder(path)
        try:
            members = len(folder.runs) if folder.is_group else None
            facts = {name: folder.plan[name] for name in ("experiment", "cluster", "seed", "begun")}
            return {"run": run, **facts, "members": members, "verdict": folder.verdict}
        except SunshowerError as error:
            return {"run": run, "experiment": path.parent.name, "error": str(error)}

    def _folder(self, run: str) -> RunFolder:
        """The folder of a run below the root, and no other folder."""
        parts = PurePosixPath(run).parts
        path = self._root.joinpath(*parts)
        is_name = len(parts) in (2, 3) and not {"..", "/"} & set(parts) and "\0" not in run
        if (
            is_name
            and (path / PLAN).is_file()
            and path.resolve().is_relative_to(self._root.resolve())
        ):
            return RunFolder(path)
        raise ExperimentError(f"there is no run {run!r} in {self._root}")


def _outcome(outcome: Outcome) -> dict[str, Any]:
    findings = [
        {
            **asdict(finding),
            "evidence": finding.evidence[:EVIDENCE_MAX],
            "evidence_count": len(finding.evidence),
        }
        for finding in outcome.findings
    ]
    return {
        "summary": outcome_summary(outcome),
        "findings": findings,
        "recoveries": [
            {**asdict(recovery), "seconds": recovery.seconds}
            for recovery in outcome.recoveries[:RECOVERIES_MAX]
        ],
        "recovery": {
            "count": len(outcome.recoveries),
            "longest_s": outcome.recovery_s,
            "never": outcome.never_recovered,
        },
        "figures": {**outcome.figures, "seconds": outcome.seconds},
        "versions": outcome.versions,
        "undone": outcome.undone,
    }


def _group(folder: RunFolder) -> dict[str, Any]:
    points = points_of(folder)
    rows = [{"run": name, **asdict(point)} for name, point in points]
    known = [point.recovery_s for _, point in points if point.recovery_s is not None]
    return {
        "summary": counted([point.verdict for _, point in points], "run"),
        "members": rows[:MEMBERS_MAX],
        "recovery": {
            "count": len(known),
            "longest_s": max(known, default=None),
            "never": sum(not point.recovers for _, point in points),
        },
        "figures": figures_of_all(folder) if folder.is_over else {},
    }


# ---- modules of the page -------------------------------------------------------------------------

_IMPORT = re.compile(r'^import (?:\* as (\w+)|(\{[^}]*\})) from "\./([\w./-]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|function|class) (\w+))", re.MULTILINE)


@cache
def page_modules() -> str:
    """`app.js` and the modules that it imports, as one module: a browser asks for one file, and not
    for forty, which wait for each other while the server reads a large topology. Each is a function
    that returns what it exports. The libraries in `vendor` stay files."""
    imports: list[str] = []
    parts: list[str] = []
    known: dict[str, str] = {}  # file → the variable that has its exports

    def variable_of(name: str) -> str:
        if name not in known:
            if name.startswith("vendor/"):
                known[name] = f"library{len(imports)}"
                imports.append(f'import * as {known[name]} from "./{name}";')
            else:
                text = _IMPORT.sub(imported, (STATIC / name).read_text(encoding="utf-8"))
                exports = ", ".join(_EXPORT.findall(text))
                known[name] = f"module{len(parts)}"
                body = f"{_EXPORT.sub('', text)}\nreturn {{ {exports} }};"
                parts.append(f"const {known[name]} = (() => {{\n{body}\n}})();")
        return known[name]

    def imported(statement: re.Match[str]) -> str:
        whole, names, name = statement.groups()
        return f"const {whole or names.replace(' as ', ': ')} = {variable_of(name)};"

    variable_of("app.js")
    return "\n".join([*imports, *parts])


# ---- application ---------------------------------------------------------------------------------


def make_application(
    source: TopologySource,
    token: str,
    hosts: Collection[str],
    experiments: ExperimentFolders | None = None,
) -> Starlette:
    """The application. `token`: what actions need; `hosts`: see `is_own_host`; `experiments`: None
    has no runs."""

    def topology(name: str, window: str | None = None) -> Facts:
        return source.topology(name, window) | {"actions": source.actions()}

    def letters(name: str, **chosen: str) -> Facts:
        return source.letters(name, chosen)

    def graph(name: str) -> Response:
        headers = {"Content-Security-Policy": graph_policy()}
        return Response(source.flame_graph(name), 200, headers, "image/svg+xml")

    def index(request: Request) -> Response:
        if request.headers.get("sec-fetch-site") not in _OTHER_SITES:
            source.look_ahead()
        return FileResponse(STATIC / "index.html", headers=_NO_CACHE)

    async def modules(_: Request) -> Response:
        return Response(page_modules(), media_type="text/javascript", headers=_NO_CACHE)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/static/page.js", modules),
            Mount("/static", _Static(directory=STATIC)),
            Route("/api/topologies", _reading(lambda: {"topologies": source.topologies()})),
            Route("/api/topology", _reading(topology, "name", optional=("window",))),
            Route("/api/component", _reading(source.component, "name", "component")),
            Route("/api/traces", _reading(source.traces, "name")),
            Route("/api/trace", _reading(source.trace, "name", "root")),
            Route("/api/letters", _reading(letters, "name", optional=CONDITIONS)),
            Route("/api/letter", _reading(source.letter, "name", "letter")),
            Route("/api/replay", _reading(source.replay_progress, "name")),
            Route("/api/replay", _acting(partial(_replay, source), token), methods=["POST"]),
            Route("/api/logs", _reading(source.logs, "name", optional=("component", "after"))),
            Route("/api/code", _reading(source.code, "name", "component")),
            Route("/api/state", _reading(source.state, "name", "component", optional=("key",))),
            Route(
                "/api/consequences",
                _reading(source.what_happens, "name", "action", optional=("workers",)),
            ),
            Route("/api/profile", _reading(source.profiled, "name")),
            Route("/api/profile", _acting(partial(_profile, source), token), methods=["POST"]),
            Route("/api/profile/graph", _reading(graph, "name")),
            *(_experiment_routes(experiments) if experiments else ()),
            Route("/api/action", _acting(partial(_act, source), token), methods=["POST"]),
        ],
        middleware=[Middleware(Protection, hosts=hosts)],
    )


def _experiment_routes(source: ExperimentFolders) -> list[Route]:
    """A report is offered as a file to save: as a part of this site its styles would not apply."""
    saved = {"Content-Disposition": 'attachment; filename="report.html"'}

    def chart(run: str, name: str) -> Response:
        return Response(source.chart(run, name), media_type="image/png")

    def report(run: str) -> Response:
        return Response(source.report(run), 200, saved, "text/html")

    return [
        Route("/api/experiments", _reading(source.experiments)),
        Route("/api/experiment", _reading(source.experiment, "run")),
        Route("/api/experiment/chart", _reading(chart, "run", "name")),
        Route("/api/experiment/report", _reading(report, "run")),
    ]


class _Static(StaticFiles):
    """Files that browsers may keep, and ask for again: an update must not need a reload. They are
    small, so each is read at once, not in three steps on other threads as a FileResponse is."""

    def file_response(self, *arguments: Any, **named: Any) -> Response:
        response = super().file_response(*arguments, **named)
        if isinstance(response, FileResponse):
            response = Response(Path(response.path).read_bytes(), headers=response.headers)
        response.headers.update(_NO_CACHE)
        return response


def _reading(
    read: Callable[..., Facts | Response],
    *parameters: str,
    optional: Collection[str] = (),
) -> Callable[[Request], Response]:
    """A route that answers with what `read` returns for these query parameters, by name, without
    `optional` ones that are not given or empty; facts as JSON."""

    def answer(request: Request) -> Response:
        values = {name: request.query_params.get(name) for name in parameters}
        chosen = {name: value for name, value in values.items() if value is not None}
        chosen |= {name: request.query_params[name] for name in optional
                  if request.query_params.get(name)}  # fmt: skip
        if len(chosen) < len(values):
            return _json({"error": f"give these parameters: {', '.join(parameters)}"}, 400)
        try:
            answered = read(**chosen)
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
            answer = await run_in_threadpool(do)
        except SunshowerError as error:
            return _json({"error": str(error)}, 409)
        return _json({"said": answer})

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


def _profile(source: TopologySource, body: bytes) -> Callable[[], str]:
    """The recording that a body asks for. Raises ValueError."""
    match _loaded(body):
        case {"name": str(name), "component": (str() | None) as component}:
            return partial(source.profile, name, component, PROFILE_S)
    raise ValueError('a profile is such as {"name": "words", "component": null}')


def _loaded(body: bytes) -> Any:
    """The value of a JSON text; None for one that is nested too deeply. Raises ValueError."""
    try:
        return json.loads(body)
    except RecursionError:
        return None


def _act(source: TopologySource, body: bytes) -> Callable[[], str]:
    """The action that a body asks for. Raises ValueError."""
    actions = source.actions()
    content = _loaded(body)
    match content:
        case {"name": str(name), "action": str(action)}:
            workers = content.get("workers")
        case _:
            raise ValueError('an action is such as {"name": "words", "action": "activate"}')
    if action not in actions:
        raise ValueError(f"there is no action {action!r}; there are: {', '.join(actions)}")
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ValueError("workers is a number from 1 up, or null")
    return partial(source.act, name, action, workers)


def _json(facts: Facts, status: int = 200) -> Response:
    return Response(json_of(facts), status, media_type="application/json")


# ---- server --------------------------------------------------------------------------------------

DEFAULT_PORT = 8127


@contextmanager
def served_page(
    source: TopologySource,
    token: str,
    host: str = "127.0.0.1",
    port: int | None = None,
    experiments: ExperimentFolders | None = None,
) -> Iterator[str]:
    """Serve the page; yields its address. `port`: 0 takes a free one; None takes 8127, or a free
    one if that is taken; `experiments`: None has no runs. Raises ConfigError if it cannot listen
    there."""
    with _listening(host, port) as listener:
        server = uvicorn.Server(
            uvicorn.Config(
                make_application(source, token, own_hosts(host), experiments),
                log_level="critical",  # not the requests that the end cancels
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
            )
        )
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        shown = f"[{host}]" if listener.family == socket.AF_INET6 else host
        try:
            yield f"http://{shown}:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


def _listening(host: str, port: int | None) -> socket.socket:
    try:
        return _listen(host, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return _listening(host, 0)
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {error}. Choose another --host or --port; "
            "--port 0 takes a free one"
        ) from error


def _listen(host: str, port: int) -> socket.socket:
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    family, kind, protocol, _, address = addresses[0]
    # Without the protocol, asyncio leaves Nagle's algorithm on: 40 ms more for each answer.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener
