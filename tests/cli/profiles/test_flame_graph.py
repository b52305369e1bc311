"""Tests of the output of `sunshower profile` for prepared stacks."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from syrupy.assertion import SnapshotAssertion

from sunshower.cli.formatting import Terminal
from sunshower.cli.profiles import collapsed, flame_graph, speedscope, time_table
from sunshower.runtime.profiles import CALLS, LOOP, TASK_FILE, Profile, StackFrame, stack_of

SVG = "{http://www.w3.org/2000/svg}"
LIVE = StackFrame("WorkerActor._loop", "sunshower/actors/worker.py", 310)
TASK = StackFrame("split[0]", TASK_FILE, 10)
USER = StackFrame("Split.process", "/app/words.py", 7)
ROUTE = StackFrame("Fields.targets", "sunshower/runtime/transport/routing.py", 50)
WAIT = StackFrame("PacketSockets._wait", "sunshower/actors/packets.py", 210)
STACKS = {
    stack_of(LOOP, [LIVE, TASK, USER]): 60,
    stack_of(LOOP, [LIVE, TASK, USER, ROUTE]): 10,
    stack_of(LOOP, [LIVE, WAIT]): 30,
    stack_of(CALLS, [USER]): 4,
}


def boxes(text: str) -> dict[str, ET.Element]:
    groups = ET.fromstring(text).iter(f"{SVG}g")
    return {box.findtext(f"{SVG}title") or "": box for box in groups if box.get("class") == "box"}


def test_each_function_has_a_box_below_its_caller_as_wide_as_its_share() -> None:
    by_title = boxes(flame_graph(STACKS, "words"))
    split = by_title["Split.process (/app/words.py:7): 70 samples, 67.3%"]
    task = by_title["split[0] (<task>:10): 70 samples, 67.3%"]
    route = by_title[f"{ROUTE}: 10 samples, 9.6%"]
    rects = [box.find(f"{SVG}rect") for box in (task, split, route)]
    (above, rect, below) = [dict(element.items()) for element in rects if element is not None]
    assert float(rect["width"]) == round(70 / 104 * 1200, 2)
    assert int(rect["y"]) - int(above["y"]) == int(below["y"]) - int(rect["y"]) == 18
    assert above["x"] == rect["x"]
    assert rect["fill"] != below["fill"], "user code and the runtime differ in colour"
    assert split.findtext(f"{SVG}text") == "Split.process"


def test_texts_are_escaped_and_the_file_loads_nothing() -> None:
    hostile = StackFrame("</title><script>alert(1)</script>", '/a"onload="x/]]>.py', 1)
    text = flame_graph({stack_of(LOOP, [hostile]): 1}, "<script>")
    assert len(list(ET.fromstring(text).iter(f"{SVG}script"))) == 1
    assert text.count("<script>") == 1
    assert "alert(1)&lt;/script&gt;" in text
    assert "href" not in text
    assert "import" not in text


def test_narrow_boxes_are_left_out() -> None:
    stacks = {stack_of(LOOP, [USER._replace(name=f"f{n}")]): 1 for n in range(3000)}
    assert len(boxes(flame_graph(stacks, "words"))) == 2


def test_stacks_are_written_in_the_forms_of_other_tools(approved: SnapshotAssertion) -> None:
    assert collapsed(STACKS) == approved
    assert json.loads(speedscope(STACKS, "words")) == approved


def test_the_table_has_the_share_of_each_part_for_each_component(
    approved: SnapshotAssertion,
) -> None:
    console = Terminal(width=80)
    with console.capture() as capture:
        console.print(time_table(Profile(STACKS, {0: "py-spy"}), "split"))
    assert capture.get() == approved
