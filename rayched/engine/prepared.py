"""What plugins are asked: one half of one plugin, on behalf of all pods with one key, about some rows."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from rayched.engine.column_store import CacheEntry
from rayched.engine.plugin_calls import FILTER, SCORE, call_filter, call_score
from rayched.framework.plugin import ColumnPlugin, FilterPlugin, ScorePlugin
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.rows import Rows

Answer: TypeAlias = NDArray[Any] | None
"""Codes, uint8, or raw scores, int64, of shape (rows,). None, whatever the rows: nothing is rejected, nothing is added."""


class PluginHalf(enum.Enum):
    """Which half of a plugin an answer comes from."""

    FILTER = "filter"
    SCORE = "score"

    # As members are the only ones of their kind; Enum's hash is worked out in Python, and this one is asked for all the time.
    __hash__ = object.__hash__


FILTER_HALF: Final = PluginHalf.FILTER
SCORE_HALF: Final = PluginHalf.SCORE
"""For what happens with each column: to look a member up in its class takes 0.1 µs."""


class PreparedPlugin(CacheEntry):
    """A plugin and its prepared state for one key."""

    __slots__ = ("content", "plugin", "prepared")

    def __init__(self, key: Hashable, plugin: ColumnPlugin, prepared: Any, content: bytes) -> None:
        super().__init__(key)
        self.plugin = plugin
        self.prepared = prepared
        """What the plugin's `prepare` gave."""
        self.content = content
        """A pod with this key, serialised: tells a worker what is asked."""

    @property
    def state(self) -> Any:
        """What the plugin's other methods work on."""
        return self.prepared


class ColumnKey(NamedTuple):
    """One half of a plugin. Equal to another with the same Asked, of which there is one for a key."""

    asked: PreparedPlugin
    part: PluginHalf

    def ask(self, rows: Rows) -> Answer:
        """The checked answer. Raises PluginError."""
        asked = self.asked
        if self.part is FILTER_HALF:
            return call_filter(cast(FilterPlugin, asked.plugin), asked.state, rows)
        return call_score(cast(ScorePlugin, asked.plugin), asked.state, rows)


def join(plugin: str, part: PluginHalf, answers: Sequence[Answer]) -> Answer:
    """Answers to one question for consecutive sets of rows, put together. Raises PluginError where only some are None."""
    columns = [answer for answer in answers if answer is not None]
    if not columns:
        return None
    if len(columns) < len(answers):
        # It would let through what the plugin rejects elsewhere.
        problem = "answered None for some rows and a column for others"
        raise PluginError(plugin, FILTER if part is FILTER_HALF else SCORE, problem)
    return columns[0] if len(columns) == 1 else np.concatenate(columns)
