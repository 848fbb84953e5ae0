"""Follows the nodes of a Ray cluster: an actor on each, which holds what the rayched node there offers (node_actor.py).

* A node that joins gets an actor, as soon as a CPU of it is free. One that is busy is looked at again.
* An actor that dies is made again while its node lives, with what is free then.
* A node that leaves takes its actor along. Its Node is deleted once all pods on it have ended, as its name never comes back.
* The actors are detached: when the driver dies they go on, and the next driver takes them over.
* `run` ends all of them in order when it is told to stop.
* Where the replicas want certificates, each agent gets that of its own node (agent_certificates.py).

Owner: one thread. Every wait for Ray and for the replicas has an end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from rayched.api.quantity import milli_value, value
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.raynodes.actor_calls import ActorCall, ReservationHandle, answer_of, finished, kill
from rayched.raynodes.agent_certificates import AgentCertificates, NodeSigner
from rayched.raynodes.agent_plan import AgentPlan
from rayched.raynodes.departed import DepartedNodes
from rayched.raynodes.guard import END_MARGIN_SECONDS
from rayched.raynodes.node_actor import NodeReservation
from rayched.raynodes.offers import CPU, RayNode, RayNodeOffer, living_nodes, node_name, offer_of
from rayched.v1.core_pb2 import Node

NAMESPACE: Final = "rayched"
"""Of the actors' names in Ray, `rayched-node-NAME`."""
_TURN_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 5.0
"""Between two looks at a node that has nothing to offer, or whose pods have not ended."""
_START_SECONDS_MAX: Final = 60.0
"""For an actor to say that it runs; Ray gives no answer where somebody else took the CPU meanwhile."""
_PAUSES_SECONDS: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
_LIFE_SECONDS_MIN: Final = 120.0
_SILENCE_SECONDS_MAX: Final = 60.0
_THREADS: Final = 4
"""Of an actor: one question for news, one end, and what a second driver may ask."""


class RayGone(Exception):
    """Ray does not answer any more; one line."""


@dataclass(frozen=True, slots=True)
class RayNodesSettings:
    """`arguments` for every agent, behind what its node offers. `most`: to take of a node, by rayched's names."""

    servers: str
    root_dir: str
    arguments: tuple[str, ...]
    most: Mapping[str, int]
    shutdown_seconds: float
    signer: NodeSigner | None = None
    """Of the agents' certificates; None: the replicas want none."""


HeldCall = ActorCall[AgentPlan | tuple[int, list[str]]]
"""What it was started with, or what it has to tell."""


@dataclass(slots=True)
class _HeldNode:
    """A node of Ray with an actor. `call`: the unfinished one; it fails when the actor dies."""

    node: RayNode
    handle: ReservationHandle
    call: HeldCall | None
    """None: it was not taken, and is made again at `again_at`."""
    since: float
    plan: AgentPlan | None = None
    seen: int = 0
    again_at: float = 0.0


@dataclass(slots=True)
class _NodeMemory:
    """What is kept of a node of Ray while it lives."""

    due: float = 0.0
    deaths: int = 0
    told: set[str] = field(default_factory=set)


class RayNodes:
    """Make it when this process is a driver of the cluster, and `run` it once."""

    def __init__(self, settings: RayNodesSettings, client: Client, log: logging.Logger) -> None:
        self._settings = settings
        self._client = client
        self._log = log
        self._held: dict[str, _HeldNode] = {}
        """By Ray's id of the node."""
        self._memory: dict[str, _NodeMemory] = {}
        self._departed = DepartedNodes(client, log)
        self._certificates = None if settings.signer is None else AgentCertificates(settings.signer, log, finished, _result)
        self._dead: set[str] = set()
        """Ray's ids of all that were ever in it."""
        self._answered_at = time.monotonic()

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop, and then until all has ended. Raises RayGone."""
        while not stopping.is_set():
            self._turn(time.monotonic())
        self._end_all()

    def _turn(self, now: float) -> None:
        import ray

        records, free = self._look(now)
        alive = {record["NodeID"] for record in records if record["Alive"]}
        if alive:
            for ray_id in [one for one in self._memory if one not in alive]:
                self._left(ray_id)
            for ray_id in {record["NodeID"] for record in records} - alive - self._dead:
                # Those of the time before this driver too: whose name comes from Ray's id is nobody else's.
                self._dead.add(ray_id)
                self._departed.add(node_name(ray_id))
            for node in living_nodes(records, free):
                memory = self._memory.setdefault(node.id, _NodeMemory())
                if node.id not in self._held and memory.due <= now:
                    # Unless it comes to more, it is looked at again.
                    memory.due = now + _AGAIN_SECONDS
                    try:
                        self._begin(node, memory, now)
                    except (ApiError, ValueError, ray.exceptions.RayError) as error:
                        # ValueError: another driver has just made one of that name.
                        self._say_once(memory, node.name, f"no actor yet: {_line(error)}", logging.WARNING)
        for held in [one for one in self._held.values() if one.plan is None and now - one.since > _START_SECONDS_MAX]:
            self._lost(held, f"Ray has not started its actor within {_START_SECONDS_MAX:g} s", now)
        if self._certificates is not None:
            running = {held.node.name: held.handle for held in self._held.values() if held.plan is not None}
            self._certificates.turn(now, running)
        self._departed.turn(now)
        self._wait()

    def _look(self, now: float) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
        """Records of all nodes, and what is free by node id; no records: Ray did not answer this time."""
        import ray

        found: list[dict[str, Any]] = []
        free: dict[str, dict[str, float]] = {}
        try:
            found, free = ray.nodes(), ray._private.state.available_resources_per_node()
        except (ray.exceptions.RayError, RuntimeError, ConnectionError, TimeoutError) as error:
            why = _line(error)
        else:
            why = "it knows of no node"
        if found:
            self._answered_at = now
        elif now - self._answered_at > _SILENCE_SECONDS_MAX:
            raise RayGone(f"Ray has not answered for {_SILENCE_SECONDS_MAX:g} s: {why}")
        return found, free

    def _wait(self) -> None:
        """For answers and deaths, a turn at most."""
        import ray

        for held in self._held.values():
            if held.call is None and held.again_at <= time.monotonic():
                held.call = self._question(held)
        calls = {held.call: held for held in self._held.values() if held.call is not None}
        if not calls:
            time.sleep(_TURN_SECONDS)
            return
        done, _ = ray.wait(list(calls), timeout=_TURN_SECONDS)
        if done:
            done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
        for call in done:
            self._take(calls[call])

    # ---------------------------------------------------------------------------------------------------------- one node

    def _begin(self, node: RayNode, memory: _NodeMemory, now: float) -> None:
        """An actor for it, or the one that is there; or says what it lacks. Raises ApiError, and Ray's errors."""
        handle = _actor_of(node.name)
        if handle is None:
            offer = offer_of(node, self._settings.most, self._capacity_before(node.name))
            if offer.lacks:
                self._say_once(memory, node.name, f"nothing is offered: {offer.lacks}", logging.INFO)
                return
            for line in offer.left_out:
                self._say_once(memory, node.name, f"left out: {line}", logging.WARNING)
            self._log.info("%s on %s takes from Ray: %s", node.name, node.address, offer.text())
            handle = self._new_actor(node, offer)
        self._held[node.id] = _HeldNode(node, handle, handle.plan.remote(), now)

    def _capacity_before(self, name: str) -> dict[str, int] | None:
        """Of the Node of that name, as `offer_of` wants it; None: there is none. Raises ApiError."""
        try:
            node = self._client.get("node", name)
        except ApiError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        assert isinstance(node, Node)
        capacity = node.status.capacity
        return {key: milli_value(one.string) // 1000 if key == CPU else value(one.string) for key, one in capacity.items()}

    def _new_actor(self, node: RayNode, offer: RayNodeOffer) -> ReservationHandle:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        chosen = self._settings
        arguments = ("--server", chosen.servers, *offer.arguments(), *chosen.arguments)
        is_certified = chosen.signer is not None
        plan = AgentPlan(node.name, chosen.servers, chosen.root_dir, arguments, chosen.shutdown_seconds, is_certified)
        remote: Any = ray.remote(NodeReservation)
        options = remote.options(
            name=_actor_name(node.name),
            namespace=NAMESPACE,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=_THREADS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node.id, soft=False),
            **offer.reservation(),
        )
        handle: ReservationHandle = options.remote(plan)
        return handle

    def _take(self, held: _HeldNode) -> None:
        import ray

        assert held.call is not None
        now = time.monotonic()
        try:
            answer = answer_of(held.call, _TURN_SECONDS)
        except ray.exceptions.ActorUnavailableError:
            # The way to it may be cut for a moment. Where it is more, Ray says so in time.
            held.call, held.again_at = None, now + _TURN_SECONDS
            return
        except ray.exceptions.RayError as error:
            self._lost(held, f"its actor has died ({_line(error)}); its guard ends the pods", now)
            return
        if isinstance(answer, AgentPlan):
            if self._is_strange(held, answer, now):
                return
            held.plan = answer
        else:
            held.seen, lines = answer
            for line in lines:
                self._log.info("%s: %s", held.node.name, line)
        held.call = self._question(held)

    def _question(self, held: _HeldNode) -> HeldCall:
        return held.handle.plan.remote() if held.plan is None else held.handle.told.remote(held.seen)

    def _is_strange(self, held: _HeldNode, plan: AgentPlan, now: float) -> bool:
        """An actor that was there and is for another rayched, to which it is left."""
        own, memory, name = self._settings, self._memory[held.node.id], held.node.name
        if set(plan.servers.split(",")).isdisjoint(own.servers.split(",")):
            del self._held[held.node.id]
            memory.due = now + _SILENCE_SECONDS_MAX
            self._say_once(memory, name, f"an agent of other replicas, {plan.servers}, has the node", logging.WARNING)
            return True
        same = (plan.servers, plan.root_dir, plan.is_certified) == (own.servers, own.root_dir, own.signer is not None)
        if not same or plan.arguments[-len(own.arguments) :] != own.arguments:
            self._log.warning("%s: its actor goes on with the options of an earlier driver until it ends", name)
        return False

    def _lost(self, held: _HeldNode, why: str, now: float) -> None:
        """Another actor follows while the node lives."""
        del self._held[held.node.id]
        memory = self._memory[held.node.id]
        memory.deaths = 1 if now - held.since > _LIFE_SECONDS_MIN else memory.deaths + 1
        memory.due = now + _PAUSES_SECONDS[min(memory.deaths, len(_PAUSES_SECONDS)) - 1]
        self._log.warning("%s: %s; it is made again in %g s if Ray still has the node", held.node.name, why, memory.due - now)
        kill(held.handle)

    def _left(self, ray_id: str) -> None:
        del self._memory[ray_id]
        self._log.info("%s: Ray has lost the node", node_name(ray_id))
        if (held := self._held.pop(ray_id, None)) is not None:
            kill(held.handle)

    def _say_once(self, memory: _NodeMemory, name: str, text: str, level: int) -> None:
        if text not in memory.told:
            memory.told.add(text)
            self._log.log(level, "%s: %s", name, text)

    # ---------------------------------------------------------------------------------------------------------------- end

    def _end_all(self) -> None:
        import ray

        calls = {held.handle.end.remote(): held for held in self._held.values() if held.plan is not None}
        if calls:
            self._log.info("pods on %d nodes have %g s to end", len(calls), self._settings.shutdown_seconds)
        until = time.monotonic() + self._settings.shutdown_seconds + END_MARGIN_SECONDS + _AGAIN_SECONDS
        while calls and time.monotonic() < until:
            done, _ = ray.wait(list(calls), timeout=_TURN_SECONDS)
            for call in done:
                name = calls.pop(call).node.name
                try:
                    in_time = answer_of(call, _TURN_SECONDS)
                except ray.exceptions.RayError as error:
                    self._log.warning("%s: its actor has died (%s); its guard ends the pods", name, _line(error))
                else:
                    self._log.info("%s: %s", name, "has ended" if in_time else "its guard has not ended in time")
        for held in calls.values():
            self._log.warning("%s: did not answer in time; its guard ends the pods", held.node.name)
        for held in self._held.values():
            kill(held.handle)


def _actor_name(name: str) -> str:
    return f"rayched-node-{name}"


def _actor_of(name: str) -> ReservationHandle | None:
    import ray

    try:
        found: ReservationHandle = ray.get_actor(_actor_name(name), namespace=NAMESPACE)
    except ValueError:
        return None
    return found


def _result(call: ActorCall[object]) -> object:
    return answer_of(call, _TURN_SECONDS)


def _line(error: Exception) -> str:
    """The first line that says something; Ray's errors have many."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in reversed(lines) if "Error:" in line), next(filter(None, lines), type(error).__name__))
