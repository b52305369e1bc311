"""Makes the pictures in docs/images, and measures the page: `python -m tests.web.screenshots`.

`--measure` only measures, and prints the figures. With `--situations FOLDER` it runs those of
`situations.py` on a Ray of its own, and writes pictures of each in three widths and both colour
schemes into that folder, to look at.
"""

from __future__ import annotations

import io
import json
import pickle
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import cycle, product
from os import cpu_count, getloadavg
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, process_time
from typing import TYPE_CHECKING

from PIL import Image

from benchmarks import results_file
from benchmarks.machine import describe
from benchmarks.performance.page import FRAMES as FIGURES
from benchmarks.performance.page import write_page
from sunshower.cli.ui.application import served_page
from sunshower.cli.ui.source import FreshOverviews, TopologySource
from sunshower.errors import TopologyFailed
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.garbage import rare_collections
from tests.web.conftest import ARGUMENTS, FRAMES
from tests.web.prepared import Prepared, PreparedSource, huge
from tests.web.prepared_letters import shop_with_letters
from tests.web.situations import SITUATIONS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).resolve().parents[2] / "docs/images"
PICTURES = [  # name, width, height, colour scheme, address; LETTER: the newest with a traceback
    ("page-light", 1280, 860, "light", "#/t/web-shop"),
    ("page-dark", 1280, 1120, "dark", "#/t/web-shop/c/price"),
    ("page-narrow", 360, 1180, "light", "#/t/web-shop"),
    ("dead-letters", 1280, 900, "light", "#/t/web-shop/d/LETTER"),
]
_SAMPLES = 25  # seconds in the charts of a picture
_OPENINGS = 11  # of the measured page
_OVERVIEWS = 24  # different overviews of the measured page, one a second


class _ReadySource(PreparedSource):
    """Makes its overviews in advance, and unpickles them when they are needed, as with Ray."""

    look_ahead = TopologySource.look_ahead

    def __init__(self, prepared: Prepared, overviews: int) -> None:
        super().__init__(prepared)
        take = super()._overview
        (name,) = self.prepared
        self._ready = cycle([pickle.dumps(take(name)) for _ in range(overviews)])
        begin_s = self.now_s - monotonic()  # overviews are shared for half a second, as with Ray
        self._look = FreshOverviews(self._overview, lambda: begin_s + monotonic())

    def _overview(self, name: str) -> Overview:
        overview: Overview = pickle.loads(next(self._ready))
        return overview


def take(browser: Browser, url: str, letter: str) -> None:
    """Write the pictures. `letter`: the id of a dead letter."""
    for name, width, height, scheme, path in PICTURES:
        page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
        )
        page.goto(url + path.replace("LETTER", letter))
        page.locator(".node").first.wait_for()
        page.wait_for_function(
            "(least) => document.querySelector('.chart .plot')?.dataset.points > least",
            arg=_SAMPLES,
            timeout=120_000,
        )
        if "/c/" in path:
            page.locator(".panel details.error summary").first.click()
            page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        if "/d/" in path:
            page.locator(".letter").wait_for()
            page.evaluate("document.querySelector('.letters').scrollIntoView(); scrollBy(0, -12)")
        picture = Image.open(io.BytesIO(page.screenshot()))
        IMAGES.mkdir(exist_ok=True)
        picture.convert("RGB").quantize(192).save(IMAGES / f"{name}.png", optimize=True)
        page.close()


def measured(browser: Browser) -> dict[str, float]:
    """Measure a page of 50 components with 100 tasks each, in milliseconds: the time to open it,
    the times between frames, and the processor times of its thread and of the server, which other
    load of the machine changes little."""
    opened, frames, busy, served = [], [], [], []
    ready = _ReadySource(huge(), _OVERVIEWS)
    for _ in range(_OPENINGS):
        with rare_collections(), served_page(ready, "", port=0) as url:  # as opened_page does
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            devtools = page.context.new_cdp_session(page)
            devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
            before_s = process_time()
            page.goto(f"{url}#/t/huge")
            page.locator(".node").nth(49).wait_for()
            served.append(1e3 * (process_time() - before_s))
            opened.append(page.evaluate("performance.now()"))
            metrics = devtools.send("Performance.getMetrics")["metrics"]
            busy += [
                1e3 * metric["value"] for metric in metrics if metric["name"] == "TaskDuration"
            ]
            frames += page.evaluate(FRAMES)
            page.close()
    frames.sort()
    return {
        f"opened after, median of {_OPENINGS}": median(opened),
        f"processor time to open, median of {_OPENINGS}": median(busy),
        f"processor time of the server for it, median of {_OPENINGS}": median(served),
        **{f"between frames, p{p}": frames[len(frames) * p // 100] for p in (50, 95, 99)},
        f"between frames, longest of {len(frames)}": frames[-1],
    }


def write_figures(figures: Mapping[str, float]) -> None:
    """Write what was measured into benchmarks/results/page.json and docs/PERFORMANCE.md, with the
    load of a machine that does other work, too."""
    load, processors = getloadavg()[0], cpu_count() or 1
    beside = f" (load {load:.0f} on {processors} processors)" if load > processors else ""
    figures = {
        what if "processor" in what else f"{what}{beside}": value for what, value in figures.items()
    }
    common = {"unit": "ms", "date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": describe()["commit"]}
    rows = [{"what": what, "value": round(value, 1), **common} for what, value in figures.items()]
    FIGURES.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    write_page(results_file.read())


def take_situations(browser: Browser, folder: Path) -> None:
    """Write the first screens of the page of each situation, some seconds after its start."""
    from sunshower.actors.cluster import RayCluster
    from sunshower.cli.profiles import recorded_profile
    from sunshower.cli.ui.source import RaySource

    folder.mkdir(parents=True, exist_ok=True)
    with RayCluster() as cluster:
        source = RaySource(cluster.runs, cluster.find, "kill", recorded_profile)
        for situation in SITUATIONS:
            run = cluster.submit(situation().graph())
            with suppress(TopologyFailed):  # what the page of a broken one shows
                run.wait(15.0)
            with served_page(source, "", port=0) as url:
                for width, scheme in product((360, 1280, 1920), ("light", "dark")):
                    page = browser.new_page(
                        viewport={"width": width, "height": 900},
                        color_scheme=scheme,  # type: ignore[arg-type]
                    )
                    page.goto(f"{url}#/t/{run.topology}")
                    page.locator(".node").first.wait_for()
                    page.wait_for_timeout(2_500)  # until there are rates of seconds
                    page.screenshot(path=folder / f"{run.topology}-{width}-{scheme}.png")
                    page.close()
            run.stop()


def main() -> None:
    """Measure, and take the pictures, with the Chromium on PATH."""
    from playwright.sync_api import sync_playwright

    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--situations", type=Path, metavar="FOLDER")
    parser.add_argument("--measure", action="store_true", help="only measure and print")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        if options.situations is not None:
            take_situations(browser, options.situations)
            return
        figures = measured(browser)
        for what, value in figures.items():
            sys.stdout.write(f"{what}: {value:,.1f} ms\n")
        if options.measure:
            return
        write_figures(figures)
        with TemporaryDirectory(prefix="shop-") as folder:
            source = PreparedSource(shop_with_letters(Path(folder), 40))
            with served_page(source, "", port=0) as url:
                take(browser, url, source.letters("web-shop", {})["letters"][1]["letter"])
        browser.close()


if __name__ == "__main__":
    main()
