"""HttpSink: sends each record to a URL with POST, and acks it after an answer of 2xx."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from string import punctuation
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from sunshower.arguments import COUNT, SECONDS, Instance, checked
from sunshower.clock import SystemClock
from sunshower.errors import ConfigError, HttpError, HttpRefused, HttpUnavailable
from sunshower.installed import check_packages
from sunshower.json_values import json_text
from sunshower.records import Schema
from sunshower.secret import Secret, address, is_secret, reveal, without_secrets
from sunshower.texts import clip, utf8
from sunshower.topologies.components import Bolt, Collector, Context, Stateless, Tuple
from sunshower.topologies.record_parts import Part, RecordParts

# Answers of 4xx that concern each record: the login, the rights or the URL, or the load of the
# server. So do 1xx, 3xx and 5xx.
_OF_EACH = {401, 402, 403, 404, 405, 407, 408, 410, 421, 425, 426, 429}
_RETRY_AFTER_MAX_S = 300.0
_ANSWER_BYTES = 500  # of the body of an answer, in errors
_READ_BYTES = 10_000  # of it at most: a connection whose answer is longer is not used again
_SECRET_HEADERS = {"authorization", "proxy-authorization", "cookie"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # the name of a header
_TEXT = re.compile(r"[ -~]*")  # its value
_SAFE = punctuation.replace("%", "")  # characters of an id that are not escaped in its header
_URL = Instance((str, Secret), 'a URL, such as "https://host/orders"', False, True)
_HEADER = Instance((str, Secret), "a text or a Secret", is_secret=True)


class _Item(NamedTuple):
    """An input, and what is sent for it."""

    tuple: Tuple[Any]
    body: str  # JSON
    id: str | None


_Items: TypeAlias = list[_Item]


class HttpSink(Stateless, Bolt[Any, None]):
    """Sends each record to `url` with POST, as JSON, and acks it after an answer of 2xx.

    `value`: a field's name, or a function of the record; by default the record is an object, field
    → value. `id`: the same for the header `Idempotency-Key`. With `records_max` above 1 a request
    has an array of up to so many records. Each task has `connections` requests on their way at a
    time. Without an answer within `timeout_s` seconds the records fail with the cause
    `unavailable`; docs/CONNECTORS.md has what follows each answer. Raises ConfigError when it is
    declared.
    """

    tick_s = 0.02  # settles requests while no tuples arrive
    writes_outside = True

    @checked(url=_URL, records_max=COUNT, connections=COUNT, timeout_s=SECONDS)
    def __init__(
        self,
        url: str | Secret,
        *,
        value: Part | None = None,
        id: Part | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        records_max: int = 1,
        connections: int = 8,
        timeout_s: float = 10.0,
    ) -> None:
        check_packages("http", "which HttpSink needs", "httpx2")
        self.url = address(url)
        if not _is_url(reveal(url)):
            raise ConfigError(f'HttpSink: {self.url} is not a URL, such as "https://host/orders"')
        self._where = f"HttpSink({self.url})"
        self.value, self.id = value, id
        self.records_max, self.connections, self.timeout_s = records_max, connections, timeout_s
        if id is not None and records_max > 1:
            raise ConfigError(
                f"{self._where}: a request of several records has no id, because a replay is sent "
                "with others: leave records_max at 1, or put the id into each value"
            )
        self.headers = _protected({} if headers is None else headers, self._where)
        self._reader = RecordParts(self._where)

    def check_input(self, schema: Schema) -> None:
        self._reader.check(schema, [self.value, *([] if self.id is None else [self.id])])

    def prepare(self, context: Context) -> None:
        import httpx2

        self._clock = context.clock
        self._collector: Collector[Any]  # the same object in each call
        self._value = self._reader.getter(self.value)
        self._id = None if self.id is None else self._reader.getter(self.id)
        self._batch: _Items = []
        self._waiting: deque[_Items] = deque()  # halves of a refused request
        self._sent: dict[Future[HttpError | None], _Items] = {}
        self._is_up = False  # the last answer was none of an outage
        self._away = HttpUnavailable(f"{self.url} was not asked")  # the last outage
        self._away_until_s = 0.0
        limits = httpx2.Limits(max_connections=self.connections)
        self._client = httpx2.Client(
            timeout=self.timeout_s,
            limits=limits,
            headers={name: reveal(value) for name, value in self.headers.items()},
        )
        self._threads = ThreadPoolExecutor(self.connections, "http-sink")

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Send the record, or add it to a batch; a later call settles it.

        At the start and after an outage it sends the record alone, and waits for the answer.
        Raises HttpUnavailable and HttpRefused then.
        """
        self._collector = out
        item = self._item(tuple)
        if not self._is_up:
            self._probe(item)
            return
        self._batch.append(item)
        if len(self._batch) >= self.records_max:
            self._send_batch()

    def flush(self) -> None:
        """Send what waits for a full batch, and settle requests that have an answer. On virtual
        time it waits for all answers, because time does not pass meanwhile."""
        if self._batch:
            self._send_batch()
        self._settle_answered()
        while self._sent and not isinstance(self._clock, SystemClock):
            wait(self._sent, return_when=FIRST_COMPLETED)
            self._settle_answered()

    def tick(self) -> None:
        """Settle requests that have an answer; `flush` does so after each tick."""

    def figures(self) -> dict[str, float]:
        return {"on their way": sum(map(len, [*self._sent.values(), *self._waiting]))}

    def cleanup(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._client.close()

    def _item(self, tuple: Tuple[Any]) -> _Item:
        id = None if self._id is None else quote(str(self._id(tuple.record)), _SAFE)
        return _Item(tuple, json_text(self._value(tuple.record)), id)

    def _probe(self, item: _Item) -> None:
        """Send a record alone. Raises HttpUnavailable and HttpRefused."""
        if self._clock.now() < self._away_until_s:
            raise self._away
        error = self._post([item])
        self._note(error)
        if error is not None:
            raise error
        self._collector.ack(item.tuple)

    def _send_batch(self) -> None:
        batch, self._batch = self._batch, []
        self._waiting.append(batch)
        self._send_waiting()
        while self._waiting:  # back-pressure: until a connection is free
            wait(self._sent, return_when=FIRST_COMPLETED)
            self._settle_answered()

    def _send_waiting(self) -> None:
        while self._waiting and len(self._sent) < self.connections:
            items = self._waiting.popleft()
            self._sent[self._threads.submit(self._post, items)] = items

    def _settle_answered(self) -> None:
        for future in [request for request in self._sent if request.done()]:
            items, error = self._sent.pop(future), future.result()
            self._note(error)
            if error is None:
                for item in items:
                    self._collector.ack(item.tuple)
            elif not isinstance(error, HttpRefused) or len(items) == 1:
                for item in items:
                    self._collector.fail(item.tuple, error)
            else:
                half = len(items) // 2
                self._waiting += [items[:half], items[half:]]
        if not self._is_up:
            while self._waiting:
                for item in self._waiting.popleft():
                    self._collector.fail(item.tuple, self._away)
        self._send_waiting()

    def _note(self, error: HttpError | None) -> None:
        """Remember whether the server is away, and until when no request may be sent."""
        now = self._clock.now()
        if isinstance(error, HttpUnavailable):
            until_s = now + min(error.retry_after_s, _RETRY_AFTER_MAX_S)
            self._away_until_s = max(self._away_until_s, until_s)  # of all requests on their way
            self._away = error
        is_up = error is None or isinstance(error, HttpRefused)
        self._is_up = is_up and now >= self._away_until_s

    def _post(self, items: _Items) -> HttpError | None:
        """Send a request; called in several threads. Returns the error, if there is one."""
        import httpx2

        ours = (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol)
        bodies = [item.body for item in items]
        text = bodies[0] if self.records_max == 1 else f"[{', '.join(bodies)}]"
        headers = {} if "content-type" in self.headers else {"content-type": "application/json"}
        if items[0].id is not None:
            headers["idempotency-key"] = items[0].id
        try:
            until_s = self._clock.now() + self.timeout_s
            with self._client.stream(
                "POST", reveal(self.url), content=utf8(text), headers=headers
            ) as answer:
                body = self._body(answer, until_s)
        except Exception as error:
            name = type(error).__name__
            if isinstance(error, httpx2.TransportError) and not isinstance(error, ours):
                why = without_secrets(f"{name}: {error}".removesuffix(": "))
                return HttpUnavailable(f"{self.url} does not answer ({why})")
            # Without the error's text, which may have a header in a form that hides no secret.
            return HttpRefused(f"{self.url}: the request cannot be sent ({name})")
        if answer.is_success:
            return None
        shown = clip(without_secrets(" ".join(body.split())), _ANSWER_BYTES)
        text = f"{self.url} answers {answer.status_code}{f': {shown}' if shown else ''}"
        if 400 <= answer.status_code < 500 and answer.status_code not in _OF_EACH:
            return HttpRefused(text)
        return HttpUnavailable(text, _seconds(answer.headers.get("retry-after", "")))

    def _body(self, answer: Any, until_s: float) -> str:
        """The text of an answer, or its beginning: if it is long, takes long or is cut off."""
        import httpx2

        data = bytearray()
        with suppress(httpx2.HTTPError):  # the status has arrived
            for part in answer.iter_bytes():
                data += part
                if len(data) > _READ_BYTES or self._clock.now() >= until_s:
                    break
        return data[:_READ_BYTES].decode(errors="replace")


def _protected(headers: Mapping[str, str | Secret], where: str) -> dict[str, str | Secret]:
    """The headers by their names in lower case; those that hold a secret are a Secret."""
    protected_headers: dict[str, str | Secret] = {}
    for name, value in headers.items():
        _HEADER.check(f"{where}: headers[{name!r}]", value)
        text = reveal(value)
        is_name = isinstance(name, str) and _TOKEN.fullmatch(name)
        if not is_name or text != text.strip() or not _TEXT.fullmatch(text):
            raise ConfigError(
                f"{where}: headers[{name!r}] is not a valid header: a name has letters, digits and "
                "hyphens, a value printable ASCII without spaces or newlines at its ends"
            )
        hides = name.lower() in _SECRET_HEADERS or is_secret(name)
        protected_headers[name.lower()] = (
            Secret(value) if hides and isinstance(value, str) else value
        )
    return protected_headers


def _is_url(text: str) -> bool:
    try:
        split = urlsplit(text)
        return split.scheme in {"http", "https"} and bool(split.hostname) and split.port != 0
    except ValueError:  # a port that is no number, or too large
        return False


def _seconds(retry_after: str) -> float:
    """The seconds of a header Retry-After: a number or a date; 0 for anything else."""
    try:
        if retry_after.isdecimal():
            return float(retry_after)
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
