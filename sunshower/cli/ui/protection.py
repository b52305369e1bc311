"""Protects the page: checks the Host header, adds headers to answers, and checks the token.

A page of another site can send requests to a server on loopback. It cannot read the answers,
because they have no CORS headers. With a DNS name of its own that leads to this machine it could,
so only names of this machine are accepted as Host. Such a page could still make the server work, so
browsers that say that a request comes from another site get the page itself, and nothing else.
Actions need a token that only the user has.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
                headers.update(HEADERS)
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
    given = request.headers.get(TOKEN_HEADER, "")
    return hmac.compare_digest(given.encode(), token.encode())
