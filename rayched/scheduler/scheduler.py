"""The scheduling cycle and the pure half of the binding cycle, over a snapshot, one pod after the other.

A cycle: the node that the pod is nominated to, if it fits there; else evaluate its template over all nodes and choose among the
best. Then assume, Reserve, Permit. Pod i+1 sees what pod i did, and leaves room for nominated pods of at least its priority.
What it decides is data: an Attempt that may go on to its binding, or an AttemptFailure. The binding itself is a write that
somebody else sends; PreBind and Bind run before it, PostBind after it was committed.

Rules:

* One attempt a pod at a time.
* Whatever goes wrong after the assumption ends in `roll_back`: Unreserve of all plugins in reverse order, then the room is given
  back. Nothing but this module calls plugins of the life cycle.
* A plugin that raises fails the attempt, never the loop; so does work that takes longer than an attempt may.

Owner: the SchedulerCore; one thread. No clock: `now` is in seconds and only times waits.
Source: scheduleOne, schedulingCycle, bindingCycle of kube-scheduler 1.34.
Cost: beyond the engine's and the snapshot's about 3 µs a pod.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rayched.engine.engine import Engine
from rayched.engine.nominations import Nomination
from rayched.engine.shards import ShardEvaluator
from rayched.framework.measured_lifecycle import ATTEMPTS_SAMPLED_EVERY, PointDurations, Stopwatch
from rayched.framework.plugin_error import PluginError
from rayched.framework.profile import Profile
from rayched.framework.raised import Raised
from rayched.framework.status import Code, Status, error
from rayched.scheduler.attempt import BINDING, READY, Attempt, AttemptFailure, AttemptPhase, HasPod, failed_on_node
from rayched.scheduler.decisions import Decisions
from rayched.scheduler.nominations import Nominations
from rayched.scheduler.occupancy import Occupancy
from rayched.scheduler.post_filter import PostFilterStep
from rayched.scheduler.profile_runner import ProfileRunner, ProfileRunners
from rayched.scheduler.sampling import Sampling
from rayched.scheduler.selection import SeededTieBreaker, TieBreaker
from rayched.scheduler.shadow import ShadowRecords
from rayched.scheduler.waiting import UsesPermitHandle, WaitingPods
from rayched.snapshot.budgets import Budgets
from rayched.snapshot.pod_facts import PodFacts
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate
from rayched.snapshot.work_budget import AttemptAwaits, AttemptOverBudget
from rayched.v1.core_pb2 import Pod

ATTEMPT_SECONDS: Final = 1.0
"""Of the scheduler's time for one attempt, its preemption included. Ordinary ones take less than a thousandth."""
COUNTING_SECONDS: Final = 0.05
"""For idle work on one template."""
PROBLEMS_MAX: Final = 100
"""Unreported problems of plugins that are kept."""


class PodToSchedule(NamedTuple):
    """A pending pod as an attempt takes it up."""

    uid: str
    name: str
    """namespace/name."""
    template: PodTemplate
    pod: Pod | HasPod


@dataclass(frozen=True, slots=True)
class Draws:
    """What decides where all else is equal, so that another scheduler over the same cluster goes on just as this one would."""

    seed: int = 0
    decisions: int = 0
    """The number of the next decision."""
    search_start: int = 0
    """Where the next search begins, where not all nodes are scored."""


class Scheduler:
    """Decides over one snapshot for all profiles."""

    def __init__(
        self,
        snapshot: Snapshot,
        profiles: Mapping[str, Profile],
        seed: int,
        shards: Callable[[str], ShardEvaluator] | None = None,
        chance: TieBreaker | None = None,
        stopwatch: Stopwatch = lambda: 0.0,
    ) -> None:
        """`shards` gives the port for the engine of a profile, by the scheduler's name; `chance` stands in for the seed's.

        `stopwatch` measures one attempt in ATTEMPTS_SAMPLED_EVERY, and what plugins with a time budget take of a cycle.
        """
        self.occupancy = Occupancy(snapshot)
        self.nominations = Nominations(snapshot)
        self.waiting = WaitingPods()
        self.plugin_problems: deque[Status] = deque(maxlen=PROBLEMS_MAX)
        """What plugins raised while they were merely informed, newest last; the reporter takes them out."""
        self.raised = Raised()
        """What plugins and the engine raised, for the log."""
        self.freed: list[Attempt] = []
        """Attempts undone after their own cycle: others may wait for the room that they held. Whoever tells of it clears this."""
        self._snapshot = snapshot
        self._chance = chance or SeededTieBreaker(seed)
        self._decisions = 0
        self.durations = PointDurations(stopwatch)
        self.decisions = Decisions(snapshot, stopwatch)
        """What was decided last."""
        self.shadows = ShadowRecords(self.raised)
        self._goes_on = False
        """The attempt is made again where it takes too long."""
        self.over_budget: Counter[str] = Counter()
        """Attempts that took longer than they may, by profile."""
        self._sampling = Sampling(snapshot)
        self._runners = ProfileRunners(
            snapshot, profiles, shards, self.nominations, self._chance, self._sampling, self.durations, self.raised
        )
        self.knows: Final[Callable[[str], bool]] = self._runners.knows
        """Whether a profile of this name decides about such pods."""
        self.profiles: Final = self._runners
        """What each profile decides with, and where attempts look for a node."""
        self.post_filter = PostFilterStep(snapshot, self.nominations, self.waiting)
        self._attempts: dict[str, Attempt] = {}
        for profile in profiles.values():
            for plugin in profile.plugins():
                if isinstance(plugin, UsesPermitHandle):
                    plugin.use_permit_handle(self.waiting)

    # ------------------------------------------------------------------------------------------------------ looking up

    @property
    def budgets(self) -> Budgets:
        """As preemption reads them."""
        return self._snapshot.budgets

    def engine(self, scheduler_name: str) -> Engine:
        return self._runners.of(scheduler_name).engine

    def weights(self, scheduler_name: str) -> Mapping[str, int]:
        """Of the score plugins of a profile, by name."""
        return self._runners.of(scheduler_name).profile.weights

    def evaluations(self) -> Iterator[tuple[str, str, str, int]]:
        """Plugin, extension point, profile, and how often the plugin was asked about a pod."""
        for profile, runner in self._runners.by_profile():
            for (plugin, point), count in sorted(runner.engine.evaluations().items()):
                yield plugin, point, profile, count

    def draws(self) -> Draws:
        return Draws(self._chance.seed, self._decisions, self._sampling.start)

    def draw_on(self, draws: Draws) -> None:
        """Go on where another scheduler stood."""
        self._chance.seed, self._decisions, self._sampling.start = draws.seed, draws.decisions, draws.search_start

    def attempt(self, uid: str) -> Attempt | None:
        """The pod's attempt that has chosen a node and is not over."""
        return self._attempts.get(uid)

    def attempts(self) -> list[Attempt]:
        return list(self._attempts.values())

    # ------------------------------------------------------------------------------------------------ scheduling cycle

    def schedule(
        self,
        pod: PodToSchedule,
        began: int,
        now: float,
        now_unix: float = 0.0,
        allowed: float = ATTEMPT_SECONDS,
        *,
        goes_on: bool = False,
        may_await: bool = False,
        node_name: str = "",
    ) -> Attempt | AttemptFailure:
        """One cycle. The attempt that comes back holds room on its node and is READY or WAITING.

        `now_unix`: what start times of pods are compared with, where a minimum runtime is asked for. `allowed`: seconds that
        the choice of a node may take; one that takes longer fails with an error, as if a plugin had failed. With `goes_on`
        it raises AttemptOverBudget instead: nothing has happened, but that the next attempt for the pod has less to compute.
        With `may_await` it raises AttemptAwaits where workers are asked for columns: nothing has happened, and the same attempt
        is to be made again before any other, with the same result. `node_name`: chosen already, by whoever decided before.
        """
        runner = self._runners.of(pod.template.scheduler_name)
        sampled = not self._decisions % ATTEMPTS_SAMPLED_EVERY
        lifecycle = runner.measured if sampled else runner.lifecycle
        attempt = Attempt(pod.uid, pod.name, self._decisions, began, pod.template, pod.pod, lifecycle, now, node_name)
        self._decisions += 1
        if node_name:
            return self._take(attempt, now)
        work = self._snapshot.work
        work.begin(allowed, may_await=may_await)
        self._goes_on = goes_on
        try:
            if runner.meter is None:
                return self._cycle(runner, attempt, now, now_unix, sampled)
            with runner.meter.cycle():
                return self._cycle(runner, attempt, now, now_unix, sampled)
        except AttemptAwaits:
            self._decisions -= 1
            raise
        finally:
            work.end()

    def _cycle(
        self,
        runner: ProfileRunner,
        attempt: Attempt,
        now: float,
        now_unix: float,
        sampled: bool,
        skipped: frozenset[str] = frozenset(),
    ) -> Attempt | AttemptFailure:
        """`skipped`: plugins that the runner is without, as they took too long."""
        try:
            nominated: Sequence[Nomination] = ()
            row = None
            if self.nominations.of:
                nominated = self.nominations.beside(attempt.uid, attempt.template.priority)
                row = self._nominated_row(runner, attempt, nominated)
            if row is None:
                evaluation = (runner.measured_evaluation if sampled else runner.evaluate)(attempt.template, nominated)
                if evaluation.best < 0:
                    return self._no_node(runner, attempt, nominated, now_unix)
                ties = evaluation.ties
                row = self._chance.among(ties, attempt.number)
                self.decisions.chose(attempt, row, evaluation, ties)
                if runner.shadow is not None:
                    runner.shadow.ask(attempt, row, nominated, self.shadows)
            else:
                self.decisions.kept(attempt, row)
        except AttemptOverBudget as problem:
            if self._goes_on:
                raise
            return self._over_budget(attempt, problem)
        except PluginError as problem:
            meter = runner.meter
            self.raised.note(str(problem), problem)
            failed = error((meter and meter.complaint(problem.plugin)) or str(problem)).by(problem.plugin)
            if meter is None or problem.plugin in skipped or not meter.is_skipped(problem.plugin):
                return self._broken(attempt, failed)
            self.plugin_problems.append(failed)
            skipped |= {problem.plugin}
            lighter = self._runners.without(attempt.template.scheduler_name, skipped)
            return self._cycle(lighter, attempt, now, now_unix, sampled, skipped)
        except Exception as problem:
            # A pod that breaks the engine parks itself; the others go on.
            text = f"evaluating the nodes: {type(problem).__name__}: {problem}"
            self.raised.note(text, problem)
            return self._broken(attempt, error(text))
        self._snapshot.work.end()
        attempt.node_name = self._snapshot.name_of(row)
        return self._take(attempt, now)

    def prefetch(self, template: PodTemplate) -> None:
        """A pod of this template comes soon: workers may evaluate what its attempt will ask for."""
        if self.knows(template.scheduler_name):
            try:
                self._runners.of(template.scheduler_name).engine.prefetch(template)
            except Exception as problem:
                # The pod's own attempt fails by it, if it fails.
                self.raised.note(f"looking ahead: {type(problem).__name__}: {problem}", problem)

    def decided_waits(self, now: float) -> Iterator[tuple[Attempt, AttemptFailure | None]]:
        """Attempts whose wait has ended: READY, or rolled back with the failure."""
        for decided in self.waiting.take_decided(now):
            attempt = self._attempts.get(decided.uid)
            if attempt is None:
                continue
            if decided.status.ok:
                attempt.phase = READY
                yield attempt, None
            else:
                self.roll_back(attempt)
                yield attempt, failed_on_node(decided.status)

    def count_rejections(self) -> bool:
        """Idle work: who keeps how many nodes away from a template that was decided about. False: there is none to do."""
        try:
            with self._snapshot.work.of(COUNTING_SECONDS):
                return self.decisions.count(self._runners.rejections, self._decisions - 1)
        except AttemptOverBudget:
            return True  # Nobody needs to know.
        except Exception as problem:
            # A plugin's fault, or the engine's with this template: no reason to end the loop.
            self.raised.note(text := f"counting who rejects nodes: {problem}", problem)
            self.plugin_problems.append(error(text))
            return True

    # --------------------------------------------------------------------------------------------------- binding cycle

    def begin_binding(self, attempt: Attempt, attempt_id: str) -> AttemptFailure | None:
        """PreBind, then Bind. None: the binding may be written, under that id; else the attempt is rolled back."""
        if not attempt.lifecycle.binds_at_once:
            pod, state, node_name = attempt.pod, attempt.state, attempt.node_name
            status = attempt.lifecycle.pre_bind(state, pod, node_name)
            if status.ok:
                status = attempt.lifecycle.bind(state, pod, node_name)
                if status.code is Code.SKIP:
                    status = error("no Bind plugin took the binding")
            if not status.ok:
                self.roll_back(attempt)
                return failed_on_node(status)
        attempt.phase, attempt.id = BINDING, attempt_id
        return None

    def bound(self, attempt: Attempt) -> None:
        """The binding is committed: PostBind. The room stays taken until the pod is seen bound."""
        if self._attempts.pop(attempt.uid, None) is attempt and not attempt.lifecycle.tells_nobody:
            self.plugin_problems.extend(attempt.lifecycle.post_bind(attempt.state, attempt.pod, attempt.node_name))

    def roll_back(self, attempt: Attempt) -> None:
        """Undo the attempt: Unreserve of all plugins, last one first; then its room is free again. Idempotent."""
        if self._attempts.pop(attempt.uid, None) is not attempt:
            return
        self._undo(attempt)
        self.freed.append(attempt)

    def void(self) -> None:
        """The term is over: every attempt is undone, every assumption forgotten, committed or not. Only what was seen counts."""
        for attempt in self.attempts():
            self.roll_back(attempt)
        for uid in self.occupancy.assumed():
            self.occupancy.forget(uid)

    # --------------------------------------------------------------------------------------------------------- private

    def _undo(self, attempt: Attempt) -> None:
        self.waiting.remove(attempt.uid)
        self.plugin_problems.extend(attempt.lifecycle.unreserve(attempt.state, attempt.pod, attempt.node_name))
        self.occupancy.forget(attempt.uid)

    def _nominated_row(self, runner: ProfileRunner, attempt: Attempt, nominated: Sequence[Nomination]) -> int | None:
        """The row that the pod is nominated to, if it fits there."""
        row = self._snapshot.row_of(self.nominations.node_of(attempt.uid))
        return row if row is not None and runner.engine.fits(attempt.template, row, nominated) else None

    def _take(self, attempt: Attempt, now: float) -> Attempt | AttemptFailure:
        """Assume, Reserve, Permit. The pod's nomination has served."""
        uid = attempt.uid
        if self.nominations.of:
            self.nominations.forget(uid)
        # The binding will show these facts, so that nothing of the pod changes when it is seen.
        self.occupancy.assume(uid, attempt.template, attempt.node_name, PodFacts(attempt.name))
        self._attempts[uid] = attempt
        if attempt.lifecycle.takes_at_once:
            return attempt
        status = attempt.lifecycle.reserve(attempt.state, attempt.pod, attempt.node_name)
        if status.ok:
            permit = attempt.lifecycle.permit(attempt.state, attempt.pod, attempt.node_name)
            status = permit.status
            if status.code is Code.WAIT:
                attempt.phase = AttemptPhase.WAITING
                self.waiting.add(attempt.uid, attempt.name, attempt.node_name, permit.timeouts, now)
                return attempt
        if status.ok:
            return attempt
        # Within its own cycle: nobody else has seen the room taken.
        del self._attempts[attempt.uid]
        self._undo(attempt)
        return failed_on_node(status)

    def _no_node(
        self, runner: ProfileRunner, attempt: Attempt, nominated: Sequence[Nomination], now_unix: float
    ) -> AttemptFailure:
        """No node is feasible: ask PostFilter whether it can make one so."""
        own_row = self._snapshot.row_of(self.nominations.node_of(attempt.uid)) if self.nominations.of else None
        diagnosis = runner.diagnose(attempt.template, nominated, own_row)
        status = diagnosis.pre_filter if not diagnosis.pre_filter.ok else Status(Code.UNSCHEDULABLE)
        if not status.rejected:
            return self._broken(attempt, status)
        failure = AttemptFailure(
            status,
            diagnosis.message(),
            unschedulable_plugins=diagnosis.unschedulable_plugins,
            pending_plugins=diagnosis.pending_plugins,
        )
        if not diagnosis.n_nodes:
            self.nominations.forget(attempt.uid)
            failure = replace(failure, nominated_node_name="")
        elif attempt.lifecycle.has_post_filter and not attempt.template.pod_group:
            failure = self.post_filter.run(runner.evaluator, attempt, failure, diagnosis, nominated, now_unix)
        self.decisions.failed(attempt, diagnosis, failure)
        return failure

    def _over_budget(self, attempt: Attempt, problem: AttemptOverBudget) -> AttemptFailure:
        """What was computed is kept, so that the next attempt has less to do."""
        self.over_budget[attempt.template.scheduler_name] += 1
        what = "its affinity, topology spread constraints and the pods that it may preempt take too long to look at"
        return self._broken(attempt, error(f"the attempt {problem}: {what}"))

    def _broken(self, attempt: Attempt, status: Status) -> AttemptFailure:
        """Something failed that should not; a nomination ends with it, as in kube-scheduler 1.34."""
        self.nominations.forget(attempt.uid)
        self.decisions.broke(attempt, status.message())
        return AttemptFailure(status, status.message(), nominated_node_name="")
