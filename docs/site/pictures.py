"""Draws the pictures of the pages: `python docs/site/pictures.py` writes them to docs/images.

Each is an SVG for light and dark: its colours are variables, which follow the setting of the
reader's system, and on the site, where `conf.py` puts it into the page, those of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from html import escape
from math import atan2, cos, sin
from operator import xor
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "images"
LIGHT = {
    "ink": ("#1f2328", "#ffffff"),  # lines and texts, and the area of a box
    "soft": ("#59636e", "#f0f2f5"),
    "blue": ("#0969da", "#e2f1ff"),
    "green": ("#1a7f37", "#e0f7e5"),
    "amber": ("#9a6700", "#fff6d6"),
    "red": ("#cf222e", "#ffebe9"),
}
DARK = {
    "ink": ("#e6edf3", "#161b22"),
    "soft": ("#9198a1", "#21262d"),
    "blue": ("#58a6ff", "#12263f"),
    "green": ("#3fb950", "#12301b"),
    "amber": ("#d29922", "#332607"),
    "red": ("#f85149", "#3d1417"),
}
KEYS = {"a": "blue", "b": "green", "c": "amber"}
Point = tuple[float, float]


def _colours(of: dict[str, tuple[str, str]]) -> str:
    return "".join(f"--{name}:{line};--{name}-area:{area};" for name, (line, area) in of.items())


STYLE = "".join(
    [
        f"svg.drawn{{{_colours(LIGHT)}font:14px system-ui,sans-serif;max-width:100%;height:auto}}",
        f"@media(prefers-color-scheme:dark){{svg.drawn{{{_colours(DARK)}}}}}",
        f"body[data-theme=light] svg.drawn{{{_colours(LIGHT)}}}",
        f"body[data-theme=dark] svg.drawn{{{_colours(DARK)}}}",
        ".drawn text{fill:var(--ink)}.drawn path{fill:none;stroke-width:1.5}",
        ".drawn .small{font-size:12px}.drawn .bold{font-weight:600}",
        ".drawn .code{font-family:ui-monospace,monospace;font-size:13px}",
        *(
            f".drawn rect.{name}{{fill:var(--{name}-area);stroke:var(--{name})}}"
            f".drawn text.{name},.drawn circle.{name},.drawn polygon.{name}{{fill:var(--{name})}}"
            f".drawn path.{name}{{stroke:var(--{name})}}"
            for name in LIGHT
        ),
        ".drawn text.on{fill:var(--ink-area);font-weight:600}",
    ]
)


class Drawing:
    """Collects the elements of an SVG. All lengths are pixels, from the top left."""

    def __init__(self, title: str, height: int, width: int = 760) -> None:
        self.title, self.width, self.height = title, width, height
        self._elements: list[str] = []

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """Write text whose base line is at y."""
        self._elements.append(
            f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def box(
        self, at: Point, size: Point, text: str = "", style: str = "ink", font: str = ""
    ) -> None:
        """Draw a box from its top left corner, with lines of text in its centre."""
        (x, y), (width, height) = at, size
        self._elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"'
            f' class="{style}"/>'
        )
        lines = text.split("\n") if text else []
        for number, line in enumerate(lines):
            base = y + height / 2 + 5 + 18 * (number - (len(lines) - 1) / 2)
            self.text(x + width / 2, base, line, font, "middle")

    def line(
        self, *points: Point, style: str = "soft", arrow: bool = False, dash: bool = False
    ) -> None:
        """Draw a line through the points, with an arrow at its end."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dash else ""
        self._elements.append(f'<path d="{path}" class="{style}"{dashes}/>')
        if arrow:
            (x0, y0), (x, y) = points[-2:]
            angle = atan2(y - y0, x - x0)
            corners = [(x, y)] + [
                (x - 9 * cos(angle + turn), y - 9 * sin(angle + turn)) for turn in (-0.42, 0.42)
            ]
            shape = " ".join(f"{cx:.1f},{cy:.1f}" for cx, cy in corners)
            self._elements.append(f'<polygon points="{shape}" class="{style}"/>')

    def dot(self, x: float, y: float, style: str, text: str = "", radius: float = 7) -> None:
        """Draw a filled circle, with a letter in it."""
        self._elements.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{style}"/>')
        if text:
            self.text(x, y + 4, text, "on small", "middle")

    def svg(self) -> str:
        """The file."""
        body = "\n".join(self._elements)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawn" role="img" width="{self.width}"'
            f' viewBox="0 0 {self.width} {self.height}"><title>{escape(self.title)}</title>\n'
            f"<style>{STYLE}</style>\n{body}\n</svg>\n"
        )


def tuple_tree() -> Drawing:
    """A tuple, what is made from it, and the number that the acker has after each report."""
    drawing = Drawing("The edges of a tuple tree, and the XOR that the acker keeps of them", 330)
    edges = {"e1": 0b0110, "e2": 0b1011, "e3": 0b0101}
    drawing.box((20, 130), (90, 44), "spout", "blue")
    drawing.box((200, 130), (90, 44), "split")
    drawing.box((330, 50), (90, 44), "count")
    drawing.box((330, 210), (90, 44), "count")
    drawing.line((110, 152), (200, 152), arrow=True)
    drawing.text(155, 142, "e1", "bold", "middle")
    drawing.line((290, 142), (345, 94), arrow=True)
    drawing.text(300, 110, "e2", "bold", "middle")
    drawing.line((290, 162), (345, 210), arrow=True)
    drawing.text(300, 208, "e3", "bold", "middle")
    drawing.text(20, 205, "“rain sun”", "soft")
    drawing.text(430, 77, "rain", "soft")
    drawing.text(430, 237, "sun", "soft")
    for number, (name, bits) in enumerate(edges.items()):
        drawing.text(20, 270 + 20 * number, f"{name} = {bits:04b}", "code")
    drawing.text(490, 40, "reported", "bold")
    drawing.text(740, 40, "XOR so far", "bold", "end")
    value = 0
    for number, (task, names) in enumerate(
        [("spout", ["e1"]), ("split", ["e1", "e2", "e3"]), ("count", ["e2"]), ("count", ["e3"])]
    ):
        value ^= reduce(xor, (edges[name] for name in names))
        y = 78 + 44 * number
        drawing.text(490, y, task)
        drawing.text(545, y, " ⊕ ".join(names), "code")
        drawing.text(740, y, f"{value:04b}", "code bold" if value else "code bold green", "end")
        drawing.line((490, y + 14), (740, y + 14))
    drawing.text(490, 264, "Each edge was reported twice, so the", "small")
    drawing.text(490, 282, "XOR is zero: the tree is complete.", "small")
    return drawing


def groupings() -> Drawing:
    """Which of three tasks gets each of the records a, b, a, c."""
    drawing = Drawing("Which task gets which record, for six groupings", 390)
    panels: list[tuple[str, str, Sequence[str]]] = [
        ("shuffle()", "in turn", ["ac", "b", "a"]),
        ('fields("word")', "equal values, the same task", ["aa", "b", "c"]),
        ('partial_key("word")', "one of two tasks of a value", ["ac", "ab", ""]),
        ("all()", "each task gets a copy", ["abac", "abac", "abac"]),
        ("global_()", "the first task", ["abac", "", ""]),
        ("local_or_shuffle()", "tasks of the same process", ["aa", "bc", ""]),
    ]
    for number, (call, meaning, tasks) in enumerate(panels):
        x, y = 10 + 255 * (number % 3), 10 + 195 * (number // 3)
        drawing.text(x, y + 14, call, "code bold")
        drawing.text(x, y + 32, meaning, "small soft")
        if call.startswith("local"):
            drawing.box((x, y + 42), (232, 86), "", "soft")
        for place, key in enumerate("abac"):
            drawing.dot(x + 14 + 17 * place, y + 103, KEYS[key], key)
        for task, keys in enumerate(tasks):
            top = y + 50 + 40 * task
            drawing.line(
                (x + 82, y + 103), (x + 128, top + 16), arrow=True, style="ink" if keys else "soft",
                dash=not keys,
            )  # fmt: skip
            drawing.box((x + 130, top), (94, 32), "", "ink" if keys else "soft")
            for place, key in enumerate(keys):
                drawing.dot(x + 144 + 21 * place, top + 16, KEYS[key], key)
    return drawing


def windows() -> Drawing:
    """The same records in tumbling and sliding windows and in sessions."""
    drawing = Drawing("The same records in tumbling windows, sliding windows and sessions", 340)
    times = [8, 20, 34, 70, 78, 150, 158, 170]

    def place(time: float) -> float:
        return 190 + time * 3

    for time in range(0, 181, 20):
        drawing.line((place(time), 52), (place(time), 312), dash=True)
        drawing.text(place(time), 330, f"{time} s", "small soft", "middle")
    for time in times:
        drawing.dot(place(time), 30, "blue")
    drawing.text(10, 35, "records of a group", "bold")
    lanes: list[tuple[str, str, list[tuple[int, int]], int]] = [
        ("tumbling(seconds=60)", "", [(0, 60), (60, 120), (120, 180)], 1),
        ("sliding(seconds=60,", "        every=20)", [(t, t + 60) for t in range(0, 121, 20)], 4),
        ("sessions(gap=30)", "", [(8, 64), (70, 108), (150, 200)], 1),
    ]
    y = 60
    for first, second, spans, rows in lanes:
        drawing.text(10, y + 18, first, "code")
        drawing.text(30, y + 36, second.strip(), "code")
        for number, (begin, end) in enumerate(spans):
            shown = min(end, 184)
            count = sum(begin <= time < end for time in times)
            drawing.box(
                (place(begin) + 1, y + 32 * (number % rows)), (3 * (shown - begin) - 2, 26),
                str(count), "green" if count else "soft", "small bold",
            )  # fmt: skip
        y += 32 * rows + 22
    return drawing


def late_records() -> Drawing:
    """Records in the order in which they arrive, and where the watermark is: `late=10`."""
    drawing = Drawing("When a window ends, and which records are late", 470)
    times = [5, 20, 12, 45, 38, 66, 58, 75, 52, 95, 88, 125, 135, 115, 150]
    late, ends = 10, (60, 120, 180)
    top, step = 66, 24

    def place(time: float) -> float:
        return 130 + time * 3.3

    watermark, points, ended = 0.0, [(place(0), float(top - 8))], dict[int, float]()
    dots: list[tuple[float, float, str]] = []
    for number, time in enumerate(times):
        y = top + step * number + 6
        is_late = any(time < end for end in ended)
        dots.append((place(time), y, "red" if is_late else "blue"))
        if time - late > watermark:
            points += [(place(watermark), y), (place(time - late), y)]
            watermark = time - late
        for end in ends:
            if watermark >= end:
                ended.setdefault(end, y)
    bottom = top + step * len(times)
    for end in ends:
        drawing.line((place(end), 40), (place(end), bottom))
        drawing.text(place(end - 30), 34, f"window {end - 60} to {end}", "bold", "middle")
        if end in ended:
            drawing.box(
                (place(end - 60) + 2, ended[end] + 11), (194, bottom - ended[end] - 11), "", "soft"
            )
            drawing.text(place(end - 30), ended[end] + 46, "ended: result sent", "small", "middle")
    drawing.line((place(0), 40), (place(0), bottom))
    drawing.line(*points, (place(watermark), bottom), style="amber")
    for x, y, style in dots:
        drawing.dot(x, y, style, radius=6)
    drawing.line((60, top), (60, bottom), arrow=True)
    for number, word in enumerate(("order", "of", "arrival")):
        drawing.text(12, 200 + 18 * number, word, "small soft")
    drawing.dot(140, 456, "blue", radius=6)
    drawing.text(152, 460, "in its window", "small")
    drawing.dot(262, 456, "red", radius=6)
    drawing.text(274, 460, "late: in the stream .late", "small")
    drawing.line((436, 456), (466, 456), style="amber")
    drawing.text(474, 460, "watermark: highest time so far, minus late=10", "small")
    return drawing


def join() -> Drawing:
    """Orders, the interval in which each looks for payments, and what is emitted."""
    drawing = Drawing("An interval join: which payment belongs to which order", 262)
    orders = {"1": 40, "2": 190, "3": 400}
    payments = [("1", 100, "green"), ("2", 345, "soft"), ("3", 430, "green"), ("3", 500, "green")]

    def place(time: float) -> float:
        return 130 + time

    drawing.text(10, 65, "orders", "bold")
    drawing.text(10, 165, "payments", "bold")
    for y in (60, 160):
        drawing.line((120, y), (740, y), arrow=True)
    for key, time in orders.items():
        drawing.box((place(time), 78), (120, 64), "", "soft")
        drawing.text(place(time) + 16, 50, "within=(0, 60)", "small soft")
        drawing.dot(place(time), 60, "blue", key, 10)
    for key, time, style in payments:
        drawing.dot(place(time), 160, style, key, 10)
        if style == "green":
            drawing.line((place(orders[key]) + 6, 69), (place(time) - 4, 150), style="green")
    texts = [
        (70, "green", "order 1, paid", "at once, with the payment"),
        (255, "amber", "order 2, None", "how=“left”: when no"),
        (470, "green", "order 3, twice paid", "a pair for each payment"),
    ]
    for time, style, head, reason in texts:
        drawing.text(place(time), 216, head, f"bold {style}", "middle")
        drawing.text(place(time), 236, reason, "small", "middle")
    drawing.text(place(255), 253, "partner can come any more", "small", "middle")
    drawing.text(740, 182, "event time", "small soft", "end")
    drawing.text(place(345), 190, "too late for order 2", "small soft", "middle")
    return drawing


def as_of() -> Drawing:
    """Two versions of a price, and which one each order gets."""
    drawing = Drawing("A join as of a time: each order has the price of its time", 250)

    def place(time: float) -> float:
        return 130 + time

    drawing.text(10, 70, "prices of a", "bold")
    drawing.text(10, 170, "orders of a", "bold")
    for begin, end, text, style in ((0, 300, "10 cents", "blue"), (300, 600, "12 cents", "green")):
        drawing.box((place(begin), 45), (end - begin - 2, 40), text, style)
    for y, text in ((30, "changed=0"), (30, "changed=100")):
        drawing.text(place(0 if text.endswith("=0") else 300), y, text, "small soft")
    drawing.line((120, 165), (740, 165), arrow=True)
    for time, text, style in [
        (150, "at=50", "blue"),
        (290, "at=99", "blue"),
        (302, "at=100", "green"),
        (480, "at=160", "green"),
    ]:
        drawing.line((place(time), 156), (place(time), 88), style=style, arrow=True)
        drawing.dot(place(time), 165, style)
        shift, anchor = (
            (-6, "end") if time == 290 else (6, "start") if time == 302 else (0, "middle")
        )
        drawing.text(place(time) + shift, 192, text, "small", anchor)
    drawing.text(
        10, 228, "An order waits until the watermarks of both streams have passed its time,"
    )
    drawing.text(10, 245, "so the order in which orders and prices arrive does not matter.")
    return drawing


def failures() -> Drawing:
    """How an exception becomes an outage, a bug, a doubt or poison."""
    drawing = Drawing("How Sunshower tells an outage, a bug, a doubt and poison apart", 400)
    drawing.box((20, 20), (190, 44), "a tuple fails")
    questions = [
        (100, "Does the exception mean that\na dependency is unavailable?", "outage", "amber",
         "The task pauses and tries again.\nNo attempt is charged."),
        (180, "Has the component\nnever succeeded?", "bug", "red",
         "The topology ends within\nthree seconds, with the traceback."),
        (260, "Have ten different inputs\nfailed in a row?", "doubt", "amber",
         "As in an outage, but for\nten minutes at most."),
    ]  # fmt: skip
    last = 64
    for y, question, name, style, effect in questions:
        drawing.line((115, last), (115, y), arrow=True)
        if last > 64:
            drawing.text(124, y - 7, "no", "small soft")
        drawing.box((20, y), (230, 54), question, "soft")
        drawing.line((250, y + 27), (330, y + 27), arrow=True)
        drawing.text(290, y + 19, "yes", "small soft", "middle")
        drawing.box((330, y + 5), (110, 44), name, style, "bold")
        for number, line in enumerate(effect.split("\n")):
            drawing.text(460, y + 22 + 19 * number, line)
        last = y + 54
    drawing.line((115, last), (115, 340), arrow=True)
    drawing.text(124, 333, "no", "small soft")
    drawing.box((20, 340), (230, 44), "poison", "red", "bold")
    drawing.text(280, 358, "This tuple alone is emitted again, with back-off. After five")
    drawing.text(280, 377, "attempts it is a dead letter, or the topology ends.")
    return drawing


def deployment() -> Drawing:
    """The processes of a topology on the nodes of a Ray cluster, and what is beside it."""
    drawing = Drawing("The processes of a topology on a Ray cluster", 390)
    drawing.box((10, 130), (130, 60), "your machine\nsunshower submit", "blue", "small")
    drawing.box((190, 20), (370, 350), "", "soft")
    drawing.text(204, 42, "Ray cluster", "bold")
    drawing.box((204, 54), (342, 76), "", "ink")
    drawing.text(216, 74, "head", "small soft")
    drawing.box((230, 82), (130, 38), "Ray’s tables", "soft", "small")
    drawing.box((390, 82), (140, 38), "master (any node)", "amber", "small")
    for y, name, tasks in (
        (145, "node 1", ("spout, parse", "parse, count")),
        (262, "node 2", ("parse, count", "count, store")),
    ):
        drawing.box((204, y), (342, 96), "", "ink")
        drawing.text(216, y + 19, name, "small soft")
        for number, names in enumerate(tasks):
            drawing.box(
                (222 + 166 * number, y + 30), (142, 52), f"worker\n{names}", "green", "small"
            )
        drawing.line((364, y + 56), (388, y + 56), style="green", arrow=True)
    drawing.line((459, 227), (459, 291), style="green", arrow=True)
    drawing.line((293, 291), (293, 228), style="green", arrow=True)
    drawing.line((140, 160), (190, 160), arrow=True, style="blue")
    for y, text in ((70, "Kafka, files, HTTP"), (180, "state: SQLite, Redis,\nPostgreSQL"),
                    (290, "sinks: Kafka,\ntables, S3")):  # fmt: skip
        drawing.box((610, y), (140, 52), text, "soft", "small")
    drawing.line((610, 96), (560, 130), arrow=True)
    drawing.line((560, 206), (610, 206), arrow=True)
    drawing.line((560, 316), (610, 316), arrow=True)
    drawing.text(10, 240, "A worker is a process with", "small")
    drawing.text(10, 257, "some tasks. Workers send", "small")
    drawing.text(10, 274, "packets to each other; the", "small")
    drawing.text(10, 291, "master replaces those that", "small")
    drawing.text(10, 308, "die, and stores the plan.", "small")
    return drawing


PICTURES: dict[str, Callable[[], Drawing]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        tuple_tree, groupings, windows, late_records, join, as_of, failures, deployment
    )
}  # fmt: skip

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
