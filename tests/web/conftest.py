"""Fixtures for the tests of the page: a served page, requests to it, and a real Chromium."""

from __future__ import annotations

import http.client
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from sunshower.cli.ui.application import served_page
from tests.web.experiments.prepared_experiments import make_runs
from tests.web.prepared import PreparedSource, batches_of_words, late, quiet
from tests.web.prepared_letters import shop_with_letters

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOKEN = "a token that nobody guesses"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--no-first-run"]  # fmt: skip
# The milliseconds between the next 120 frames.
FRAMES = """() => new Promise((done) => {
  const times = [];
  let last = performance.now();
  const frame = (now) => {
    times.push(now - last);
    last = now;
    if (times.length < 120) requestAnimationFrame(frame);
    else done(times.slice(1));
  };
  requestAnimationFrame(frame);
})"""
Open = Callable[..., "Page"]


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: dict[str, str]  # names in lower case
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(url: str, path: str = "/", method: str = "GET", body: str = "", **headers: str) -> Answer:
    """Send a request. In the names of `headers`, `_` stands for `-`."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    sent_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body.encode(), sent_headers)
    answer = connection.getresponse()
    answer_headers = {name.lower(): value for name, value in answer.getheaders()}
    text = answer.read().decode(errors="replace")
    connection.close()
    return Answer(answer.status, answer_headers, text)


def violations(page: Page) -> list[str]:
    """Return axe-core's objections: contrast, names, landmarks, roles and states."""
    from axe_playwright_python.sync_playwright import Axe

    broken_rules = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html']}" for rule in broken_rules]


@pytest.fixture
def source(tmp_path: Path) -> PreparedSource:
    return PreparedSource(shop_with_letters(tmp_path), quiet(), batches_of_words(), late())


@pytest.fixture
def url(source: PreparedSource) -> Iterator[str]:
    with served_page(source, TOKEN, port=0) as address:
        yield address


@pytest.fixture(scope="session")
def prepared_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of experiments, made once: drawing the charts takes a second."""
    root = tmp_path_factory.mktemp("experiments") / "runs"
    make_runs(root)
    return root


@pytest.fixture
def runs(prepared_runs: Path, tmp_path: Path) -> Path:
    """A copy of `prepared_runs`."""
    return Path(shutil.copytree(prepared_runs, tmp_path / "runs", symlinks=True))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium of this machine. Without one the test is skipped, unless BROWSER_TESTS=1."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        why = "there is no Chromium on PATH: install Debian's package chromium"
        if os.environ.get("BROWSER_TESTS") == "1":
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Return a function that opens an address, in a size and a colour scheme. The test fails if the
    page reports an error, or sends a request to another server."""
    contexts = []
    errors: list[str] = []

    def open_address(
        url: str, path: str = "", width: int = 1280, scheme: str = "light", height: int = 800
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # enough for a busy machine
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console", lambda message: errors.append(message.text) if is_error(message) else None
        )
        page.on(
            "request",
            lambda request: None if request.url.startswith(url) else errors.append(request.url),
        )
        page.goto(url + path)
        return page

    def is_error(message: Any) -> bool:
        return message.type == "error" and not message.text.startswith("Failed to load resource")

    yield open_address
    for context in contexts:
        context.close()
    assert errors == []
