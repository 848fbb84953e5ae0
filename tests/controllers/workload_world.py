"""A cluster over the model of etcd with workload controllers that lead in turn, die in the middle of a turn, and lose answers.

Their transactions are the real ones: built, judged by the model, and read. Pods get nodes and end as the test says. Time moves by
`wait` alone; both clocks are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from leader.etcd_shim import rpc
from rayched.api.defaulting import default
from rayched.api.job_labels import COMPLETION_INDEX
from rayched.api.kinds import JOB, POD, REPLICA_SET, AnyObject, Kind, of_message, unwrap, wrap
from rayched.api.occurrences import EventOccurrence
from rayched.api.termination import Ending, ask_to_end, end_object
from rayched.api.validation import validate
from rayched.api.well_known_taints import DefaultTolerations
from rayched.controllers.workloads.reconciler import WorkloadReconciler
from rayched.controllers.workloads.workload_plan import WorkloadPlan, slow_start
from rayched.store.codec import decode_entry, encode
from rayched.store.entries import Change, Deleted, Entry, entry_of
from rayched.store.errors import RequestTooLarge
from rayched.store.keys import Keys, prefix_end
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.store.transactions import (
    Committed,
    Guard,
    Outcome,
    OutcomeUnknown,
    TransactionRefused,
    Write,
    build,
    read,
    split,
)
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job, Object, ReplicaSet
from tests.simulation.etcd import ModelEtcd

KEYS = Keys("/world")
START = 1_700_000_000.0


class LeaderDied(Exception):
    """In the middle of a turn."""


class WorkloadWorld:
    """`lose` is asked before each transaction of a leader: None: it goes well, "answer": it happens and nobody learns of it,
    "late": it happens after the next one, "death": the leader dies instead of sending it. Writes that `refuse` names are
    refused by etcd as they stand."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.etcd = ModelEtcd()
        self.now = START
        self.lose: Callable[[], str | None] = lambda: None
        self.refuse: Callable[[Write], bool] = lambda write: False
        self.on_write: Callable[[Sequence[Write], Sequence[Outcome]], None] = lambda writes, outcomes: None
        self.news: list[EventOccurrence] = []
        """What leaders have told, in its order."""
        self._late: list[tuple[Guard, Sequence[Write]]] = []
        self._terms = 0
        self.new_leader()

    # ---- leaders

    def new_leader(self) -> None:
        """Whatever was on its way from the one before may still arrive."""
        self._terms += 1
        self.epoch = self.etcd.put(rpc.PutRequest(key=KEYS.epoch, value=b"%d" % self._terms)).header.revision
        tolerations = DefaultTolerations()
        self.leader = WorkloadReconciler(KEYS, f"term-{self._terms}", Random(self.random.random()), tolerations)
        entries = tuple(entry_of(pair) for pair in self.etcd.under(KEYS.cluster_prefix))
        self.leader.deliver(ListedAll(entries, self.etcd.revision))

    def see(self, revisions: int | None = None) -> None:
        """The leader's watch delivers what has happened; or of that only so many revisions more."""
        prefix = KEYS.cluster_prefix
        events = list(self.etcd.events_from(self.leader.view.revision + 1, prefix, prefix_end(prefix)))
        shown = sorted({event.kv.mod_revision for event in events})[:revisions]
        if not shown:
            return
        changes: list[Change] = [
            Deleted(event.kv.key, event.kv.mod_revision) if event.type == 1 else entry_of(event.kv)
            for event in events
            if event.kv.mod_revision <= shown[-1]
        ]
        # As the real one: of what lies outside the prefix it shows nothing, so its revision is that of the last change.
        self.leader.deliver(Changed(tuple(changes), shown[-1]))

    def turn(self) -> list[WorkloadPlan]:
        """What the leader decides on what it has seen, and sends; raises LeaderDied."""
        plans = self.leader.decide(self.epoch, self.now, self.now)
        done: dict[int, list[tuple[Write, Outcome]]] = {id(plan): [] for plan in plans}

        def send(asked: Iterable[tuple[WorkloadPlan, Sequence[Write]]]) -> None:
            asked = list(asked)
            outcomes = iter(self._commit([write for _, some in asked for write in some]))
            for plan, some in asked:
                results = list(zip(some, outcomes, strict=False))
                done[id(plan)] += results
                plan.stopped |= not all(isinstance(outcome, Committed) for _, outcome in results)

        send((plan, plan.pods) for plan in plans)
        for plan in plans:
            plan.stopped = False
        for found in slow_start(plans):
            send(found)
        send((plan, plan.last) for plan in plans)
        for plan in plans:
            self.leader.settle(plan, done[id(plan)], self.now)
        self.news += self.leader.take_news()
        return plans

    def _commit(self, writes: Sequence[Write]) -> list[Outcome]:
        guard, outcomes = Guard(KEYS.epoch, self.epoch), list[Outcome]()
        refused = [self.refuse(write) for write in writes]
        if any(refused):
            done = iter(self._commit([write for write, is_refused in zip(writes, refused, strict=True) if not is_refused]))
            return [TransactionRefused(RequestTooLarge("refused")) if is_refused else next(done) for is_refused in refused]
        for batch in split(writes):
            loss = self.lose()
            if loss == "death":
                raise LeaderDied
            late, self._late = self._late, []
            if loss == "late":
                self._late = [(guard, batch)]
            else:
                found = self._send(guard, batch)
            for missed in late:
                self._send(*missed)
            outcomes += found if loss is None else [OutcomeUnknown("lost")] * len(batch)
        return outcomes

    def _send(self, guard: Guard, batch: Sequence[Write]) -> list[Outcome]:
        # Heartbeats and others' keys move etcd's revision all the time.
        self.etcd.put(rpc.PutRequest(key=b"/elsewhere", value=b""))
        outcomes = read(self.etcd.txn(rpc.TxnRequest.FromString(build(guard, batch))), batch)
        self.on_write(batch, outcomes)
        return outcomes

    def settle(self, turns: int = 100) -> None:
        """Turns until nothing is left to do at this time."""
        for _ in range(turns):
            self.see()
            if not self.turn():
                return
            self.now += 0.001
        raise AssertionError(f"not settled after {turns} turns")

    def wait(self, seconds: float) -> None:
        """In steps of a second, each of which settles."""
        for _ in range(int(seconds)):
            self.now += 1
            self.settle()

    # ---- objects, as users, agents and other controllers change them

    def create(self, message: AnyObject) -> AnyObject:
        metadata = message.metadata
        metadata.uid = metadata.uid or f"uid-{metadata.name}"
        metadata.generation = 1
        metadata.creation_timestamp.seconds = int(self.now)
        default(message)
        assert not validate(message), validate(message)
        self._put(message)
        return message

    def _put(self, message: AnyObject) -> None:
        key = KEYS.object_key(of_message(message), message.metadata.namespace, message.metadata.name)
        self.etcd.put(rpc.PutRequest(key=key, value=encode(wrap(message))))

    def edit(self, kind: Kind, name: str, change: Callable[[AnyObject], None]) -> None:
        """A new desire."""
        message = self.get(kind, name)
        change(message)
        message.metadata.generation += 1
        self._put(message)

    def get(self, kind: Kind, name: str) -> AnyObject:
        pair = self.etcd.get(KEYS.object_key(kind, "default", name))
        assert pair is not None, name
        return unwrap(decode_entry(entry_of(pair)))

    def has(self, kind: Kind, name: str) -> bool:
        return self.etcd.get(KEYS.object_key(kind, "default", name)) is not None

    def job(self, name: str = "count") -> Job:
        found = self.get(JOB, name)
        assert isinstance(found, Job)
        return found

    def replica_set(self, name: str = "web") -> ReplicaSet:
        found = self.get(REPLICA_SET, name)
        assert isinstance(found, ReplicaSet)
        return found

    def pods(self) -> list[Pod]:
        return [decode_entry(entry_of(pair)).pod for pair in self.etcd.under(KEYS.prefix(POD))]

    def active(self) -> list[Pod]:
        return [pod for pod in self.pods() if is_active(pod)]

    def delete(self, kind: Kind, name: str) -> None:
        self.etcd.delete_range(rpc.DeleteRangeRequest(key=KEYS.object_key(kind, "default", name)))

    def change_pod(self, pod: Pod, change: Callable[[Pod], None]) -> None:
        change(pod)
        self._put(pod)

    def bind(self, pod: Pod, node: str = "node-1") -> None:
        self.change_pod(pod, lambda found: setattr(found.spec, "node_name", node))

    def run(self, pod: Pod, node: str = "node-1") -> None:
        """On its node, and ready."""

        def change(found: Pod) -> None:
            found.spec.node_name, found.status.phase = node, "Running"
            condition = found.status.conditions.add(type="Ready", status="True")
            condition.last_transition_time.seconds = int(self.now)

        self.change_pod(pod, change)

    def end(self, pod: Pod, phase: str = "Succeeded") -> None:
        def change(found: Pod) -> None:
            found.spec.node_name = found.spec.node_name or "node-1"
            found.status.phase = phase
            del found.status.conditions[:]

        self.change_pod(pod, change)

    def ask_to_end(self, pod: Pod, grace: int | None = None) -> None:
        """Deleted by a user, or evicted."""
        match ask_to_end(pod, grace, int(self.now)):
            case Ending.REMOVE:
                self.delete(POD, pod.metadata.name)
            case Ending.STOPPING:
                self._put(pod)

    def stop(self, pod: Pod) -> None:
        """Its agent has stopped it and removes it."""
        match end_object(pod, int(self.now)):
            case Ending.REMOVE:
                self.delete(POD, pod.metadata.name)
            case Ending.STOPPING:
                self._put(pod)


def is_active(pod: Pod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed") and not pod.metadata.HasField("deletion_timestamp")


def index_of(pod: Pod) -> int:
    return int(pod.metadata.annotations[COMPLETION_INDEX])


def a_replica_set(replicas: int, name: str = "web", **labels: str) -> ReplicaSet:
    found = ReplicaSet(metadata={"name": name, "namespace": "default"})
    found.spec.replicas = replicas
    labels = labels or {"app": name}
    found.spec.selector.match_labels.update(labels)
    found.spec.template.metadata.labels.update(labels)
    found.spec.template.spec.containers.add(name="main", image="registry.example/web:1")
    return found


def a_job(completions: int | None = 1, parallelism: int | None = None, name: str = "count", **spec: object) -> Job:
    found = Job(metadata={"name": name, "namespace": "default"})
    if completions is not None:
        found.spec.completions = completions
    if parallelism is not None:
        found.spec.parallelism = parallelism
    for field, wanted in spec.items():
        setattr(found.spec, field, wanted)
    template = found.spec.template
    template.spec.restart_policy = template.spec.restart_policy or "Never"
    template.spec.containers.add(name="main", image="registry.example/count:1")
    return found


def as_entry(message: AnyObject, revision: int) -> Entry:
    key = KEYS.object_key(of_message(message), message.metadata.namespace, message.metadata.name)
    return Entry(key, encode(Object.FromString(wrap(message).SerializeToString())), revision, revision)
