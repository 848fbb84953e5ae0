"""What the scheduler counts about groups, under the names of kube-scheduler 1.37.

An attempt counts once whatever the number of members. It lasts from the begin of its cycle until its placement is committed, by a
plan until that is over, or it has failed; its algorithm is the time of the cycle alone, the search for victims included.

Owner: the AttemptMeasures. Cost: 2 µs an attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from rayched.framework.durations import Durations

GROUP_BUCKETS: Final = tuple(0.001 * 2**i for i in range(15))
PREEMPTION_BUCKETS: Final = tuple(0.001 * 2**i for i in range(16))
GROUP_VICTIMS_BUCKETS: Final = tuple(float(2**i) for i in range(11))
WAITING: Final = "waiting_on_preemption"
SUCCESS: Final = "success"
NO_HELP: Final = "unschedulable"
ERROR: Final = "error"
FEASIBLE: Final = "feasible"
INFEASIBLE: Final = "infeasible"
PREEMPTOR: Final = "podgroup"
COMMITTED_AS_ONE: Final = "one"
COMMITTED_BY_PLAN: Final = "recorded"


def _nobody() -> Mapping[str, int]:
    return {}


class GroupMeasures:
    """See the module. Times in seconds of the core's clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: dict[str, tuple[float, str]] = {}
        """When the attempt of each group in flight began, and its profile."""
        self.pending: Callable[[], Mapping[str, int]] = _nobody
        """Members that wait for a node, by the queue that their group is in; `incomplete`: it is held back."""
        self.attempts: Counter[tuple[str, str]] = Counter()
        """By result and profile."""
        self.durations = Durations(GROUP_BUCKETS)
        self.algorithm = Durations(GROUP_BUCKETS)
        self.preemptions: Counter[str] = Counter()
        """Searches for victims, by result."""
        self.victims = Durations(GROUP_VICTIMS_BUCKETS)
        self.disruptions = Durations(GROUP_VICTIMS_BUCKETS)
        """Units that have to go for one group, by preemptor: pods, and groups that end as a whole."""
        self.searches = Durations(PREEMPTION_BUCKETS)
        """Times of the searches, by preemptor and result."""
        self.executions = Durations(PREEMPTION_BUCKETS)
        """From the decision until all victims were told to end, by preemptor and result."""
        self._clearing: dict[str, float] = {}
        """Since when room is made for a group, by its uid."""
        self.violations = 0
        """Victims against a budget."""
        self.placements: Counter[str] = Counter()
        """Domains that came into question, by profile."""
        self.trials: Counter[tuple[str, str]] = Counter()
        """Domains that were tried, by result and profile."""
        self.trial_times = Durations(GROUP_BUCKETS)
        self.commits: Counter[str] = Counter()
        """Groups that were bound, by the way in which they were."""

    def begins(self, uid: str, profile: str) -> None:
        self._began[uid] = self._clock(), profile

    def decided(self, uid: str, result: str) -> None:
        """The cycle is over, and says so."""
        began, profile = self._began[uid]
        self.algorithm.observe((result, profile), self._clock() - began)

    def ends(self, uid: str, result: str) -> None:
        """The attempt is over."""
        began, profile = self._began.pop(uid, (None, ""))
        if began is not None:
            self.attempts[result, profile] += 1
            self.durations.observe((result, profile), self._clock() - began)

    def forget(self) -> None:
        """The term is over."""
        self._began.clear()
        self._clearing.clear()

    def tried(self, profile: str, began: float, *, fits: bool) -> None:
        """A domain was tried."""
        labels = FEASIBLE if fits else INFEASIBLE, profile
        self.trials[labels] += 1
        self.trial_times.observe(labels, self.now() - began)

    def now(self) -> float:
        return self._clock()

    def searched(self, began: float, n_victims: int | None, n_units: int = 0, n_violating: int = 0) -> None:
        """A search for victims; None: it found none that help."""
        result = NO_HELP if n_victims is None else SUCCESS
        self.preemptions[result] += 1
        self.searches.observe((PREEMPTOR, result), self._clock() - began)
        if n_victims is not None:
            self.victims.observe((), n_victims)
            self.disruptions.observe((PREEMPTOR,), n_units)
            self.violations += n_violating

    def makes_room(self, uid: str) -> None:
        """Victims are about to be told to end for the group."""
        self._clearing[uid] = self._clock()

    def made_room(self, uid: str, result: str | None) -> None:
        """All were told to end that still had to be, or the store refused it; None: nobody has to end for it any more."""
        began = self._clearing.pop(uid, None)
        if began is not None and result is not None:
            self.executions.observe((PREEMPTOR, result), self._clock() - began)
