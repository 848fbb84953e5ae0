"""An actor of Ray, as its driver sees it: methods whose calls are answered later. Ray tells mypy nothing of either."""

from __future__ import annotations

import contextlib
from typing import Generic, Protocol, TypeVar

from rayched.raynodes.agent_plan import AgentPlan

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ActorCall(Generic[T_co]):
    """A call under way or over, which is Ray's ObjectRef; `answer_of` has what came of it. Nobody makes one."""


class _Plan(Protocol):
    def remote(self) -> ActorCall[AgentPlan]: ...


class _Told(Protocol):
    def remote(self, after: int, /) -> ActorCall[tuple[int, list[str]]]: ...


class _End(Protocol):
    def remote(self) -> ActorCall[bool]: ...


class _CertificateRequest(Protocol):
    def remote(self) -> ActorCall[object]: ...


class _TakeCertificate(Protocol):
    def remote(self, certificate: bytes, bundle: bytes, identity: str, /) -> ActorCall[object]: ...


class ReservationHandle(Protocol):
    """A NodeReservation (node_actor.py), wherever it runs. What it says of certificates is looked at before it is used."""

    @property
    def plan(self) -> _Plan: ...
    @property
    def told(self) -> _Told: ...
    @property
    def end(self) -> _End: ...
    @property
    def certificate_request(self) -> _CertificateRequest: ...
    @property
    def take_certificate(self) -> _TakeCertificate: ...


def answer_of(call: ActorCall[T], seconds: float) -> T:
    """Raises RayError: what the call failed of, or that there is no answer in time."""
    import ray

    answer: T = ray.get(call, timeout=seconds)
    return answer


def finished(calls: list[ActorCall[T]]) -> list[ActorCall[T]]:
    """Which of them are over, without a wait."""
    import ray

    done, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
    return list(done)


def kill(actor: ReservationHandle) -> None:
    """Whether it lives or not."""
    import ray

    # Who is dead already needs no killing.
    with contextlib.suppress(ray.exceptions.RayError):
        ray.kill(actor)
