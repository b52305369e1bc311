"""Offsets in a tree, in the formats of Storm and of Kafka's old consumer; invalid values."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sunshower.errors import BadOffset, KafkaUnreachable, StaleGeneration, StoreUnreachable
from sunshower.kafka.consuming.start_position import Start, storm_start, writer
from sunshower.kafka.partitions.ports import Committed, Partition
from sunshower.kafka.zookeeper.options import (
    OffsetLayout,
    PlainLayout,
    StoredOffsets,
    StormLayout,
)
from sunshower.state.sqlite_tree import SqliteTree
from sunshower.state.tree import MemoryForest, MemoryTree, Tree
from sunshower.state.zookeeper_tree import ZooKeeperTree

PLAIN = PlainLayout("g")
STORM = StormLayout("/kafka", "words", "words-1-99", "words")
FIRST = Partition("t", 0)


@pytest.fixture
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    match getattr(request, "param", "memory"):
        case "memory":
            new_tree: Tree = MemoryTree(MemoryForest())
        case "sqlite":
            new_tree = SqliteTree(tmp_path / "offsets.sqlite")
        case _:
            new_tree = ZooKeeperTree(request.getfixturevalue("zookeeper").connect)
    yield new_tree
    new_tree.close()


every_tree = pytest.mark.parametrize(
    "tree",
    ["memory", "sqlite", pytest.param("zookeeper", marks=pytest.mark.servers)],
    indirect=True,
)
each_layout = pytest.mark.parametrize("name", ["plain", "storm", "storm with topics"])


def layout(name: str) -> OffsetLayout:
    """A layout with a path of its own."""
    unique = uuid.uuid4().hex
    if name == "plain":
        return PlainLayout(unique)
    return StormLayout("/kafka", unique, "words-1-99", "words", wildcard=name != "storm")


@every_tree
@each_layout
def test_offsets_that_were_written_are_read_by_another_instance(tree: Tree, name: str) -> None:
    here = layout(name)
    both = {FIRST: Committed(0), Partition("t", 11): Committed(2**40)}
    StoredOffsets(tree, here).write(both)
    offsets = StoredOffsets(tree, here).read([*both, Partition("t", 5)])
    assert {partition: committed.offset for partition, committed in offsets.items()} == {
        partition: committed.offset for partition, committed in both.items()
    }
    StoredOffsets(tree, here).write({FIRST: Committed(7)})
    assert StoredOffsets(tree, here).read([FIRST])[FIRST].offset == 7


def test_storms_json_is_stored_at_storms_path(tree: Tree) -> None:
    here = StormLayout("/kafka", "words", "words-1-99", "words", leader=lambda _: "there:9092")
    StoredOffsets(tree, here).write({Partition("t", 3): Committed(123)})
    node = tree.get("/kafka/words/partition_3")
    assert node
    assert json.loads(node.value) == {
        "topology": {"id": "words-1-99", "name": "words"},
        "offset": 123,
        "partition": 3,
        "broker": {"host": "there", "port": 9092},
        "topic": "t",
    }


@pytest.mark.parametrize(
    ("root", "wildcard", "path"),
    [
        ("/kafka", False, "/kafka/words/partition_3"),
        ("kafka/", False, "/kafka/words/partition_3"),
        ("", False, "/words/partition_3"),
        ("/a/b", True, "/a/b/words/t/partition_3"),
    ],
)
def test_the_path_of_an_offset_is_that_of_storm(root: str, wildcard: bool, path: str) -> None:
    assert StormLayout(root, "words", "i", "n", wildcard).path(Partition("t", 3)) == path


def test_offsets_of_a_storm_deployment_are_read(tree: Tree) -> None:
    theirs = {
        "topology": {"id": "words-7-1400000000", "name": "words"},
        "offset": 4217,
        "partition": 0,
        "broker": {"host": "old", "port": 9092},
        "topic": "t",
    }
    tree.create("/kafka/words/partition_0", json.dumps(theirs).encode())
    [committed] = StoredOffsets(tree, STORM).read([FIRST]).values()
    assert committed.offset == 4217
    assert writer(committed) == "words-7-1400000000"


def test_plain_offsets_are_stored_at_kafkas_path(tree: Tree) -> None:
    StoredOffsets(tree, PLAIN).write({Partition("t", 3): Committed(123, "who")})
    node = tree.get("/consumers/g/offsets/t/3")
    assert node
    assert node.value == b"123"
    assert not node.ephemeral


@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b"\xff", b"{}", b"twelve"])
def test_a_value_that_is_no_plain_offset_is_an_error_with_its_path(
    tree: Tree, value: bytes
) -> None:
    tree.create("/consumers/g/offsets/t/0", value)
    with pytest.raises(BadOffset, match=r"/consumers/g/offsets/t/0 holds no offset: .*there is b"):
        StoredOffsets(tree, PLAIN).read([FIRST])


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{broken", b"17", b"[]", b"{}", b"\xff\xfe", b'{"offset": "7"}'),
        *(b'{"offset": -1}', b'{"offset": true}', b'{"offset": null}'),
    ],
)
def test_a_value_that_is_not_storms_json_is_an_error_with_its_path(
    tree: Tree, value: bytes
) -> None:
    tree.create("/kafka/words/partition_0", value)
    with pytest.raises(BadOffset, match=r"/kafka/words/partition_0 holds no offset: .*there is b"):
        StoredOffsets(tree, STORM).read([FIRST])


@pytest.mark.parametrize("other", [{"topic": "u"}, {"partition": 1}])
def test_the_offset_of_another_partition_is_refused(tree: Tree, other: object) -> None:
    assert isinstance(other, dict)
    tree.create("/kafka/words/partition_0", json.dumps({"offset": 3} | other).encode())
    with pytest.raises(BadOffset, match="another deployment uses this path"):
        StoredOffsets(tree, STORM).read([FIRST])


def test_offsets_of_a_reassigned_partition_are_not_written(tree: Tree) -> None:
    mine, lost = Partition("t", 0), Partition("t", 1)
    offsets = StoredOffsets(tree, PLAIN, owns={mine}.__contains__)
    with pytest.raises(StaleGeneration, match=r"t\[1\] were reassigned meanwhile.*nothing"):
        offsets.write({mine: Committed(1), lost: Committed(1)})
    assert not offsets.read([mine, lost])
    offsets.write({mine: Committed(1)})
    assert offsets.read([mine, lost]) == {mine: Committed(1)}


def test_a_member_whose_node_is_gone_at_the_write_commits_nothing(tree: Tree) -> None:
    tree.create("/ids/me", ephemeral=True)

    def owns(_: Partition) -> bool:
        if gone:
            tree.withdraw("/ids/me")
        return True

    gone = False
    offsets = StoredOffsets(tree, PLAIN, owns, lambda: "/ids/me")
    offsets.write({FIRST: Committed(1)})
    gone = True
    with pytest.raises(StaleGeneration, match="is not committed: /ids/me is gone"):
        offsets.write({FIRST: Committed(2)})
    assert offsets.read([FIRST]) == {FIRST: Committed(1)}


class UnavailableTree:
    def __getattr__(self, name: str) -> object:
        raise StoreUnreachable("no answer")


def test_an_unavailable_store_is_an_error_with_the_path() -> None:
    offsets = StoredOffsets(UnavailableTree(), PLAIN)  # type: ignore[arg-type]
    with pytest.raises(KafkaUnreachable, match="/consumers/g/offsets/t/0 cannot be used: no"):
        offsets.read([FIRST])


# ---- start positions ----------------------------------------------------------------------------

HERE, OTHER = (json.dumps({"topologyId": id}) for id in ("here", "other"))


@pytest.mark.parametrize(
    ("stored", "from_start", "begins"),
    [
        (None, False, 100),  # 1: nothing is stored: the end, or the start if that is forced
        (None, True, 20),
        (Committed(50, OTHER), True, 20),  # 2: another deployment, and the start is forced
        (Committed(50, ""), True, 20),
        (Committed(50, OTHER), False, 50),  # 3: in all other cases the stored offset
        (Committed(50, HERE), True, 50),
        (Committed(50, HERE), False, 50),
        (Committed(0, HERE), False, 0),  # Storm treats 0 as if nothing were stored
    ],
)
def test_storms_three_cases_of_a_start(
    stored: Committed | None, from_start: bool, begins: int
) -> None:
    start = storm_start(stored, "here", 20 if from_start else 100, from_start)
    assert start == Start(begins)


@pytest.mark.parametrize(
    ("offset", "start"),
    [(90, Start(90)), (89, Start(100, (89, 100))), (3, Start(100, (3, 100)))],
)
def test_messages_too_far_behind_are_skipped_and_reported(offset: int, start: Start) -> None:
    stored = Committed(offset, HERE)
    assert storm_start(stored, "here", 100, behind_max=10) == start


def test_with_a_forced_start_no_later_offset_is_too_far_behind() -> None:
    begins = storm_start(Committed(30, HERE), "here", 20, forced=True, behind_max=10)
    assert begins == Start(30)


@pytest.mark.parametrize("metadata", ["", "text", "[]", '{"topologyId": 3}', "{}"])
def test_foreign_metadata_name_no_deployment(metadata: str) -> None:
    assert writer(Committed(1, metadata)) is None
