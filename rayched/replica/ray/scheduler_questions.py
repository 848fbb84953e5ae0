"""What the server asks the scheduler of this replica: it is passed on to the actors, and their answers are put into messages.

Owner: the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from rayched.actors.foreign_binding_calls import BINDINGS
from rayched.actors.scheduler_actor import QUESTIONS
from rayched.core.attempt_metrics import ATTEMPT_BUCKETS, SLI_BUCKETS
from rayched.core.explaining import answer_of
from rayched.replica.ray.actor_answers import awaited, unanswered, why
from rayched.replica.ray.actor_set import ActorSet
from rayched.replica.ray.foreign_bindings import binding_response, wanted_binding
from rayched.replica.ray.pool_status import pool_workers
from rayched.server.ports import NothingToExplain, NotLeading, NotRead, QuestionFailed
from rayched.v1.services_pb2 import (
    AllocatedColumn,
    BindRequest,
    BindResponse,
    DurationHistogram,
    ExplainRequest,
    ExplainResponse,
    GetAllocatedResourcesRequest,
    GetAllocatedResourcesResponse,
    GetPlanBasisResponse,
    GetSchedulerStatusResponse,
    ListQueueRequest,
    ListQueueResponse,
)

_ANSWER_SECONDS_MAX: Final = 10.0


class SchedulerQuestions:
    """A SchedulerPort of the server."""

    def __init__(
        self,
        actors: Callable[[], ActorSet | None],
        identity: str,
        configuration: str,
        own_pids: Callable[[], Mapping[str, int]],
    ) -> None:
        """`actors`: those that there are now. `configuration`: of the scheduler, as YAML. `own_pids`: by what each process is,
        without the actors."""
        self._actors = actors
        self._identity = identity
        self._configuration = configuration
        self._own_pids = own_pids

    async def status(self) -> GetSchedulerStatusResponse:
        actors, status = await self._asked(lambda scheduler: scheduler.status)
        return GetSchedulerStatusResponse(
            holder=self._identity,
            epoch=status.epoch,
            revision=status.revision,
            nodes=status.nodes,
            bound_pods=status.bound_pods,
            assumed_pods=status.assumed_pods,
            pending_pods=status.pending_pods,
            attempts=status.attempts,
            workers=len(actors.workers),
            worker_evaluations=status.worker_evaluations,
            worker_local_evaluations=status.worker_local_evaluations,
            handover_seconds=status.handover_seconds,
            pool=pool_workers(tuple(actors.workers), status.pool, actors.places),
            events=status.events,
            attempt_durations=DurationHistogram(bounds=ATTEMPT_BUCKETS, counts=status.attempt_durations),
            sli_durations=DurationHistogram(bounds=SLI_BUCKETS, counts=status.sli_durations),
            pids={**self._own_pids(), **actors.pids},
        )

    async def plan_basis(self) -> GetPlanBasisResponse:
        _, basis = await self._asked(lambda scheduler: scheduler.plan_basis.options(concurrency_group=QUESTIONS))
        return GetPlanBasisResponse(
            revision=basis.revision,
            seed=basis.draws.seed,
            decisions=basis.draws.decisions,
            search_start=basis.draws.search_start,
            rows=basis.rows,
            configuration=self._configuration,
        )

    async def allocated_resources(self, request: GetAllocatedResourcesRequest) -> GetAllocatedResourcesResponse:
        _, found = await self._answer_of(
            lambda scheduler: scheduler.allocated_resources.options(concurrency_group=QUESTIONS),
            request.position,
            tuple(request.resources),
        )
        if found is None:
            raise NotRead
        milli_cpu, memory_bytes, pods, *others = found.rows.amounts.tolist()
        return GetAllocatedResourcesResponse(
            revision=found.revision,
            position=found.rows.position,
            begins_anew=found.rows.begins_anew,
            more=found.rows.more,
            nodes=found.rows.names,
            milli_cpu=milli_cpu,
            memory_bytes=memory_bytes,
            pods=pods,
            others=[
                AllocatedColumn(resource=name, amounts=amounts) for name, amounts in zip(request.resources, others, strict=True)
            ],
        )

    async def explain(self, request: ExplainRequest) -> ExplainResponse:
        _, answer = await self._asked(lambda scheduler: scheduler.explain.options(concurrency_group=QUESTIONS), request)
        if answer.look is None:
            raise NothingToExplain(answer.problem)
        return await asyncio.to_thread(answer_of, answer.look, request)

    async def bind(self, request: BindRequest) -> BindResponse:
        group = self._asked(lambda scheduler: scheduler.bind.options(concurrency_group=BINDINGS), wanted_binding(request))
        return binding_response((await group)[1].answer)

    async def queue(self, request: ListQueueRequest) -> ListQueueResponse:
        actors, _ = await self._asked(lambda scheduler: scheduler.status)
        try:
            listing = awaited(actors.queue.listing.remote(request))
            answer: ListQueueResponse = await asyncio.wait_for(listing, _ANSWER_SECONDS_MAX)
        except Exception as error:
            unanswered("queue", error)
            raise NotLeading from error
        return answer

    async def _asked(self, method: Callable[[Any], Any], *arguments: Any) -> tuple[ActorSet, Any]:
        """The answer of the scheduler, where it leads; raises NotLeading, and QuestionFailed."""
        try:
            actors, answer = await self._answer_of(method, *arguments)
        except NotRead as problem:
            raise NotLeading from problem
        if not answer.leads:
            raise NotLeading
        return actors, answer

    async def _answer_of(self, method: Callable[[Any], Any], *arguments: Any) -> tuple[ActorSet, Any]:
        """Whether it leads or not; raises NotRead, and QuestionFailed."""
        actors = self._actors()
        if actors is None or not actors.can_be_asked:
            raise NotRead
        # Not before there are actors: while another thread imports Ray for the first time nobody else may.
        from ray.exceptions import RayTaskError

        try:
            return actors, await asyncio.wait_for(awaited(method(actors.scheduler).remote(*arguments)), _ANSWER_SECONDS_MAX)
        except Exception as error:
            unanswered("scheduler", error)
            if isinstance(error, RayTaskError):
                raise QuestionFailed(why(error)) from None
            raise NotRead from error
