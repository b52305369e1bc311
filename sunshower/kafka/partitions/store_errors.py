"""Converts errors of a state store that holds Kafka metadata or offsets into Kafka errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sunshower.errors import KafkaUnreachable, NotAuthorised, StoreError, StoreForbidden


@contextmanager
def using(what: str) -> Iterator[None]:
    """`what` names the node or data in the error message."""
    try:
        yield
    except StoreForbidden as error:
        raise NotAuthorised(f"{what} is not for this client: {error}") from error
    except StoreError as error:
        raise KafkaUnreachable(f"{what} cannot be used: {error}") from error
