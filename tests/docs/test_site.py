"""Builds the documentation site without warnings, and checks its links, hosts and reference."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

import pytest

from tests.docs.pages import BATCHES, STREAMS, TOPOLOGIES
from tests.structure.reading import ROOT
from tests.web.conftest import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PACKAGES = (
    "sunshower",
    "sunshower.kafka",
    "sunshower.connectors",
    "sunshower.trident",
    "sunshower.spark_integration",
    "sunshower.experiments",
    "sunshower.testing",
)
__all__ = ["browser"]  # a fixture

SEARCHES = {  # words → the page that is found first
    "windows": "WINDOWS",
    "join": "JOINS",
    "keyed state": "STATE",
    "timers": "TIMERS",
    "dead letters": "OPERATING",
    "exactly once": "EXACTLY_ONCE",
    "late records": "WINDOWS",
    "metrics": "METRICS",
}
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}

# The sections that these pages had before they were cut; old_addresses.js follows their addresses.
MOVED = {
    "TOPOLOGIES": """record-types which-types-a-field-may-have when-something-fails
        threads-of-your-own on-a-cluster from-python""",
    "STREAMS": """aggregates-of-totals keyed-state in-the-order-of-event-time
        three-failures-within-a-minute lists-and-maps several-streams-with-one-state
        distinct-records keyed-state-in-a-bolt query-state windows days-of-a-time-zone
        totals-per-local-day several-stages results-before-the-end-and-after-it
        show-numbers-before-the-minute-is-over times-in-the-future joins joins-without-a-limit
        tables enrich-by-the-price-at-that-time which-record-is-joined tables-in-memory
        records-without-a-partner request-and-answer""",
    "EXACTLY_ONCE": """what-you-can-write timers-order-patterns-joins-and-tables
        where-batches-come-from which-spouts-and-states-can-be-combined states when-windows-end
        how-to-choose-the-size-of-batches""",
}

pytestmark = pytest.mark.long


class Page(NamedTuple):
    """The ids, links and loaded files of a built page."""

    ids: set[str]
    links: list[str]
    loaded: list[str]  # what a browser loads with the page


class Reader(HTMLParser):
    """Collects the ids, the links and the loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.page = Page(set(), [], [])
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.page.ids.update({attributes["id"]} if "id" in attributes else ())
        if tag == "a" and "href" in attributes:
            self.page.links.append(attributes["href"])
        if tag in LOADED and LOADED[tag] in attributes:
            self.page.loaded.append(attributes[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A warning of the build is an error."""
    folder = tmp_path_factory.mktemp("site")
    strict = ["--quiet", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *strict, "-c", "docs/site", ".", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> Mapping[Path, Page]:
    return {path: Reader(path).page for path in site.rglob("*.html")}


def addresses(pages: Mapping[Path, Page]) -> Iterator[tuple[Path, str]]:
    for path, page in pages.items():
        yield from ((path, address) for address in [*page.links, *page.loaded])


def test_every_link_has_a_file_and_a_heading(pages: Mapping[Path, Page]) -> None:
    broken = []
    for path, address in addresses(pages):
        if re.match(r"[a-z]+:|//", address):
            continue
        file, _, anchor = unquote(address).partition("#")
        goal = (path.parent / file.partition("?")[0]).resolve() if file else path
        if not goal.is_file() or (anchor and goal in pages and anchor not in pages[goal].ids):
            broken.append(f"{path.name}: {address}")
    assert not broken


def test_a_section_that_moved_has_a_link_at_its_old_address(
    site: Path, pages: Mapping[Path, Page]
) -> None:
    for name, sections in MOVED.items():
        path = site / f"docs/{name}.html"
        links = {link.partition("#")[2]: link for link in pages[path].links}
        for section in sections.split():
            assert section not in pages[path].ids
            assert section in links, f"{path.name} has no link to {section}"
        assert 'src="../_static/old_addresses.js' in path.read_text(encoding="utf-8")


def test_a_browser_loads_nothing_from_another_host(site: Path, pages: Mapping[Path, Page]) -> None:
    foreign = [
        f"{path.name}: {address}"
        for path, page in pages.items()
        for address in page.loaded
        if re.match(r"https?:|//", address)
    ]
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        foreign += re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^\"')]*", text)
    assert not foreign


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_python_reference(
    pages: Mapping[Path, Page], package: str
) -> None:
    documented = {id for page in pages.values() for id in page.ids}
    exported = {
        id(getattr(import_module(other), name))
        for other in PACKAGES
        for name in import_module(other).__all__
        if f"{other}.{name}" in documented
    }
    module = import_module(package)
    assert not [name for name in module.__all__ if id(getattr(module, name)) not in exported]


def test_a_page_names_its_part_of_the_python_reference(
    site: Path, pages: Mapping[Path, Page]
) -> None:
    subjects = ("TOPOLOGIES", *TOPOLOGIES, "STREAMS", *STREAMS, "EXACTLY_ONCE", *BATCHES)
    for name in (*subjects, "KAFKA", "TUTORIAL"):
        links = pages[site / f"docs/{name}.html"].links
        assert any(link.startswith("api/") for link in links), name


@pytest.mark.browser
def test_a_browser_follows_an_old_address_and_finds_pages_first(
    site: Path, browser: Browser
) -> None:
    page = browser.new_page()
    page.goto(f"{(site / 'docs/STREAMS.html').as_uri()}#times-in-the-future")
    page.wait_for_url("**/docs/EVENT_TIME.html#times-in-the-future")
    first_pages = dict[str, str]()
    for words in SEARCHES:
        page.goto(f"{(site / 'search.html').as_uri()}?q={quote(words)}")
        link = page.locator("#search-results li a").first.get_attribute("href")
        first_pages[words] = Path(str(link).partition("#")[0].partition("?")[0]).stem
    assert first_pages == SEARCHES
    page.close()
