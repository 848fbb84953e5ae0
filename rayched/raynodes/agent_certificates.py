"""Gives the agents on the nodes of a Ray cluster certificates: to each the identity of its own node, and no other.

An actor makes the key of its agent on its own host and asks for a certificate of it; this driver, which has the authority's key,
signs for the name that it knows the actor's node by, whatever the request says. It asks again until a third of the time is left,
and gives a new one then. While nobody drives, agents go on with what they have.

What an actor answers is the word of whoever has Ray's token: it is looked at before it is used. One that does not take what was
signed for it is given the next one after a pause that doubles, as each one that is signed stays in the authority's list.

Owner: the thread of RayNodes. Nothing waits here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rayched.access.identity import Identity, IdentityKind
from rayched.pki.directory import PkiDirectory
from rayched.pki.errors import PkiError
from rayched.pki.issuing import leaf_request
from rayched.raynodes.actor_calls import ActorCall, ReservationHandle

LOOK_SECONDS: Final = 3600.0
"""Between two looks at a certificate that has time."""
AGAIN_SECONDS: Final = 10.0
"""After a first failure."""
_FAULT_CHARACTERS_MAX: Final = 300


class NodeSigner:
    """Signs for nodes alone."""

    def __init__(self, directory: PkiDirectory) -> None:
        self._directory = directory

    @property
    def trust_domain(self) -> str:
        return self._directory.trust_domain

    def sign(self, node: str, signing_request: bytes) -> tuple[bytes, bytes]:
        """The certificate and the authorities to trust, in PEM. Raises PkiError."""
        wanted = leaf_request(self.trust_domain, IdentityKind.NODE, node)
        return self._directory.certify(wanted, signing_request), self._directory.bundle


def node_identity(trust_domain: str, node: str) -> Identity:
    """Of the agent of one node."""
    return Identity(trust_domain, IdentityKind.NODE, node)


@dataclass(slots=True)
class _PendingCall:
    """An unfinished call of an actor."""

    call: ActorCall[object]
    is_answer: bool
    """Whether the actor is given a certificate, or is asked for its request."""


class AgentCertificates:
    """`turn` again and again. Times are of any monotonic clock."""

    def __init__(
        self,
        signer: NodeSigner,
        log: logging.Logger,
        finished: Callable[[list[ActorCall[object]]], list[ActorCall[object]]],
        result: Callable[[ActorCall[object]], object],
    ) -> None:
        """`finished`: which of some calls are, without a wait; `result` of one that is, or raises what it failed of."""
        self._signer = signer
        self._log = log
        self._finished = finished
        self._result = result
        self._asked: dict[str, _PendingCall] = {}
        self._due: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._signed: dict[str, int] = {}
        """In a row, without one that was taken."""

    def turn(self, now: float, actors: Mapping[str, ReservationHandle]) -> None:
        """`actors`: those that run, by the names of their nodes."""
        for name in [name for name in (*self._asked, *self._due) if name not in actors]:
            self._asked.pop(name, None)
            self._due.pop(name, None)
            self._told.pop(name, None)
            self._signed.pop(name, None)
        for name, actor in actors.items():
            if name not in self._asked and self._due.get(name, now) <= now:
                self._asked[name] = _PendingCall(actor.certificate_request.remote(), is_answer=False)
        if not self._asked:
            return
        done = {id(call) for call in self._finished([one.call for one in self._asked.values()])}
        for name, asked in list(self._asked.items()):
            if id(asked.call) in done:
                del self._asked[name]
                self._take(name, asked, actors[name], now)

    def _take(self, name: str, asked: _PendingCall, actor: ReservationHandle, now: float) -> None:
        import ray

        self._due[name] = now + LOOK_SECONDS
        try:
            answer = self._result(asked.call)
            if asked.is_answer:
                fault = answer if isinstance(answer, str) else _unusable(answer)
            elif answer is None:
                return
            elif isinstance(answer, bytes):
                certificate, bundle = self._signer.sign(name, answer)
                self._signed[name] = self._signed.get(name, 0) + 1
                text = str(node_identity(self._signer.trust_domain, name))
                self._asked[name] = _PendingCall(actor.take_certificate.remote(certificate, bundle, text), is_answer=True)
                return
            else:
                fault = _unusable(answer)
        except PkiError as error:
            fault = str(error)
        except ray.exceptions.RayError:
            # Who has died is made again, and asks anew.
            self._due[name] = now + self._pause(name)
            return
        if fault:
            fault = fault[:_FAULT_CHARACTERS_MAX]
            self._due[name] = now + self._pause(name)
            if self._told.get(name) != fault:
                self._told[name] = fault
                self._log.warning("%s: its agent has no certificate yet: %s", name, fault)
            return
        self._told.pop(name, None)
        self._signed.pop(name, None)
        self._log.info("%s: its agent has a new certificate", name)

    def _pause(self, name: str) -> float:
        """Seconds until it is asked again."""
        doubled = max(0, self._signed.get(name, 0) - 1)
        return min(LOOK_SECONDS, AGAIN_SECONDS * 2.0 ** min(doubled, 16))


def _unusable(answer: object) -> str:
    return f"its actor answered with {type(answer).__name__}, want bytes of a request and then a text"
