"""What replicas know of each other without etcd: guardians that outlive them, and the followers' connections to the leader.

The real `FailureDetector` and the real revocation, over a model of hosts: one that is up accepts a connection, even if its
process is paused; one whose process has ended, or behind a firewall, refuses it, and breaks those that were open; a silent one
answers nothing. In half of the worlds; what it draws comes from a random source of its own.

E3: a term is ended early on evidence against its very holder. Its process has ended, its connections were refused, or followers
enough found it silent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from leader.clock import NS_PER_SECOND
from leader.config import FAST
from leader.etcd_requests import LockKeys
from leader.etcd_shim import rpc
from leader.events import EpochChanged, Event, Listed, RecordChanged
from leader.failure_detector import (
    VOTES_MIN,
    Connect,
    Connected,
    ConnectionBroken,
    ConnectionRefused,
    Counted,
    DetectorEvent,
    Disconnect,
    FailureDetector,
    LeaderSeen,
    Leading,
    LookAround,
    Revoke,
    TimePassed,
    Unanswered,
    Vote,
)
from leader.follower_watch import leading_of
from leader.observation import Observation
from leader.revocation import Evidence, RevocationNote, build_revocation
from rayched.store.keys import Keys
from tests.simulation.etcd_errors import EtcdError
from tests.simulation.world import MS, SECOND, Link, Process, Violation, World

if TYPE_CHECKING:
    from tests.simulation.candidate import Candidate
    from tests.simulation.replica import Replica
    from tests.simulation.safety import Safety

_SUSPECT_AFTER: Final = 0.7
_KEYS: Final = LockKeys(Keys("/sim").record, Keys("/sim").epoch)
_ATTEMPTS: Final = 3
_LENIENT_NS: Final = 4 * SECOND
_MEAN_GAP_SECONDS: Final = 2.0
_KILLED: Final = 0.4
_WALLED: Final = 0.3
_WHOLE_TREE: Final = 0.3
"""Share of kills that the guardian does not outlive."""


class Peers:
    """Of one world."""

    def __init__(self, world: World, safety: Safety, counts: Counter[str], until: int) -> None:
        self.world, self.safety, self.counts = world, safety, counts
        self.random = Random(f"peers {world.seed}")
        self.is_on = self.random.random() < 0.5
        self._until = until
        self._replicas: list[Replica] = []
        self.silent: set[str] = set()
        """Hosts that answer nobody."""
        self.walled: set[str] = set()
        """Hosts to which connections are refused, though their processes live."""
        self._wrongly_accused: set[str] = set()
        """Processes of which that was so once."""
        self.open: dict[tuple[Following, int], str] = {}
        """Connections, and the hosts at their other ends."""
        self._votes: dict[str, int] = {}
        """By process, the epoch that it suspects."""
        self._followers: dict[str, Process] = {}
        self._approved: set[int] = set()
        """Epochs whose leader followers enough have found silent."""

    def start(self, replicas: list[Replica]) -> None:
        if self.is_on:
            self._replicas = replicas
            self.world.after(self._gap(), self._next)

    def heal(self) -> None:
        self.silent.clear()
        self.walled.clear()

    def _gap(self) -> int:
        return int(self.random.expovariate(1.0 / _MEAN_GAP_SECONDS) * SECOND)

    def _next(self) -> None:
        """A replica is killed, or a host falls silent: cut off as a whole, or from other hosts alone."""
        if self.world.now >= self._until:
            return
        leaders = [replica for replica in self._replicas if replica.candidate.believes()]
        replica = self.random.choice(leaders if leaders and self.random.random() < 0.7 else self._replicas)
        lasts_ns = int((0.3 + 3.7 * self.random.random() ** 2) * SECOND)
        if self.random.random() < _KILLED:
            self.counts["kill of a replica that is looked after"] += 1
            replica.crash(lasts_ns)
            self.world.after(self._gap(), self._next)
            return
        if self.random.random() < _WALLED:
            self._wall(replica, lasts_ns)
            self.world.after(self._gap(), self._next)
            return
        requests, answers = self.random.choice(((True, True), (False, False), (False, False), (False, True), (True, False)))
        is_cut_off = not (requests and answers)
        self.counts["silent hosts"] += 1
        self.world.tell(f"-- {replica.name} is silent{' and cut off' if is_cut_off else ''}")
        self.silent.add(replica.name)

        def passes(requests: bool, answers: bool) -> None:
            for link in replica.links if is_cut_off else ():
                link.requests_pass, link.answers_pass = requests, answers

        def over() -> None:
            self.silent.discard(replica.name)
            passes(True, True)
            for stream in self.world.streams:
                stream.stir()

        passes(requests, answers)
        self.world.after(lasts_ns, over)
        self.world.after(self._gap(), self._next)

    def _wall(self, replica: Replica, lasts_ns: int) -> None:
        """A firewall refuses connections to it, new ones and those that are open; it lives, and reaches etcd."""
        self.counts["walled hosts"] += 1
        self.world.tell(f"-- connections to {replica.name} are refused, though it lives")
        self.walled.add(replica.name)
        self._wrongly_accused.add(replica.process.name)
        self._break_connections(replica.name)
        self.world.after(lasts_ns, lambda: self.walled.discard(replica.name))

    # ------------------------------------------------------------------------------------------------------------- hosts

    def listens(self, name: str) -> bool:
        return name not in self.walled and any(replica.name == name and replica.is_up for replica in self._replicas)

    def opened(self, following: Following, number: int, name: str) -> None:
        self.open[following, number] = name

    def closed(self, following: Following, number: int) -> None:
        self.open.pop((following, number), None)

    def _break_connections(self, name: str) -> None:
        for (following, number), other in list(self.open.items()):
            if other == name:
                del self.open[following, number]
                if name not in self.silent:
                    self.world.after(self.world.delay(), lambda f=following, n=number: f.give(ConnectionBroken(n)))  # type: ignore[misc]

    def crashed(self, replica: Replica) -> None:
        """Its process has just ended."""
        self._break_connections(replica.name)
        held = replica.candidate.held
        if self.random.random() < _WHOLE_TREE or held is None:
            return
        leading = Leading(replica.process.name, replica.name, held)
        guardian = Process(self.world, f"guardian of {replica.process.name}")
        wait_ns = int((0.01 + 3.0 * self.random.random() ** 4) * SECOND)
        self.world.after(wait_ns, lambda: self.revoke(guardian, replica.links[0], leading, Evidence.DEAD, _ATTEMPTS))

    # -------------------------------------------------------------------------------------------------------------- votes

    def joins(self, following: Following) -> None:
        self._followers[following.process.name] = following.process

    def vote(self, voter: str, holder: str, epoch: int) -> Counted:
        """As it arrives at etcd."""
        self._votes[voter] = epoch
        present = [name for name, process in self._followers.items() if name != holder and process.is_alive()]
        suspecting = sum(self._votes.get(name) == epoch for name in present)
        if epoch and suspecting >= min(VOTES_MIN, len(present)):
            self._approved.add(epoch)
        return Counted(epoch, len(present), suspecting)

    # --------------------------------------------------------------------------------------------------------- revocation

    def revoke(self, by: Process, link: Link, leading: Leading, evidence: Evidence, attempts: int) -> None:
        note = RevocationNote(leading.held.epoch, evidence, by.name)
        request = build_revocation(leading.held, _KEYS, note)

        def answered(answer: Any) -> None:
            if isinstance(answer, EtcdError):
                if attempts > 1:
                    self.revoke(by, link, leading, evidence, attempts - 1)
            elif answer.succeeded:
                self._end_lease(by, link, leading.held.lease_id)

        self.world.call(by, link, lambda: self._judged(request, leading, evidence), SECOND // 2, answered)

    def _end_lease(self, by: Process, link: Link, lease_id: int) -> None:
        request = rpc.LeaseRevokeRequest(ID=lease_id)
        self.world.call(by, link, lambda: self.world.etcd.revoke(request), SECOND // 2, lambda _: None)

    def _judged(self, request: Any, leading: Leading, evidence: Evidence) -> Any:
        """etcd carries it out; E3."""
        before = self.world.etcd.get(_KEYS.record)
        answer = self.world.etcd.txn(request)
        if before is None or self.world.etcd.get(_KEYS.record) is not None:
            return answer
        holder, accused = json.loads(before.value)["holder"], leading.holder
        self.counts[f"revoked: {evidence.value}"] += 1
        self.world.trace("revoked", evidence.value, holder)
        self.world.tell(f"the term of {holder} is ended: {evidence.value}")
        if holder != accused:
            raise Violation("E3", f"the record of {holder or 'nobody'} was removed for {accused}")
        lives = any(replica.process.name == holder and replica.is_up for replica in self._replicas)
        if lives:
            self.safety.lenient_until = max(self.safety.lenient_until, self.world.now + _LENIENT_NS)
        if evidence is Evidence.SILENT and leading.held.epoch not in self._approved:
            raise Violation("E3", f"the term of {holder} was ended on the word of too few")
        if lives and (evidence is Evidence.DEAD or (evidence is Evidence.REFUSED and holder not in self._wrongly_accused)):
            raise Violation("E3", f"{holder} lives, and its term was ended as if it were {evidence.value}")
        return answer


class Following:
    """One candidate's watch over whoever leads, as `FollowerWatch` has it with sockets and threads."""

    def __init__(self, peers: Peers, candidate: Candidate) -> None:
        self.peers, self.candidate = peers, candidate
        self.world, self.process = candidate.world, candidate.process
        self._detector = FailureDetector(FAST.retry_period, _SUSPECT_AFTER)
        self._observed = Observation()
        self._timer = 0
        peers.joins(self)

    def seen(self, event: Event) -> None:
        """What the watch of the election told; what its own requests read is not told."""
        now = self.candidate.clock.now()
        match event:
            case RecordChanged(record, revision):
                changed = self._observed.see_record(record, revision, now)
            case EpochChanged(epoch, revision):
                changed = self._observed.see_epoch(epoch, revision)
            case Listed(view, went_back):
                if went_back:
                    self._observed.forget()
                changed = self._observed.see(view, now)
            case _:
                return
        if changed:
            self._step(LeaderSeen(leading_of(self._observed, self.candidate.config.identity)))

    def give(self, event: DetectorEvent) -> None:
        self.process.deliver(lambda: self._step(event))

    def _step(self, event: DetectorEvent) -> None:
        for effect in self._detector.step(self.candidate.clock.now().boot_ns, event):
            match effect:
                case Connect(number, address, timeout_ns):
                    self._connect(number, address, timeout_ns)
                case Disconnect(number):
                    self.peers.closed(self, number)
                case Vote(epoch):
                    self._vote(epoch)
                case LookAround():
                    """Its requests go to etcd as a whole here."""
                case Revoke(leading, evidence, _):
                    self.peers.revoke(self.process, self.candidate.link, leading, evidence, 1)
        self._arm()

    def _connect(self, number: int, name: str, timeout_ns: int) -> None:
        peers, own = self.peers, self.process.name[0]

        def arrive() -> None:
            if name in peers.silent or own in peers.silent:
                return
            if peers.listens(name):
                peers.opened(self, number, name)
                answer: Callable[[int], DetectorEvent] = Connected
            else:
                answer = ConnectionRefused
            self.world.after(self.world.delay(), lambda: self.give(answer(number)))

        self.world.after(self.world.delay(), arrive)
        # One that was answered takes no notice of this.
        self.world.after(timeout_ns, lambda: (self, number) in peers.open or self.give(Unanswered(number)))

    def _vote(self, epoch: int) -> None:
        leading = leading_of(self._observed, self.candidate.config.identity)
        holder = "" if leading is None else leading.holder

        def counted(answer: Any) -> None:
            if isinstance(answer, Counted):
                self._step(answer)

        self.world.call(
            self.process,
            self.candidate.link,
            lambda: self.peers.vote(self.process.name, holder, epoch),
            NS_PER_SECOND // 2,
            counted,
        )

    def _arm(self) -> None:
        self._timer += 1
        number, due_ns = self._timer, self._detector.due_ns
        if due_ns is None:
            return
        wait_ns = max(MS, self.candidate.machine_clock.true_delay_ns(due_ns - self.candidate.clock.now().boot_ns))
        self.world.after(wait_ns, lambda: self._timer == number and self.give(TimePassed()))
