"""The extension points of a profile: their names in a configuration file and what a plugin must have to take part.

MULTI_POINT is no extension point of its own: a plugin enabled there takes part in all that it has methods for. PreScore has no
method of its own either: what a Score plugin prepares for a pod is its `prepare`. Only one that refuses pods there says so
(`PreScorePlugin`): enabled at PreScore and not at Score it is asked for scores, which count nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from rayched.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    NarrowingPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)


class ExtensionPoint(enum.Enum):
    """The value is the field of `plugins` in KubeSchedulerConfiguration."""

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"
    MULTI_POINT = "multiPoint"

    @property
    def title(self) -> str:
        """The name in messages and metrics: PreFilter for preFilter."""
        return self.value[0].upper() + self.value[1:]


PROTOCOLS: Final[Mapping[ExtensionPoint, Any]] = {
    ExtensionPoint.PRE_ENQUEUE: PreEnqueuePlugin,
    ExtensionPoint.QUEUE_SORT: QueueSortPlugin,
    ExtensionPoint.PRE_FILTER: NarrowingPlugin,
    ExtensionPoint.FILTER: FilterPlugin,
    ExtensionPoint.POST_FILTER: PostFilterPlugin,
    ExtensionPoint.PRE_SCORE: PreScorePlugin,
    ExtensionPoint.SCORE: ScorePlugin,
    ExtensionPoint.RESERVE: ReservePlugin,
    ExtensionPoint.PERMIT: PermitPlugin,
    ExtensionPoint.PRE_BIND: PreBindPlugin,
    ExtensionPoint.BIND: BindPlugin,
    ExtensionPoint.POST_BIND: PostBindPlugin,
}
"""What a plugin must be to be called there, in the order of an attempt."""
