"""A tree in ZooKeeper, through kazoo: its nodes are ZooKeeper nodes at the same paths."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from sunshower.errors import (
    NodeExists,
    NoNode,
    StoreError,
    StoreForbidden,
    StoreUnreachable,
    WrongVersion,
)
from sunshower.secret import Secret
from sunshower.state.backing import Home, Mark, is_there
from sunshower.state.tree import (
    Node,
    SessionState,
    below_ephemeral,
    check,
    has_children,
    no_node,
    node_exists,
    parent,
)
from sunshower.state.zookeeper_client import Tls, ZooKeeperAccess, connect, disconnect

_LOG = logging.getLogger("sunshower")
_READ = 1  # ZooKeeper's permission
_ANY_VERSION = -1
# The server disconnects at requests of 1 MiB or more, which would look like an outage.
_VALUE_BYTES_MAX = 1_000_000


class _Watch:
    """Watches a node and its children; renews ZooKeeper's watches, which fire only once."""

    def __init__(self, tree: ZooKeeperTree, path: str, changed: Callable[[], None]) -> None:
        self._tree = tree
        self._path = path
        self._changed = changed

    def arm(self, ask: Callable[..., Any]) -> None:
        """Set ZooKeeper's watches; `ask` calls kazoo."""
        from kazoo.exceptions import NoNodeError

        client = self._tree.client
        if ask(client.exists_async, self._path, watch=self._on_event):
            with suppress(NoNodeError):
                ask(client.get_children_async, self._path, watch=self._on_event)

    def again(self) -> None:
        """Renew the watches, then report the change. Reconnecting calls this, too."""
        from kazoo.handlers.threading import KazooTimeoutError

        if self in self._tree.watches and self._tree.client.connected:
            try:
                self.arm(self._tree.ask_once)
            except KazooTimeoutError:  # still connected, so no reconnect will call this: retry
                self._tree.soon(self.again)
            else:
                self._changed()

    def _on_event(self, event: Any) -> None:
        if event.type != "NONE":  # NONE: connection lost; after a reconnect `again` runs for all
            self._tree.soon(self.again)


class _Attempts:
    """A kazoo call that counts its attempts."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.count = 0

    def __call__(self, *arguments: object, **named: object) -> Any:
        self.count += 1
        return self._call(*arguments, **named)


class ZooKeeperTree:
    """Implements the port `Tree`.

    `hosts`, `digest`, `acl` and `tls` are those of ZooKeeperAccess. A call answers or raises within
    `answer_within_s`.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_s: float = 10.0,
        answer_within_s: float = 8.0,
        digest: tuple[str, str | Secret] | None = None,
        acl: tuple[str, ...] = (),
        tls: Tls | None = None,
    ) -> None:
        self._hosts = hosts
        self._answer_within_s = answer_within_s
        self.watches: set[_Watch] = set()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        access = ZooKeeperAccess(
            hosts, session_timeout_s=session_timeout_s, digest=digest, acl=acl, tls=tls
        )
        self._checked: set[str] | None = None if digest is None else set()
        self.client, self._last = connect(access, answer_within_s)
        self.client.add_listener(self._on_state)
        threading.Thread(target=self._call_all, name="zookeeper-calls", daemon=True).start()

    @classmethod
    def of(cls, access: ZooKeeperAccess) -> ZooKeeperTree:
        return cls(**{field.name: getattr(access, field.name) for field in fields(ZooKeeperAccess)})

    def get(self, path: str) -> Node | None:
        try:
            with self.errors(check(path)):
                value, stat = self.ask(self.client.get_async, path)
        except NoNode:
            return None
        return Node(value, stat.version, stat.ephemeralOwner != 0)

    def children(self, path: str) -> list[str]:
        try:
            with self.errors(path if path == "/" else check(path)):
                return sorted(self.ask(self.client.get_children_async, path))
        except NoNode:
            return []

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        self._check_write(path, value)
        attempts = _Attempts(self.client.create_async)
        try:
            with self.errors(check(path)):
                self.ask(attempts, path, value, ephemeral=ephemeral, makepath=True)
        except NodeExists:
            if attempts.count == 1 or not self._is_mine(path, value, ephemeral):
                raise  # else an earlier attempt of this call created it, and its answer was lost

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        self._check_write(path, value)
        attempts = _Attempts(self.client.set_async)
        try:
            with self.errors(check(path)):
                wanted = -1 if version is None else version
                return int(self.ask(attempts, path, value, wanted).version)
        except WrongVersion:
            node = self.get(path) if attempts.count > 1 and version is not None else None
            if version is None or node != Node(value, version + 1, bool(node and node.ephemeral)):
                raise
            return version + 1

    def put(self, path: str, value: bytes, beside: str | None = None) -> None:
        self._check_write(path, value)
        with self.errors(check(path)):
            while not self._done(beside, lambda step: step.set_data(path, value)):
                self.ask(self.client.ensure_path_async, parent(path))
                if self._done(beside, lambda step: step.create(path, value)):
                    break  # else another client created it meanwhile: write it

    def delete(self, path: str, version: int | None = None) -> None:
        attempts = _Attempts(self.client.delete_async)
        try:
            with self.errors(check(path)):
                self.ask(attempts, path, -1 if version is None else version)
        except NoNode:
            if attempts.count == 1:
                raise

    def withdraw(self, path: str, beside: str | None = None) -> None:
        with self.errors(check(path)):
            until_s = time.monotonic() + self._answer_within_s
            self.client.retry(self._withdraw, path, beside, until_s)

    def watch(self, path: str, changed: Callable[[], None]) -> None:
        watch = _Watch(self, check(path), changed)
        self.watches.add(watch)
        with self.errors(path):
            watch.arm(self.ask)

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def close(self) -> None:
        self.watches.clear()
        self._listeners.clear()
        disconnect(self.client, self._answer_within_s)
        self._calls.put(None)

    def ask(self, call: Callable[..., Any], *arguments: object, **named: object) -> Any:
        """Call kazoo, retrying after a lost connection; `call` returns a promise."""
        until_s = time.monotonic() + self._answer_within_s
        return self.client.retry(self.ask_once, call, *arguments, **named, until_s=until_s)

    def ask_once(
        self,
        call: Callable[..., Any],
        *arguments: object,
        until_s: float | None = None,
        **named: object,
    ) -> Any:
        """Call kazoo once and raise its errors, with a timeout: disconnected, kazoo would wait."""
        left_s = until_s - time.monotonic() if until_s else self._answer_within_s
        return call(*arguments, **named).get(timeout=max(0.0, left_s))

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in order in a thread of this tree, not in one of kazoo's."""
        self._calls.put(call)

    def _call_all(self) -> None:
        from kazoo.exceptions import ConnectionClosedError, KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        while call := self._calls.get():
            with suppress(ConnectionClosedError, KazooException, KazooTimeoutError):
                call()

    def _on_state(self, state: str) -> None:
        session = SessionState(state.lower())
        for listener in [*self._listeners]:
            self.soon(partial(listener, session))
        if session is SessionState.CONNECTED:
            for watch in [*self.watches]:
                self.soon(watch.again)

    def _withdraw(self, path: str, beside: str | None, until_s: float) -> None:
        from kazoo.exceptions import ConnectionLoss

        status = self.ask_once(self.client.exists_async, path, until_s=until_s)
        session = self.client.client_id
        if session is None:
            raise ConnectionLoss  # the session ended meanwhile: `retry` calls this again
        if status and status.ephemeralOwner == session[0]:
            step = self.client.transaction()
            if beside is not None:
                step.check(beside, _ANY_VERSION)
            step.delete(path, status.version)
            for answer in self.ask_once(step.commit_async, until_s=until_s):
                _raise_failure(answer)

    def _done(self, beside: str | None, add: Callable[[Any], None]) -> bool:
        """Whether a write was done; False if its node is missing, or exists already."""
        from kazoo.exceptions import NodeExistsError, NoNodeError

        def commit() -> Any:
            step = self.client.transaction()
            if beside is not None:
                step.check(beside, _ANY_VERSION)
            add(step)
            return step.commit_async()

        *checked, written = self.ask(commit)
        if any(isinstance(answer, NoNodeError) for answer in checked):
            raise no_node(str(beside))
        for answer in (*checked, written):
            _raise_failure(answer)
        return not isinstance(written, NodeExistsError | NoNodeError)

    def _check_write(self, path: str, value: bytes) -> None:
        self._check_access(check(path))
        if len(value) > _VALUE_BYTES_MAX:
            raise StoreError(
                f"{path} would have {len(value):,} bytes, and ZooKeeper takes "
                f"{_VALUE_BYTES_MAX:,} at once: keep less there, or keep it in another store"
            )

    def _check_access(self, path: str) -> None:
        """Log a warning, once for each node at the top, if `digest` is given and any client may
        change that node: it is older than the digest."""
        top = "/" + path.split("/")[1]
        if self._checked is None or top in self._checked:
            return
        self._checked.add(top)
        with suppress(StoreError), self.errors(top):
            entries, _ = self.ask(self.client.get_acls_async, top)
            if any(entry.id.scheme == "world" and entry.perms & ~_READ for entry in entries):
                _LOG.warning(
                    "any client of the ZooKeeper at %s may change %s, in spite of `digest`: it was "
                    "created without. Take another path, or change its access with `setAcl -R`",
                    self._hosts,
                    top,
                )

    def _is_mine(self, path: str, value: bytes, ephemeral: bool) -> bool:
        if ephemeral:
            status = self.ask(self.client.exists_async, path)
            return bool(status and status.ephemeralOwner == self.client.client_id[0])
        return self.get(path) == Node(value, 0)

    @contextmanager
    def errors(self, path: str) -> Iterator[None]:
        from kazoo import exceptions as they
        from kazoo.handlers.threading import KazooTimeoutError
        from kazoo.retry import RetryFailedError

        try:
            yield
        except they.NodeExistsError as error:
            raise node_exists(path) from error
        except they.NoNodeError as error:
            raise no_node(path) from error
        except they.BadVersionError as error:
            raise WrongVersion(f"{path} has another version by now") from error
        except they.NotEmptyError as error:
            raise has_children(path) from error
        except they.NoChildrenForEphemeralsError as error:
            raise below_ephemeral(path) from error
        except (they.NoAuthError, they.AuthFailedError, they.InvalidACLError) as error:
            raise StoreForbidden(
                f"the ZooKeeper at {self._hosts} denies this client access to {path}: it needs "
                "another name and password (`digest`)"
            ) from error
        except (they.KazooException, RetryFailedError, KazooTimeoutError) as error:
            raise StoreUnreachable(
                f"the ZooKeeper at {self._hosts} does not answer "
                f"({self._last.text or type(error).__name__})"
            ) from error


def _raise_failure(answer: object) -> None:
    """Raise the error of one operation of a transaction. A missing or existing node is not raised,
    nor are operations that were rolled back because of another one."""
    from kazoo.exceptions import (
        KazooException,
        NodeExistsError,
        NoNodeError,
        RolledBackError,
        RuntimeInconsistency,
    )

    harmless = (NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency)
    if isinstance(answer, KazooException) and not isinstance(answer, harmless):
        raise answer


# ---- zookeeper backing ---------------------------------------------------------------------------
# Storage of states in ZooKeeper: a node for each key, meant for small states.
#
#     <root>/<state>/<task>                 the word of the mark
#     <root>/<state>/<task>/journal
#     <root>/<state>/<task>/values/<key>    JSON; the key is JSON too, percent-encoded
#
# A batch is one ZooKeeper transaction, which is limited to about a megabyte.

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
        replies = self._each(self._tree.client.get_async, keys)
        return [None if reply is None else reply[0].decode() for reply in replies]

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        self._check_size(changes, mark)
        node = self._node(self._path)
        if is_there(self._home, node.value.decode() or None, mark, seen):
            return
        exist = [
            status is not None for status in self._each(self._tree.client.exists_async, [*changes])
        ]

        def promise() -> Any:
            """A new transaction for each try: kazoo sends one only once."""
            transaction = self._tree.client.transaction()
            transaction.set_data(self._path, mark.word.encode(), node.version)
            transaction.set_data(f"{self._path}/journal", mark.journal.encode())
            for (key, value), exists in zip(changes.items(), exist, strict=True):
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
            replies = self._tree.ask(lambda: _All([call(self._value(key)) for key in keys]))
        return list(replies)

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
    stored_homes = []
    for name in tree.children(root):
        for task in tree.children(f"{root}/{name}"):
            node = tree.get(f"{root}/{name}/{task}")
            if node and node.value:
                stored_homes.append(Home(unquote(name), int(task)))
    return sorted(stored_homes)
