"""How often each plugin was asked about a pod: scheduler_plugin_evaluation_total.

A plugin is asked about a pod where the pod's template does not skip it, whether what it says is computed anew or taken from what
is kept. So the evaluations of each plan are counted, and the plugins looked up when somebody wants to know.

Source: plugin_evaluation_total of kube-scheduler 1.34, which has no scores where one node at most is feasible; here they count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rayched.framework.plan import Plan
from rayched.framework.profile import Profile


class PluginEvaluations:
    """Of one profile. `note` whatever plan is dropped."""

    def __init__(self, profile: Profile) -> None:
        self._pre_filter = frozenset(plugin.name for plugin in profile.pre_filter)
        self._dropped: Counter[tuple[str, str]] = Counter()

    def note(self, plan: Plan) -> None:
        self._add(self._dropped, plan)

    def with_plans(self, plans: Iterable[Plan]) -> Counter[tuple[str, str]]:
        """By plugin and extension point: those of dropped plans and of these."""
        found = Counter(self._dropped)
        for plan in plans:
            self._add(found, plan)
        return found

    def _add(self, counts: Counter[tuple[str, str]], plan: Plan) -> None:
        if not plan.evaluations:
            return
        for asked in plan.filters:
            counts[asked.plugin.name, "Filter"] += plan.evaluations
            if asked.plugin.name in self._pre_filter:
                counts[asked.plugin.name, "PreFilter"] += plan.evaluations
        for score in plan.scores:
            counts[score.asked.plugin.name, "Score"] += plan.evaluations
