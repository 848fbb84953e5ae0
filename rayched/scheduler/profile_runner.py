"""The engine and the life cycle of each profile, as the scheduling cycle uses them.

Where plugins have time budgets, a profile has a second runner for each set of plugins that were skipped.

Owner: the Scheduler. Source: the map of profiles and findNodesThatFitPod of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rayched.engine.engine import Engine
from rayched.engine.evaluation import Evaluation
from rayched.engine.nominations import Nomination
from rayched.engine.shards import ShardEvaluator
from rayched.framework import names
from rayched.framework.diagnosis import Diagnosis
from rayched.framework.lifecycle import Lifecycle
from rayched.framework.measured_lifecycle import FILTER, MeasuredLifecycle, PointDurations
from rayched.framework.plugin_args import DefaultPreemptionArgs
from rayched.framework.profile import ALL_NODES, Profile
from rayched.framework.raised import Raised
from rayched.framework.status import Code
from rayched.framework.time_budget import CycleMeter, without
from rayched.scheduler.nominations import Nominations
from rayched.scheduler.potential_victims import PotentialVictims
from rayched.scheduler.preemption import Evaluator
from rayched.scheduler.sampling import Sampling
from rayched.scheduler.selection import TieBreaker
from rayched.scheduler.shadow import Shadow
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.work_budget import AttemptAwaits

BEYOND: Final = "node(s) were not in the topology domain of the pod group"


@dataclass(slots=True)
class SearchBounds:
    """Where attempts look for a node: all of a pod group look within one domain of its topology."""

    beyond: frozenset[int] | None = None
    """Rows of nodes that are out of the question; None: all are looked at. One object serves many attempts."""

    @contextmanager
    def set(self, beyond: frozenset[int] | None) -> Iterator[None]:
        """For a block."""
        self.beyond = beyond
        try:
            yield
        finally:
            self.beyond = None


@dataclass(frozen=True, slots=True)
class ProfileRunner:
    """What decides for the pods of one profile."""

    profile: Profile
    engine: Engine
    lifecycle: Lifecycle
    measured: Lifecycle
    """The same with a stopwatch."""
    evaluator: Evaluator
    sampling: Sampling
    durations: PointDurations
    bounds: SearchBounds
    meter: CycleMeter | None = None
    """Watches over the time budgets of plugins, where there are any."""
    shadow: Shadow | None = None

    @property
    def preemption_args(self) -> DefaultPreemptionArgs | None:
        """Of the profile's preemption; None: it makes no room."""
        plugin = next((one for one in self.profile.post_filter if one.name == names.DEFAULT_PREEMPTION), None)
        args = getattr(plugin, "args", None)
        return args if isinstance(args, DefaultPreemptionArgs) else None

    def evaluate(self, template: PodTemplate, nominated: Sequence[Nomination]) -> Evaluation:
        """The template over all nodes, or over those that the profile's sampling reaches."""
        beyond = self.bounds.beyond
        evaluation = self.engine.evaluate(template, beyond, nominated)
        percentage = self.profile.percentage_of_nodes_to_score
        if percentage >= ALL_NODES:
            return evaluation
        left_out = self.sampling.left_out(percentage, evaluation)
        if left_out is None:
            return evaluation
        if beyond is not None:
            left_out = np.union1d(left_out, np.array([*beyond], np.intp))
        return self.engine.evaluate(template, left_out, nominated)

    def diagnose(self, template: PodTemplate, nominated: Sequence[Nomination], own_row: int | None) -> Diagnosis:
        """Why no node is feasible; nodes that are feasible but beyond the bounds are counted as such."""
        found, beyond = self.engine.diagnose(template, nominated, own_row), self.bounds.beyond
        if beyond is None or not found.pre_filter.ok:
            return found
        n_beyond = sum(1 for row in beyond if found.codes[row] == Code.SUCCESS)
        return replace(found, reasons={**found.reasons, BEYOND: n_beyond}) if n_beyond else found

    def measured_evaluation(self, template: PodTemplate, nominated: Sequence[Nomination]) -> Evaluation:
        """`evaluate` with a stopwatch."""
        code: Code | None = Code.ERROR
        began = self.durations.stopwatch()
        try:
            evaluation = self.evaluate(template, nominated)
            code = Code.SUCCESS if evaluation.is_feasible else Code.UNSCHEDULABLE
            return evaluation
        except AttemptAwaits:
            # It is made again, and told then.
            code = None
            raise
        finally:
            if code is not None:
                self.durations.note(FILTER, code, template.scheduler_name, began)


class ProfileRunners:
    """The runners of all profiles, by the scheduler's name."""

    def __init__(
        self,
        snapshot: Snapshot,
        profiles: Mapping[str, Profile],
        shards: Callable[[str], ShardEvaluator] | None,
        nominations: Nominations,
        chance: TieBreaker,
        sampling: Sampling,
        durations: PointDurations,
        raised: Raised,
    ) -> None:
        self._snapshot, self._shards, self._nominations, self._chance = snapshot, shards, nominations, chance
        self._sampling, self._durations, self._raised = sampling, durations, raised
        self._potential = PotentialVictims(snapshot)
        self.bounds = SearchBounds()
        self._runners: dict[str, ProfileRunner] = {}
        self._lighter: dict[tuple[str, frozenset[str]], ProfileRunner] = {}
        """Runners without plugins that were skipped, made when they are first needed."""
        for name, profile in profiles.items():
            meter = CycleMeter(durations.stopwatch, profile.time_budgets) if profile.time_budgets else None
            self._runners[name] = self._runner(profile if meter is None else meter.metered(profile), meter)
        self.knows = self._runners.__contains__
        self.of = self._runners.__getitem__

    def by_profile(self) -> Iterable[tuple[str, ProfileRunner]]:
        return self._runners.items()

    def without(self, scheduler_name: str, skipped: frozenset[str]) -> ProfileRunner:
        """The runner of a profile that lacks these plugins."""
        key = scheduler_name, skipped
        if key not in self._lighter:
            full = self.of(scheduler_name)
            self._lighter[key] = self._runner(without(full.profile, skipped), full.meter)
        return self._lighter[key]

    def rejections(self, template: PodTemplate) -> Mapping[str, int]:
        """How many nodes each plugin keeps away from the template."""
        runner = self.of(template.scheduler_name)
        if runner.meter is None:
            return runner.engine.rejections(template)
        with runner.meter.cycle():
            return runner.engine.rejections(template)

    def _runner(self, profile: Profile, meter: CycleMeter | None) -> ProfileRunner:
        engine = Engine(self._snapshot, profile, None if self._shards is None else self._shards(profile.scheduler_name))
        evaluator = Evaluator(self._snapshot, engine, self._nominations, self._chance, self._potential)
        measured = MeasuredLifecycle(profile, self._durations)
        shadow = None
        if profile.shadow is not None:
            shadow = Shadow(self._snapshot, profile, self._chance, self._durations.stopwatch)
        lifecycle = profile.lifecycle()
        lifecycle.raised = measured.raised = self._raised
        return ProfileRunner(
            profile, engine, lifecycle, measured, evaluator, self._sampling, self._durations, self.bounds, meter, shadow
        )
