"""Storage of states in ZooKeeper: a node for each key, meant for small states.

    <root>/<state>/<task>                 the word of the mark
    <root>/<state>/<task>/journal
    <root>/<state>/<task>/values/<key>    JSON; the key is JSON too, percent-encoded

A batch is one ZooKeeper transaction, which is limited to about a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from sunshower.errors import NodeExists, NoNode, StoreError, WrongVersion
from sunshower.state.backing import Home, Mark, is_there
from sunshower.state.tree import Node
from sunshower.state.zookeeper_tree import ZooKeeperTree

BATCH_BYTES_MAX = 900_000  # the server disconnects at 1 MiB, and logs the reason only itself


class _All:
    """Waits for several kazoo promises; the result of a missing node is None."""

    def __init__(self, promises: Sequence[Any]) -> None:
        self._promises = promises

    def get(self, timeout: float) -> list[Any]:
        return [self._one(promise, timeout) for promise in self._promises]

    @staticmethod
    def _one(promise: Any, timeout: float) -> Any:
        from kazoo.exceptions import NoNodeError

        try:
            return promise.get(timeout=timeout)
        except NoNodeError:
            return None


class ZooKeeperBacking:
    """Implements the port `Backing`. It owns the tree."""

    def __init__(self, tree: ZooKeeperTree, root: str, home: Home) -> None:
        self._tree = tree
        self._home = home
        self._path = f"{root.rstrip('/')}/{quote(home.state, safe='')}/{home.task}"
        for name in ("journal", "values"):
            with suppress(NodeExists):
                tree.create(f"{self._path}/{name}")

    def mark(self) -> Mark | None:
        # The server of this client may be behind others, where a former life has written.
        with self._tree.errors(self._path):
            self._tree.ask(self._tree.client.sync_async, self._path)
        while True:
            before, journal, after = (
                self._node(path) for path in (self._path, f"{self._path}/journal", self._path)
            )
            if before == after:  # so the journal belongs to that word
                word = before.value.decode()
                return Mark(word, journal.value.decode()) if word else None

    def get(self, keys: Sequence[str]) -> list[str | None]:
        found = self._each(self._tree.client.get_async, keys)
        return [None if one is None else one[0].decode() for one in found]

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        self._check_size(changes, mark)
        node = self._node(self._path)
        if is_there(self._home, node.value.decode() or None, mark, seen):
            return
        there = [one is not None for one in self._each(self._tree.client.exists_async, [*changes])]

        def promise() -> Any:
            """A new transaction for each try: kazoo sends one only once."""
            transaction = self._tree.client.transaction()
            transaction.set_data(self._path, mark.word.encode(), node.version)
            transaction.set_data(f"{self._path}/journal", mark.journal.encode())
            for (key, value), exists in zip(changes.items(), there, strict=True):
                _add(transaction, self._value(key), value, exists=exists)
            return transaction.commit_async()

        with self._tree.errors(self._path):
            answers = self._tree.ask(promise)
        if any(isinstance(answer, Exception) for answer in answers):
            self._refused(mark, seen, answers)

    def items(self) -> Iterator[tuple[str, str]]:
        names = self._tree.children(f"{self._path}/values")
        keys = [unquote(name) for name in names]
        for key, value in zip(keys, self.get(keys), strict=True):
            if value is not None:
                yield key, value

    def count(self) -> None:
        """Not known here."""

    def close(self) -> None:
        self._tree.close()

    def _node(self, path: str) -> Node:
        node = self._tree.get(path)
        if node is None:
            raise NoNode(f"{path} is not there any more: somebody has removed the state")
        return node

    def _value(self, key: str) -> str:
        return f"{self._path}/values/{quote(key, safe='')}"

    def _each(self, call: Callable[[str], Any], keys: Sequence[str]) -> list[Any]:
        """Request all keys at once. ZooKeeper closes the connection for a key that is too long."""
        longest = max(keys, key=len, default="")
        if len(self._value(longest)) > BATCH_BYTES_MAX:
            raise StoreError(
                f"{self._home}: a key has {len(self._value(longest))} bytes, and ZooKeeper takes "
                f"{BATCH_BYTES_MAX} at once: keep the state in SQLite, Redis or PostgreSQL",
                of_value=True,
            )
        with self._tree.errors(self._path):
            found = self._tree.ask(lambda: _All([call(self._value(key)) for key in keys]))
        return list(found)

    def _check_size(self, changes: Mapping[str, str | None], mark: Mark) -> None:
        size = len(mark.journal.encode()) + sum(
            len(self._value(key)) + len((value or "").encode()) for key, value in changes.items()
        )
        if size > BATCH_BYTES_MAX:
            raise StoreError(
                f"{self._home}: a batch of {len(changes)} keys has {size} bytes, and ZooKeeper "
                f"takes {BATCH_BYTES_MAX} at once: make batches smaller, or keep the state in "
                "SQLite, Redis or PostgreSQL",
                of_value=True,
            )

    def _refused(self, mark: Mark, seen: str | None, answers: Sequence[Any]) -> None:
        """Return if an earlier try, whose answer was lost, succeeded; else raise WrongVersion."""
        if not is_there(self._home, self._node(self._path).value.decode() or None, mark, seen):
            why = [answer for answer in answers if isinstance(answer, Exception)]
            raise WrongVersion(f"{self._path} was changed by another process meanwhile: {why}")


def _add(transaction: Any, path: str, value: str | None, *, exists: bool) -> None:
    if value is None:
        if exists:
            transaction.delete(path)
    elif exists:
        transaction.set_data(path, value.encode())
    else:
        transaction.create(path, value.encode())


def homes(tree: ZooKeeperTree, root: str) -> list[Home]:
    """All homes with a mark below a root, in order."""
    root = root.rstrip("/")
    found = []
    for name in tree.children(root):
        for task in tree.children(f"{root}/{name}"):
            node = tree.get(f"{root}/{name}/{task}")
            if node and node.value:
                found.append(Home(unquote(name), int(task)))
    return sorted(found)
