"""Tables of the latest record of each key, and the streams that are joined with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Line, Records, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import RecordMismatch, TopologyError, UnknownField
from sunshower.simulation.cluster import SimCluster
from sunshower.state import SqliteState
from sunshower.topologies.streams import Stream
from tests.topologies.operators.joins.test_stream_joins import Slow
from tests.topologies.operators.kinds import Kept


class User(NamedTuple):
    """A change of a user, or with `page` a click of this user."""

    user: str
    name: str | None
    at: int
    page: str | None


def is_change(user: User) -> bool:
    return user.page is None


def joined_clicks(users: list[User], how: str = "inner", **table: Any) -> list[Any]:
    """Return the joined clicks of a run that emits one change or click a second."""
    topology = Topology("users")
    changes, clicks = topology.spout("users", Slow(users), fields=User).branch(is_change)
    names = changes.project("user", "name", "at").group_by("user").table(**table)
    seen = clicks.project("user", "page").join(names, how=how)
    seen.shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    return [(*row[:2], row[2]) for row in rows]


def model(users: list[User], how: str, field: str | None) -> list[Any]:
    """Return the joined clicks as a plain program computes them."""
    rows, table = [], dict[str, User]()
    for user in users:
        old = table.get(user.user)
        if user.page is None:
            if old is None or field is None or old.at <= user.at:
                table[user.user] = user
        # A change is a tombstone if all its values are None. "at" is no value if it is the field.
        elif old is not None and (old.name is not None or field is None):
            rows.append((user.user, user.page, old.name))
        elif how == "left":
            rows.append((user.user, user.page, None))
    return rows


USERS = st.lists(
    st.builds(
        User,
        st.sampled_from("abc"),
        st.sampled_from(["x", "y", None]),
        st.integers(0, 9),
        st.sampled_from([None, None, "/"]),
    ),
    max_size=25,
)


@given(
    USERS,
    st.sampled_from(["inner", "left"]),
    st.booleans(),
    st.sampled_from([1, 2]),
    st.sampled_from([None, "at"]),
)
def test_clicks_are_joined_with_the_same_values_as_in_a_plain_program(
    users: list[User], how: str, broadcast: bool, tasks: int, field: str | None
) -> None:
    rows = joined_clicks(users, how, broadcast=broadcast, parallelism=tasks, field=field)
    assert rows == model(users, how, field)


def test_a_compacted_topic_is_a_table() -> None:
    """Rows as KafkaSpout(fields=("key", "value", "offset")) makes them; a tombstone is a null."""
    changes = [("a", {"n": 1}, 0), ("b", {"n": 2}, 1), ("b", None, 2), ("a", {"n": 0}, -1)]
    topology = Topology("users")
    topic = topology.spout("topic", Slow(changes), fields=("key", "value", "offset"))
    table = topic.group_by("key").table(field="offset", name="names")
    lines = topology.spout("lines", Slow([Line("a"), Line("b")], 9.0), fields=Line)
    names = lines.join(table, "text", how="left", fields=("text", "value", "offset"))
    names.shuffle().bolt("kept", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    assert results["kept"] == [[("a", {"n": 1}, 0), ("b", None, None)]]
    assert results["names"] == [{"a": ("a", {"n": 1}, 0), "b": ("b", None, 2)}]


@pytest.mark.parametrize("broadcast", [False, True])
def test_several_streams_are_joined_with_one_table_of_records(broadcast: bool) -> None:
    topology = Topology("users")
    users = topology.spout(
        "users", Records([User("a", "x", 1, None), User("b", "y", 1, None)]), fields=User
    )
    table = users.group_by("user").table(broadcast=broadcast, parallelism=2)
    for number in range(2):
        lines = topology.spout(f"lines-{number}", Slow([Line("a"), Line("b")], 5.0), fields=Line)
        joined = lines.join(table, "text", fields=("text", "name", "at", "page"))
        joined.filter(lambda row: row[0] != "b").shuffle().bolt(f"kept-{number}", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    assert results["kept-0"] == results["kept-1"] == [[("a", "x", 1, None)]]
    keys = sorted(key for table in results["table"] for key in table)
    assert keys == (["a", "a", "b", "b"] if broadcast else ["a", "b"])


def test_a_stored_table_is_kept_for_the_next_run(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "users.db")
    rows = []
    for users, lines in (([User("a", "x", 1, None)], []), ([], [Line("a")])):
        topology = Topology("users")
        changes = topology.spout("users", Records(users), fields=User)
        table = changes.group_by("user").table(state=state)
        source = topology.spout("lines", Records(lines), fields=Line)
        source.join(table, "text").shuffle().bolt("kept", Kept)
        with SimCluster(1) as cluster:
            run = cluster.submit(topology.graph())
            assert run.wait(60.0)
            rows += run.results("kept")
    assert rows == [[], [("a", "x", 1, None)]]
    assert dict(state.items())["a"] == {"user": "a", "name": "x", "at": 1, "page": None}


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_table_can_be_queried_while_the_topology_runs(broadcast: bool) -> None:
    topology = Topology("users")
    users = [User("a", "x", second, None) for second in range(30)]
    changes = topology.spout("users", Slow(users), fields=User)
    changes.group_by("user").table(parallelism=2, broadcast=broadcast)
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(15.0)
        assert run.query("table", "a") in users[5:]
        assert run.query("table", "b") is None


# ---- wrong declarations -------------------------------------------------------------------------


class Strict(NamedTuple):
    text: str
    name: str
    at: int
    page: str | None


def of_another_topology(_: Any, lines: Stream[Line]) -> Any:
    users = Topology("others").spout("users", Records([]), fields=User)
    return lines.join(users.group_by("user").table(), "text")


def join(**changed: Any) -> Callable[[Stream[User], Stream[Line]], Any]:
    return lambda users, lines: lines.join(users.group_by("user").table(), "text", **changed)


@pytest.mark.parametrize(
    ("assemble", "error", "message"),
    [
        (lambda u, _: u.group_by("user").table(fields=User), TopologyError, "no setting 'fields'"),
        (lambda u, _: u.group_by("user").table(field="time"), UnknownField, "no field 'time'"),
        (lambda u, _: u.group_by("user").table(state="db"), TopologyError, "'db' is not a state"),
        (lambda _, n: n.group_by("text").table(), TopologyError, "has no field beside the key"),
        (lambda u, _: u.group_by("user").table(broadcast="no"), TopologyError, "broadcast is 'no'"),
        (of_another_topology, TopologyError, "the table is one of topology 'others'"),
        (join(within=1), TopologyError, "'within' is for the join of two streams"),
        (join(how="outer"), TopologyError, 'how is \'outer\'; it is "inner" or "left"'),
        (lambda u, n: n.join(u.group_by("user").table()), UnknownField, "no field 'user'"),
        (lambda u, n: n.join(u.group_by("at").table(), "text"), RecordMismatch, "no value of one"),
        (join(how="left", fields=Strict), RecordMismatch, "Strict.name is str, and it is None"),
    ],
)
def test_wrong_tables_are_refused(assemble: Any, error: type[Exception], message: str) -> None:
    topology = Topology("users")
    users = topology.spout("users", Records([]), fields=User)
    lines = topology.spout("lines", Records([]), fields=Line)
    with pytest.raises(error, match=message):
        assemble(users, lines)
