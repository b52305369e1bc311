"""Errors of a store, where Kafka's directories and offsets are in one, as errors of this room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sunshower.errors import KafkaUnreachable, NotAuthorised, StoreError, StoreForbidden


@contextmanager
def using(what: str) -> Iterator[None]:
    """`what` is a place in the store, for the message."""
    try:
        yield
    except StoreForbidden as error:
        raise NotAuthorised(f"{what} is not for this client: {error}") from error
    except StoreError as error:
        raise KafkaUnreachable(f"{what} cannot be used: {error}") from error
