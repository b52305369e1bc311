"""Draws stacks as a flame graph: one SVG file that loads no other file.

The outermost function is at the top, and a box is as wide as the share of samples in which its
function, or one that it called, was running. A click on a box shows it in the full width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

from sunshower.runtime.profiles.stacks import Stacks, frame_from
from sunshower.runtime.profiles.time_split import TimePart, colour_part
from sunshower.texts import printable

_WIDTH, _ROW, _TOP = 1200, 18, 66
_NARROWEST = 0.0005  # of the whole: boxes below are left out
_CHARACTER = 6.6  # width of one, in the font below
_COLOURS = {
    TimePart.USER: "#f4a259",
    TimePart.OPERATORS: "#b5d99c",
    TimePart.SERIALISATION: "#9bc1e8",
    TimePart.RECORDS: "#e3b7c8",
    TimePart.ROUTING: "#c9b6e4",
    TimePart.TRACKING: "#d4c4b0",
    TimePart.SPOUTS: "#a9dcd6",
    TimePart.BOLTS: "#c8d5b9",
    TimePart.REST: "#d3d6da",
    TimePart.WAITING: "#eef0f2",
}
_LIBRARY = "#f7dfa5"


@dataclass
class _Node:
    text: str
    count: int = 0
    children: dict[str, _Node] = field(default_factory=dict)


def flame_graph(stacks: Stacks, title: str) -> str:
    """The text of an SVG file."""
    root = _Node("all")
    for stack, count in sorted(stacks.items()):
        node = root
        node.count += count
        for text in stack.split(";"):
            node = node.children.setdefault(text, _Node(text))
            node.count += count
    boxes = list(_boxes(root, root.count))
    depth = max(row for row, _, _ in boxes) + 1
    height = _TOP + depth * _ROW + 12
    body = "\n".join(_box(row, left, node, root.count) for row, left, node in boxes)
    script = files("sunshower.cli.profiles").joinpath("flame_graph.js").read_text("utf-8")
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-size="11"
 font-family="ui-monospace, monospace" role="img" aria-label="{_safe(title)}">
<style>
.box {{ cursor: pointer }}
.box:hover rect {{ stroke: #333 }}
text {{ fill: #1d1f21 }}
</style>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="8" y="20" font-size="15">{_safe(title)}</text>
<text x="8" y="37">{root.count:,} samples. Click a box to enlarge it, the top box for all.</text>
{_legend()}
<g id="boxes">
{body}
</g>
<script><![CDATA[
{script}]]></script>
</svg>
"""


def _boxes(root: _Node, total: int) -> Iterator[tuple[int, int, _Node]]:
    """Row, samples to its left, and node, of each box that is wide enough."""
    waiting = [(0, 0, root)]
    while waiting:
        row, left, node = waiting.pop()
        yield row, left, node
        for child in node.children.values():
            if child.count >= _NARROWEST * total:
                waiting.append((row + 1, left, child))
            left += child.count


def _box(row: int, left: int, node: _Node, total: int) -> str:
    x, width = left / total * _WIDTH, node.count / total * _WIDTH
    y = _TOP + row * _ROW
    name = frame_from(node.text).name
    room = int((width - 6) / _CHARACTER)
    label = name if len(name) <= room else f"{name[: room - 1]}…" if room > 2 else ""
    share = f"{node.count:,} samples, {node.count / total:.1%}"
    return (
        f'<g class="box" data-x="{left}" data-w="{node.count}" data-name="{_safe(name)}">'
        f"<title>{_safe(node.text)}: {share}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" rx="1" '
        f'fill="{_colour(node.text)}"/>'
        f'<text x="{x + 3:.2f}" y="{y + 13}">{_safe(label)}</text></g>'
    )


def _colour(text: str) -> str:
    frame = frame_from(text)
    if frame.file == "<none>":  # a thread, or what stands for several frames
        return _COLOURS[TimePart.REST]
    part = colour_part(frame)
    return _LIBRARY if part is None else _COLOURS[part]


def _legend() -> str:
    shown, x = [], 8
    for name, colour in [*_COLOURS.items(), ("libraries", _LIBRARY)]:
        shown.append(
            f'<rect x="{x}" y="45" width="11" height="11" fill="{colour}" stroke="#999"/>'
            f'<text x="{x + 15}" y="55">{name}</text>'
        )
        x += 32 + int(len(name) * _CHARACTER)
    return "\n".join(shown)


def _safe(text: str) -> str:
    return escape(printable(text))
