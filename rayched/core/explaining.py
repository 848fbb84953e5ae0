"""A pod explained over the live snapshot: found in the cache, judged by `whatif.explain`, put into an ExplainResponse.

The deciding thread looks (`look_at`); what it found is put into words by whoever asked (`answer_of`), as that takes longer. A
look at a group takes what an attempt for it takes, and rests between its pieces (`groups/looking`).

A pod that has a node is taken off it for the time of the question, which is one step of the loop, and put back just as it was.
With it comes the pod's last decision as it was, where this leader remembers it.

Cost: for the deciding thread every plugin once over all nodes, of a pod some milliseconds at 5,000 nodes; for whoever asked about
40 µs a node.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from rayched.api.served_schedulers import not_served
from rayched.api.stages import Stage
from rayched.core.cache.cache import Cache
from rayched.core.cache.records import PodRecord
from rayched.core.exchange.messages import GROUP_MARK
from rayched.core.groups.looking import GroupChanges
from rayched.framework.plugin_error import PluginError
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.work_budget import AttemptOverBudget
from rayched.v1.services_pb2 import ExplainRequest, ExplainResponse, GroupExplanation, PastDecision
from rayched.whatif.explain import NodeLook, PodExplanation, in_words, look

GROUP_PREFIX: Final = GROUP_MARK.removeprefix("/")
"""Of the name in a request that asks about a pod group."""
EXPLAIN_SECONDS: Final = 1.0
"""Of the scheduler's time for one explanation."""

GroupsLookedAt = Callable[[str], Generator[None, None, GroupExplanation | None]]
"""What would become of the group of this namespace/name; None: there is none. Raises GroupChanges."""


class CannotExplain(Exception):
    """There is nothing to explain, or it fails; the text says why."""


@dataclass(frozen=True, slots=True)
class PodLook:
    """What was found about one pod: nothing in it changes, and it can be sent to another process."""

    nodes: NodeLook | None
    """None: it is a group."""
    about: ExplainResponse
    """All of the answer but what is said of nodes."""


def look_at_pod(cache: Cache, scheduler: Scheduler, snapshot: Snapshot, request: ExplainRequest) -> PodLook:
    """Raises CannotExplain."""
    name = f"{request.namespace or 'default'}/{request.name}"
    record = cache.find(request.namespace or "default", request.name)
    if record is None:
        raise CannotExplain(f"Pod {name} not found")
    if record.stage is Stage.OVER:
        raise CannotExplain(f"Pod {name} is over or being deleted: nothing is decided about it any more")
    if not scheduler.knows(record.template.scheduler_name):
        served = (profile for profile, _ in scheduler.profiles.by_profile())
        raise CannotExplain(f"Pod {name} {not_served(record.template.scheduler_name, served)}")
    unknown = [node for node in request.nodes if snapshot.row_of(node) is None]
    if unknown:
        raise CannotExplain(f"Node {unknown[0]} not found")
    try:
        with snapshot.work.of(EXPLAIN_SECONDS):
            found = _looked_at(record, scheduler, snapshot)
    except (PluginError, AttemptOverBudget) as problem:
        raise CannotExplain(f"Pod {name}: {problem}") from None
    response, draws = ExplainResponse(), scheduler.draws()
    response.revision, response.uid, response.node = cache.revision, record.uid, record.node_name
    response.nominated_node = scheduler.nominations.node_of(record.uid)
    response.seed, response.decisions = draws.seed, draws.decisions
    past = _past(record.uid, scheduler)
    if past is not None:
        response.decision.CopyFrom(past)
    return PodLook(found, response)


def look_at(
    groups: GroupsLookedAt,
    cache: Cache,
    scheduler: Scheduler,
    snapshot: Snapshot,
    request: ExplainRequest,
) -> Generator[None, None, PodLook]:
    """What is asked about a pod, in one piece, or about a group. Raises CannotExplain."""
    if request.name.startswith(GROUP_PREFIX):
        return (yield from look_at_group(groups, cache, request))
    return look_at_pod(cache, scheduler, snapshot, request)


def look_at_group(groups: GroupsLookedAt, cache: Cache, request: ExplainRequest) -> Generator[None, None, PodLook]:
    """In pieces, between which the thread works for others. Raises CannotExplain."""
    name = f"{request.namespace or 'default'}/{request.name.removeprefix(GROUP_PREFIX)}"
    try:
        found = yield from groups(name)
    except GroupChanges as problem:
        raise CannotExplain(str(problem)) from None
    if found is None:
        raise CannotExplain(f"PodGroup {name} not found")
    return PodLook(None, ExplainResponse(revision=cache.revision, group=found))


def answer_of(look: PodLook, request: ExplainRequest) -> ExplainResponse:
    """In words, for a request that was looked at; on any thread and in any process."""
    response = ExplainResponse() if look.nodes is None else _response(in_words(look.nodes), request)
    response.MergeFrom(look.about)
    return response


def _past(uid: str, scheduler: Scheduler) -> PastDecision | None:
    """The pod's last decision, as it was."""
    decision = scheduler.decisions.of(uid)
    if decision is None:
        return None
    past = PastDecision(
        revision=decision.revision,
        seed=scheduler.draws().seed,
        number=decision.number,
        node=decision.node_name,
        ties=decision.ties,
        nodes=decision.n_nodes,
        message=decision.message,
        nominated_node=decision.nominated,
        victims=len(decision.victims),
        seconds=max(0.0, decision.ended - decision.began),
    )
    for node_name, total in decision.best:
        past.best.add(node=node_name, total=None if len(decision.best) == 1 else total)
    if decision.rejections is not None:
        past.rejections_revision = decision.revision
        past.rejections.update(decision.rejections)
    elif (counted := scheduler.decisions.rejections(decision.template)) is not None and counted.number >= decision.number:
        past.rejections_revision = counted.revision
        past.rejections.update(counted.by_plugin)
    return past


def _looked_at(record: PodRecord, scheduler: Scheduler, snapshot: Snapshot) -> NodeLook:
    template = record.template
    nominated = scheduler.nominations.beside(record.uid, template.priority)
    engine, weights = scheduler.engine(template.scheduler_name), scheduler.weights(template.scheduler_name)
    with snapshot.without_pod(record.uid):
        return look(engine, snapshot, weights, template, nominated)


def _response(found: PodExplanation, request: ExplainRequest) -> ExplainResponse:
    response = ExplainResponse(
        rejected=found.rejected,
        nodes=len(found.nodes),
        feasible=sum(verdict.feasible for verdict in found.nodes),
        best=found.best,
    )
    wanted = set(request.nodes)
    shown = [verdict for verdict in found.nodes if not wanted or verdict.node_name in wanted]
    for verdict in shown[: request.limit or None]:
        told = response.verdicts.add(node=verdict.node_name, total=verdict.total)
        for rejection in verdict.rejections:
            told.rejections.add(plugin=rejection.plugin, reasons=rejection.reasons, resolvable=rejection.resolvable)
        for score in verdict.scores:
            told.scores.add(
                plugin=score.plugin,
                weight=score.weight,
                raw=score.raw,
                normalized=score.normalized,
                weighted=score.weighted,
            )
    return response
