"""Cuts a sequence of messages into batches that one call takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import methodcaller
from typing import Any, Final, TypeVar

MESSAGES_MAX: Final = 100
BYTES_MAX: Final = 256 << 10
"""A quarter of what a replica takes: large objects may come slowly, and each batch has to be answered in time."""
_BYTES_A_MESSAGE: Final = 8
"""Tag and length around each message."""

_BYTE_SIZE: Final = methodcaller("ByteSize")

M = TypeVar("M")


def batches(
    messages: Iterable[M],
    messages_max: int = MESSAGES_MAX,
    bytes_max: int = BYTES_MAX,
    size_of: Callable[[Any], int] = _BYTE_SIZE,
) -> Iterator[list[M]]:
    """Lists in order, never empty. A single message above `bytes_max` is a batch of its own: the server says what is wrong."""
    batch: list[M] = []
    size = 0
    for message in messages:
        own = size_of(message) + _BYTES_A_MESSAGE
        if batch and (len(batch) >= messages_max or size + own > bytes_max):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield batch
