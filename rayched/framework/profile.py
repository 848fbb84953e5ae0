"""A profile: the plugins of one scheduler name, in order, with the weights of those that score.

Immutable once built; `configuration.profile_building` makes profiles out of a configuration and a registry. A plugin that takes
part in several extension points is one object in all of them. Profiles of one scheduler have equal QueueSort plugins.

Source: KubeSchedulerProfile and frameworkImpl of kube-scheduler 1.34.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rayched.framework.lifecycle import Lifecycle
from rayched.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    NarrowingPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)

ALL_NODES = 100
"""percentage_of_nodes_to_score that looks at every node: the default here; 0 is kube-scheduler's adaptive share."""


class WhenExceeded(enum.Enum):
    """What a plugin that takes too long costs."""

    FAIL = "Fail"
    SKIP = "Skip"


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """Of one plugin, for one cycle."""

    seconds: float
    when_exceeded: WhenExceeded = WhenExceeded.FAIL


@dataclass(frozen=True, slots=True)
class Profile:
    """Who is asked at each extension point, first one first."""

    scheduler_name: str
    queue_sort: QueueSortPlugin
    bind: tuple[BindPlugin, ...]
    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    pre_filter: tuple[NarrowingPlugin, ...] = ()
    filter: tuple[FilterPlugin, ...] = ()
    post_filter: tuple[PostFilterPlugin, ...] = ()
    score: tuple[ScorePlugin, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    """Of each plugin in `score`, by its name: 1 or more, or 0 where it is enabled at PreScore alone."""
    reserve: tuple[ReservePlugin, ...] = ()
    permit: tuple[PermitPlugin, ...] = ()
    pre_bind: tuple[PreBindPlugin, ...] = ()
    post_bind: tuple[PostBindPlugin, ...] = ()
    percentage_of_nodes_to_score: int = ALL_NODES
    time_budgets: Mapping[str, TimeBudget] = field(default_factory=dict)
    """Of plugins that have one, by name."""
    shadow: Profile | None = None
    """This profile with further Filter and Score plugins, which are asked beside it and have no say."""

    def plugins(self) -> Iterator[Plugin]:
        """Each plugin of the profile once, in the order in which an attempt first meets it."""
        seen: set[int] = set()
        points: tuple[tuple[Plugin, ...], ...] = (
            self.pre_enqueue,
            (self.queue_sort,),
            self.pre_filter,
            self.filter,
            self.post_filter,
            self.score,
            self.reserve,
            self.permit,
            self.pre_bind,
            self.bind,
            self.post_bind,
        )
        for plugin in (plugin for point in points for plugin in point):
            if id(plugin) not in seen:
                seen.add(id(plugin))
                yield plugin

    def lifecycle(self) -> Lifecycle:
        """The extension points after Filter, ready to run."""
        return Lifecycle(
            post_filter=self.post_filter,
            reserve=self.reserve,
            permit=self.permit,
            pre_bind=self.pre_bind,
            bind=self.bind,
            post_bind=self.post_bind,
        )
