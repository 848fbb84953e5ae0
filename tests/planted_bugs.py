"""Twelve bugs that tests plant into the production code, to see that simulation and chaos notice each of them.

Where the code keeps one of the rules that safety rests on, a constant stands beside it: `RULE_...: bool = True`. Nothing in the
programs sets one, and no flag, file or environment variable does; a test checks that. `plant` breaks the rules of one bug in
this process, for the duration of a with statement; a program of the tests that starts a real replica calls it for good.

Both the simulation and real replicas show each of them:

| bug | shows in the simulation as | and in its session with real replicas as |
|---|---|---|
| unguarded bindings | S4, S2 | S4 |
| only renewals are guarded | S4, S2 | S4 |
| unguarded release | S5, L2 | S5 |
| decides on an old cache | S4, S2 | S4 |
| answers before the commit | S3 | S3 |
| attempts are not recognised | S2, L1 | S2 |
| a watch resumes at the last revision | S6 | S6 |
| no list after a compaction | S6, S7 | S6 |
| durations by the wall clock | E1, L2 | L2: the clock that the election reads is stepped, not the machine's |
| assumptions end late | L1 | L1 |
| times taken from the record | E1, L2 | E1 |
| leads on after seeing another holder | E2 | E2 |

The simulation alone shows that a leader cares for nodes on a view that is older than its epoch (S4), that a guardian or follower
revokes another's lease than it has evidence against (E3), that one replica's word is enough for a silent leader (E3), and that a
leader acts under a lease that was revoked (E2).

The simulation searches its seeds (simulation/test_planted_bugs_are_caught.py); a session makes what the bug needs happen, so that
it shows every time (chaos/planted_sessions.py).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

BUGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "unguarded bindings": "rayched.core.write_sender:WriteSender.RULE_BINDINGS_ARE_GUARDED",
        "only renewals are guarded": "rayched.store.transactions:RULE_WRITES_ARE_GUARDED",
        "unguarded release": "leader.etcd_requests:RULE_RELEASES_ARE_GUARDED",
        "decides on an old cache": "rayched.core.term:Term.RULE_THE_CACHE_REACHES_THE_EPOCH",
        "answers before the commit": "rayched.server.admission.creation:RULE_THE_COMMIT_COMES_BEFORE_THE_ANSWER",
        "attempts are not recognised": "rayched.store.transactions:RULE_ATTEMPTS_ARE_RECOGNISED",
        "a watch resumes at the last revision": "rayched.store.list_watch:ListWatchCore.RULE_RESUMES_BEHIND_THE_LAST",
        "no list after a compaction": "rayched.store.list_watch:ListWatchCore.RULE_COMPACTED_HISTORY_IS_LISTED",
        "durations by the wall clock": "leader.clock:RULE_DURATIONS_IGNORE_CLOCK_STEPS",
        "assumptions end late": "rayched.core.scheduler_core:SchedulerCore.RULE_ASSUMPTIONS_END_FIRST",
        "times taken from the record": "leader.observation:Observation.RULE_TIMES_ARE_THOSE_OF_SEEING",
        "leads on after seeing another holder": "leader.leading_ends:LeadingEnds.RULE_ANOTHER_HOLDER_ENDS_LEADING",
    }
)
"""Where the rule of each bug stands: module:name or module:class.name."""

SIMULATED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cares for nodes on an old view": "rayched.controllers.node_care:NodeCare.RULE_THE_VIEW_REACHES_THE_EPOCH",
        "revokes another's lease": "leader.revocation:RULE_REVOKES_ONLY_WHAT_WAS_HELD",
        "revokes by silence alone of one replica": "leader.failure_detector:FailureDetector.RULE_SILENCE_NEEDS_VOTES",
        "acts under a revoked lease": "leader.election:Election.RULE_A_VANISHED_RECORD_ENDS_BELIEF",
    }
)
"""Further bugs, in the same form, that the simulation alone is to notice."""

ON_NODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "an older agent writes on": "rayched.server.services.incarnations:RULE_INCARNATION_GUARD",
        "nodes may do anything": "rayched.server.admission.node_rules:RULE_NODE_RULES",
        "a fence counts from the answer": "rayched.nodes.agent.fences:RULE_FENCE_FROM_SEND_TIME",
        "fences have no margin": "rayched.api.disconnection:RULE_FENCE_MARGIN",
        "fences are taken for granted": "rayched.api.disconnection:RULE_FENCE_IS_ARMED",
        "pods of lost nodes are removed by time": "rayched.controllers.pod_garbage:RULE_REAL_NODES_END_THEIR_PODS",
        "pressure ends when it is not seen": "rayched.nodes.agent.eviction.manager:RULE_TRANSITION_PERIOD",
        "eviction ends at the threshold": "rayched.nodes.agent.eviction.manager:RULE_MIN_RECLAIM",
    }
)
"""Bugs of nodes that run pods, in the same form; tests of nodes and of the leader's controllers are to notice them."""

WORKLOADS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "decides before it sees what it wrote": (
            "rayched.controllers.workloads.reconciler:WorkloadReconciler.RULE_THE_VIEW_REACHES_WHAT_WAS_WRITTEN"
        ),
        "counts a pod each time it looks": "rayched.controllers.workloads.jobs:RULE_A_UID_IS_COUNTED_ONCE",
        "pods go before they are counted": "rayched.api.termination:RULE_UNCOUNTED_PODS_STAY",
    }
)
"""Bugs of what makes pods, in the same form; random histories of the workload controllers are to notice them."""

CERTIFICATES: Final[Mapping[str, str]] = MappingProxyType(
    {"certificates are not judged in each call": "rayched.server.peers:RULE_CERTIFICATES_ARE_JUDGED_IN_EACH_CALL"}
)
"""Bugs of who is served, in the same form; tests of the server are to notice them."""

ACCESS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a role is not looked at": "rayched.access.authorizing:RULE_ACCESS_ROLES",
        "a namespace is not looked at": "rayched.access.authorizing:RULE_ACCESS_NAMESPACES",
        "no namespace is one's own": "rayched.access.authorizing:RULE_ACCESS_ALL_NAMESPACES",
        "the first of many is judged": "rayched.access.authorizing:RULE_ACCESS_EACH_OF_MANY",
        "each node is one's own": "rayched.access.authorizing:RULE_ACCESS_OWN_NODE",
        "subjects are prefixes": "rayched.access.authorizing:RULE_ACCESS_SUBJECTS_ARE_EXACT",
        "anybody asks for others": "rayched.server.call_guard:RULE_ACCESS_ONLY_REPLICAS_ASK_FOR_OTHERS",
        "gateways ask for anybody": "rayched.server.call_guard:RULE_ACCESS_GATEWAYS_ASK_FOR_USERS",
        "a request is read before it is judged": "rayched.server.call_guard:RULE_ACCESS_BEFORE_READING",
        "the request is not judged": "rayched.server.call_guard:RULE_ACCESS_REQUESTS",
        "streams outlive their right": "rayched.server.call_guard:RULE_ACCESS_STREAMS_END",
        "objects are not judged": "rayched.access.object_rules:RULE_ACCESS_OBJECTS",
        "templates are not judged": "rayched.access.object_rules:RULE_ACCESS_TEMPLATES",
        "old templates may grow": "rayched.access.object_rules:RULE_ACCESS_OLD_TEMPLATES",
        "answers tell everybody everything": "rayched.access.answers:RULE_ACCESS_ANSWERS",
        "pods alike are not judged": "rayched.server.admission.creation:RULE_ACCESS_ALIKE_PODS",
        "tokens do not expire": "rayched.access.tokens:RULE_TOKENS_EXPIRE",
        "of a token the id is enough": "rayched.access.tokens:RULE_TOKENS_ARE_COMPARED",
        "tokens outlive their maker's role": "rayched.server.call_guard:RULE_ACCESS_TOKENS_END_WITH_THEIR_MAKERS_ROLE",
        "revocations are not looked at": "rayched.access.revocations:RULE_REVOCATIONS_ARE_LOOKED_AT",
        "certificates outlive their tokens": "rayched.server.call_guard:RULE_ACCESS_CERTIFICATES_END_WITH_TOKENS",
        "a path is read without a role": "rayched.access.authorizing:RULE_ACCESS_PATHS",
        "the last administrator may go": "rayched.server.services.access_service:RULE_ACCESS_LAST_ADMIN",
    }
)
"""Bugs of access, in the same form; the tests of access are to notice them (access/test_planted_bugs_of_access.py)."""

GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a group binds what fits": "rayched.core.groups.membership:GroupState.RULE_A_GROUP_IS_WHOLE",
        "members are bound before the plan": "rayched.core.groups.recorded_plans:RecordedPlans.RULE_THE_PLAN_COMES_FIRST",
        "a plan forgets the group's revision": "rayched.core.groups.recorded_plans:RecordedPlans.RULE_PLANS_COMPARE_THE_GROUP",
        "a new leader forgets plans": "rayched.core.groups.recorded_plans:RecordedPlans.RULE_PLANS_ARE_TAKEN_OVER",
        "planned bindings are not guarded": (
            "rayched.core.groups.recorded_plans:RecordedPlans.RULE_PLANNED_BINDINGS_ARE_GUARDED"
        ),
        "the condition comes first": "rayched.core.groups.recorded_plans:RecordedPlans.RULE_THE_CONDITION_COMES_LAST",
        "failed members count": "rayched.core.groups.membership:GroupState.RULE_FAILED_MEMBERS_DO_NOT_COUNT",
        "a release ends half a group": "rayched.core.groups.incomplete_groups:IncompleteGroups.RULE_RELEASES_END_ALL",
    }
)
"""Bugs of pod groups, in the same form: the auditor is to notice them (core/test_planted_bugs_of_groups.py), in real replicas as
well (chaos/planted_groups.py)."""

FOREIGN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "others bind without room": "rayched.core.writes.foreign_bindings:ForeignBindings.RULE_ROOM_IS_LOOKED_AT",
    }
)
"""Bugs of bindings by other schedulers, in the same form; tests of the core are to notice them."""

GROUP_ROOMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a group spares nobody": "rayched.core.groups.group_preemption:GroupPreemption.RULE_VICTIMS_ARE_NEEDED",
        "a unit ends in part": "rayched.core.groups.group_preemption:GroupPreemption.RULE_UNITS_STAY_WHOLE",
        "victims end for nobody": "rayched.core.groups.deciding:GroupDecider.RULE_ROOM_IS_WANTED",
    }
)
"""Bugs of room that is made for groups, in the same form (core/test_group_preemption.py, core/test_victims_of_groups.py)."""

OF_WORLDS: Final = (*BUGS, *SIMULATED, *GROUPS, "a unit ends in part", "a group spares nobody")
"""Those that simulated worlds are to notice."""

SWITCHES: Final[Mapping[str, str]] = MappingProxyType({"beliefs never end": "rayched.store.fencing:Fence.RULE_BELIEF_ENDS"})
"""Rules that may be broken without harm, in the same form: the guard refuses what they would have spared."""


@contextlib.contextmanager
def planted(bug: str | None) -> Iterator[None]:
    """While inside, the rule of this bug is broken in this process; None: all is as it should be."""
    if bug is None:
        yield
        return
    owner, name = rule_of(bug)
    setattr(owner, name, False)
    try:
        yield
    finally:
        setattr(owner, name, True)


def plant(bug: str) -> None:
    """Break the rule of this bug for the rest of this process."""
    owner, name = rule_of(bug)
    setattr(owner, name, False)


def rule_of(bug: str) -> tuple[Any, str]:
    """Who has the rule, and its name."""
    module, _, path = {
        **BUGS,
        **SIMULATED,
        **ON_NODES,
        **WORKLOADS,
        **ACCESS,
        **CERTIFICATES,
        **GROUPS,
        **GROUP_ROOMS,
        **FOREIGN,
        **SWITCHES,
    }[bug].partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    return owner, name
