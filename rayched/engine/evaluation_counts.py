"""How often each plugin was asked about a pod: scheduler_plugin_evaluation_total.

A plugin is asked about a pod where the pod's template does not skip it, whether what it says is computed anew or taken from what
is kept. Templates that ask the same plugins share a tally, so an evaluation counts one number up, and whoever wants to know looks
at a few tallies, however many templates there are.

Source: plugin_evaluation_total of kube-scheduler 1.34, which has no scores where one node at most is feasible; here they count.
"""

from __future__ import annotations

from collections import Counter

from rayched.framework.profile import Profile


class EvaluationCount:
    """How often templates were evaluated that ask the same plugins."""

    __slots__ = ("asked", "count")

    def __init__(self, asked: tuple[tuple[str, str], ...]) -> None:
        self.asked = asked
        """Plugins and extension points."""
        self.count = 0


class PluginEvaluations:
    """The tallies of one profile."""

    def __init__(self, profile: Profile) -> None:
        self._pre_filter = frozenset(plugin.name for plugin in profile.pre_filter)
        self._tallies: dict[tuple[tuple[str, ...], ...], EvaluationCount] = {}

    def tally(self, asked: tuple[str, ...], filters: tuple[str, ...], scores: tuple[str, ...]) -> EvaluationCount:
        """The tally of templates that ask these plugins at all, as filters, for scores; each by name."""
        key = asked, filters, scores
        found = self._tallies.get(key)
        if found is None:
            pairs = (
                *((name, "PreFilter") for name in asked if name in self._pre_filter),
                *((name, "Filter") for name in filters),
                *((name, "Score") for name in scores),
            )
            found = self._tallies[key] = EvaluationCount(pairs)
        return found

    def total(self) -> Counter[tuple[str, str]]:
        """By plugin and extension point."""
        found: Counter[tuple[str, str]] = Counter()
        for tally in self._tallies.values():
            if tally.count:
                for asked in tally.asked:
                    found[asked] += tally.count
        return found
