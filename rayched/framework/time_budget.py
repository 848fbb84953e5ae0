"""Time budgets: how much of one scheduling cycle a plugin may take, and what happens when it takes more.

Python cannot interrupt a call, so time is measured after each one. The call after which a budget is used up is the plugin's last
one in that cycle: its answer is not used, nothing of it is kept, and it is not called again before the next cycle.

    Fail    the attempt ends with an error that names the plugin; the pod is tried again after its backoff
    Skip    the cycle is decided as if the profile did not have the plugin among its Filter and Score plugins

What counts are the calls on columns (PreFilter, Filter, PreScore, Score, NormalizeScore) and, with Fail, also Reserve and Permit.
Evaluations by workers and questions outside of cycles (explain, plan) are not limited: nothing waits for them.

A plugin without a budget is called directly. The clock comes in as an argument. Owner: the Scheduler; one thread.
Cost: two readings of the clock for each call of a plugin that has a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from rayched.framework.contract import COLUMN_METHODS
from rayched.framework.plugin import PermitPlugin, ReservePlugin
from rayched.framework.profile import Profile, TimeBudget, WhenExceeded

_ON_A_POD: Final = frozenset((ReservePlugin.reserve.__name__, PermitPlugin.permit.__name__))

T = TypeVar("T")


class PluginOverBudget(Exception):
    """A plugin has used up its time in this cycle."""


class CycleMeter:
    """How much time of the present cycle the plugins of one profile have taken."""

    def __init__(self, clock: Callable[[], float], budgets: Mapping[str, TimeBudget]) -> None:
        """`clock` in seconds."""
        self._clock = clock
        self._budgets = budgets
        self._spent: dict[str, float] = {}
        self._last_calls: dict[str, str] = {}
        """The method after which a plugin's time was used up."""
        self._running = False

    @contextmanager
    def cycle(self) -> Iterator[None]:
        """One scheduling cycle; outside of one nothing is measured."""
        self._spent.clear()
        self._running = True
        try:
            yield
        finally:
            self._running = False

    def is_skipped(self, plugin: str) -> bool:
        """Whether the rest of this cycle goes on without the plugin."""
        budget = self._budgets.get(plugin)
        return budget is not None and budget.when_exceeded is WhenExceeded.SKIP and self._is_over(plugin, budget)

    def complaint(self, plugin: str) -> str:
        """What to tell of a plugin that took too long in this cycle; "" of any other."""
        budget = self._budgets.get(plugin)
        if budget is None or not self._is_over(plugin, budget):
            return ""
        spent, allowed = self._spent[plugin] * 1000, budget.seconds * 1000
        took = f"took {spent:.0f} ms of a cycle, its budget is {allowed:g} ms"
        return f'plugin "{plugin}": {took}; the last call was {self._last_calls[plugin]}'

    def metered(self, profile: Profile) -> Profile:
        """The profile with its budgets watched over."""
        watched: dict[int, Any] = {}

        def each(plugins: tuple[T, ...]) -> tuple[T, ...]:
            return tuple(self._watched(plugin, watched) for plugin in plugins)

        return replace(
            profile,
            pre_filter=each(profile.pre_filter),
            filter=each(profile.filter),
            score=each(profile.score),
            reserve=each(profile.reserve),
            permit=each(profile.permit),
        )

    def _watched(self, plugin: Any, watched: dict[int, Any]) -> Any:
        """A plugin with the same methods and attributes, some of them measured; the plugin itself where it has no budget."""
        budget = self._budgets.get(plugin.name)
        if budget is None:
            return plugin
        if id(plugin) not in watched:
            measured = COLUMN_METHODS if budget.when_exceeded is WhenExceeded.SKIP else COLUMN_METHODS | _ON_A_POD
            attributes: dict[str, Any] = {}
            for name in dir(plugin):
                if not name.startswith("_"):
                    value = getattr(plugin, name)
                    value = self._around(plugin.name, budget, name, value) if name in measured else value
                    attributes[name] = staticmethod(value) if callable(value) else value
            # Its extension points are told by what the class has, so it has what the plugin's has and nothing else.
            watched[id(plugin)] = type(type(plugin).__name__, (), attributes)()
        return watched[id(plugin)]

    def _around(self, plugin: str, budget: TimeBudget, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if not self._running:
                return method(*arguments)
            if self._is_over(plugin, budget):
                raise PluginOverBudget(self.complaint(plugin))
            began = self._clock()
            answer = method(*arguments)
            self._spent[plugin] = self._spent.get(plugin, 0.0) + self._clock() - began
            if self._is_over(plugin, budget):
                self._last_calls[plugin] = name
                raise PluginOverBudget(self.complaint(plugin))
            return answer

        return call

    def _is_over(self, plugin: str, budget: TimeBudget) -> bool:
        return self._spent.get(plugin, 0.0) > budget.seconds


def without(profile: Profile, skipped: Collection[str]) -> Profile:
    """The profile with these neither among its Filter nor its Score plugins, and without its shadow."""
    return replace(
        profile,
        pre_filter=tuple(plugin for plugin in profile.pre_filter if plugin.name not in skipped),
        filter=tuple(plugin for plugin in profile.filter if plugin.name not in skipped),
        score=tuple(plugin for plugin in profile.score if plugin.name not in skipped),
        weights={name: weight for name, weight in profile.weights.items() if name not in skipped},
        shadow=None,
    )
