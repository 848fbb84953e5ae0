"""One session of a plan: a cluster under load, its faults one after the other, and the verdict.

Every invariant is judged by the auditor or by what it knows: S1 to S5, S8, S9 and S12 while etcd's history passes by, S3 and S12
against what the API acknowledged, S11 by the replicas' audit logs, S6 and S7 by streams against that history, L1 to L4 after the
last fault is healed.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rayched.audit.auditor import Auditor, Binding
from rayched.audit.findings import INVARIANTS
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.replica.etcd.etcd_binary import EtcdBinary
from rayched.v1.workloads_pb2 import PriorityClass
from tests.chaos import audit_logs
from tests.chaos.faults import ENDS_THE_TERM, UNTIL_A_LATER_EPOCH, WANTS_REST, Fault, Struck, strike
from tests.chaos.flood import Flood
from tests.chaos.gangs import feasible_pending
from tests.chaos.load import HIGH_CLASS, ChurningLoad, SpreadLoad
from tests.chaos.plan import Session
from tests.chaos.secured import ExchangedCertificates
from tests.chaos.stage import Stage, StageFailed
from tests.chaos.watchers import SlowWatcher, Watcher

LIVE_MAX: Final = 600
ROOMY_CPU: Final = "64"
CROWDED_CPU: Final = "4"
"""24 nodes of these take two thirds of what lives at a time."""
STANDING: Final = 2
"""Replicas that stand for election before the next fault: one leads, one can take over."""
BOUND_SECONDS_MAX: Final = 10.0
"""L1: from healing to the last feasible pod."""
CONVERGED_SECONDS_MAX: Final = 5.0
"""S7."""
AUDITED_SECONDS_MAX: Final = 60.0
"""Until the auditor has read what streams have read."""
SLOW_SECONDS_MAX: Final = 30.0
SLOW_EVENTS_A_SECOND_MIN: Final = 3_000.0
"""Of reading, until who has read next to nothing for a whole session has read it all: so long, and what it has to read."""
IN_FLIGHT_SECONDS_MAX: Final = 30.0
"""L3, beyond the time that a fault itself lasts."""
LEADER_SECONDS_MAX: Final = 30.0
"""L2: after that nobody will lead by himself any more."""
_STALL_SECONDS: Final = 20.0


@dataclass(slots=True)
class Effect:
    """What came of one fault. Seconds from the blow unless said otherwise."""

    kind: str
    seconds: float
    took_effect: bool = True
    note: str = ""
    later_epoch: float | None = None
    """Until the first binding under a later epoch; None: there was none."""
    after_release: float | None = None
    """From the release of the lease until then."""
    longest_gap: float = 0.0
    """Without any binding, from the blow until all went on."""
    refused: int = 0
    """Writes that reached etcd under a later epoch than their own and were refused, as the auditor counts them."""
    counted: int = 0
    """Writes of epochs that were over, refused by the store meanwhile, as the replicas count them."""


@dataclass(slots=True)
class SessionReport:
    """All that a session has shown; plain data."""

    number: int
    etcd_version: str
    members: int
    broken_rules: tuple[str, ...]
    crowded: bool = False
    effects: list[Effect] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    violations: dict[str, list[str]] = field(default_factory=dict)
    """By invariant, in words."""
    tolerated: dict[str, int] = field(default_factory=dict)
    demands: list[dict[str, Any]] = field(default_factory=list)
    """Of the plays with etcd's storage."""

    def violate(self, invariant: str, words: str) -> None:
        self.violations.setdefault(invariant, []).append(words)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def play(
    session: Session,
    directory: Path,
    binary: EtcdBinary,
    rate: float,
    tell: Callable[[str], object],
    *,
    replicas: int = 3,
    events: float = 0.0,
    secured: bool = False,
) -> SessionReport:
    """Plays the session in a cluster of its own. `tell` gets a line for each fault. Raises StageFailed where it cannot begin.

    `events`: changes a second that the streams see beside those of the load. `secured`: with certificates (secured.py).
    """
    report = SessionReport(session.number, binary.version_text, session.members, session.broken_rules, session.crowded)
    cpu = CROWDED_CPU if session.crowded else ROOMY_CPU
    with contextlib.ExitStack() as owned:
        identities = owned.enter_context(ExchangedCertificates(directory, replicas)) if secured else None
        rules = session.broken_rules
        stage = owned.enter_context(
            Stage(directory, binary, replicas=replicas, members=session.members, cpu=cpu, broken_rules=rules, secured=identities)
        )
        if session.crowded:
            stage.client.apply(_high_class())
        load = _load(stage, session, rate).start()
        with contextlib.ExitStack() as streams:
            streams.callback(load.stop)
            _await_bindings(stage, load)
            before = _levels(stage)
            addresses = list(stage.cluster.addresses)
            watchers = [Watcher(one, stage.listen).start() for one in (addresses, addresses[::-1])]
            for watcher in watchers:
                streams.callback(watcher.stop)
            slow = None
            if (session.crowded or session.broken_rules) and not secured:
                # Not where seconds count: what it reads at last, it reads at one go.
                slow = SlowWatcher(addresses, stage.listen).start()
                streams.callback(slow.stop)
            flood = Flood(stage.etcd.endpoints, events) if events else None
            if flood is not None:
                streams.callback(flood.start().stop)
            demands = None if identities is None else identities.begin(stage.client, addresses, tell)
            began = time.monotonic()
            for number, fault in enumerate(session.faults):
                effect = _suffer(stage, fault, load, report)
                report.effects.append(effect)
                tell(f"{number + 1} of {len(session.faults)}: {_words(effect)}")
            stage.heal()
            report.figures["seconds of faults"] = round(time.monotonic() - began, 1)
            load.stop()
            if flood is not None:
                flood.stop()
            _judge_streams(stage, watchers, slow, report)
            _judge_liveness(stage, load, None if session.crowded else before, report)
            if identities is not None and demands is not None:
                identities.end(demands)
                report.demands += demands.as_data()
        _judge_safety(stage, load, report)
    return report


def _suffer(stage: Stage, fault: Fault, load: SpreadLoad, report: SessionReport) -> Effect:
    """One fault, from a cluster that is well to one that is well again."""
    effect = Effect(fault.kind, fault.seconds)
    try:
        stage.wait_until_standing(STANDING)
        if fault.kind in WANTS_REST:
            stage.wait_until_settled()
        _await_bindings(stage, load)
    except (StageFailed, ApiError) as failure:
        report.violate("L1", f"before {fault.kind}, with nothing wrong: {failure}")
        effect.took_effect, effect.note = False, str(failure)
        stage.heal()
        return effect
    try:
        refused, counted = stage.refusals(), sum(stage.refused_writes().values())
        struck = strike(stage, fault)
        if fault.until_a_later_epoch or fault.kind in UNTIL_A_LATER_EPOCH:
            effect.seconds = max(fault.seconds, time.monotonic() - struck.at)
    except (StageFailed, ApiError) as failure:
        effect.took_effect, effect.note = False, str(failure)
        stage.heal()
        return effect
    try:
        if fault.kind in ENDS_THE_TERM:
            stage.follower.wait_for(lambda auditor: _first_later(auditor, struck) is not None, LEADER_SECONDS_MAX)
        stage.heal()
        _await_bindings(stage, load)
        stage.status()
    except (StageFailed, ApiError) as failure:
        report.violate("L2", f"after {fault.kind}: {failure}")
        effect.note = str(failure)
    first = stage.ask(lambda auditor: _first_later(auditor, struck))
    if first is not None:
        effect.later_epoch = first.seconds - struck.at
        if (released := stage.ask(lambda auditor: _released_since(auditor, struck))) is not None:
            effect.after_release = first.seconds - released
        elif fault.kind == "stop-replica":
            report.violate("L2", "a replica that was told to stop did not give its lease back")
    elif fault.kind in ENDS_THE_TERM:
        report.violate("L2", f"after {fault.kind} no binding came under a later epoch for {LEADER_SECONDS_MAX:.0f} s")
    effect.longest_gap = stage.ask(lambda auditor: _longest_gap(auditor, struck.at))
    effect.refused = stage.refusals() - refused
    effect.counted = sum(stage.refused_writes().values()) - counted
    return effect


def _await_bindings(stage: Stage, load: SpreadLoad) -> None:
    if stage.wait_for_bindings(_STALL_SECONDS):
        return
    pending = stage.ask(lambda auditor: len(auditor.pending()))
    error = stage.follower.error or "the auditor follows"
    raise StageFailed(f"no binding for {_STALL_SECONDS:.0f} s, {pending} pods wait; the load: {load.describe()}; {error}")


# --------------------------------------------------------------------------------------------------------------------- judging


def _judge_liveness(stage: Stage, load: SpreadLoad, before: dict[str, int] | None, report: SessionReport) -> None:
    """`before` is None where pods wait for room all the time."""
    try:
        stage.wait_until_standing(len(stage.cluster.replicas))
    except StageFailed as failure:
        report.violate("L2", str(failure))
    deadline = time.monotonic() + BOUND_SECONDS_MAX
    while (left := stage.ask(feasible_pending)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        report.violate("L1", f"{len(left)} feasible pods wait {BOUND_SECONDS_MAX:.0f} s after healing, first {left[0]}")
    holders = {address: _holder(stage, address) for address in stage.cluster.addresses}
    if len(set(holders.values())) != 1 or "" in holders.values():
        report.violate("L2", f"the replicas do not agree on one leader: {holders}")
    longest = max((effect.seconds for effect in report.effects), default=0.0)
    slowest = stage.ask(lambda auditor: max(auditor.bindings, key=lambda binding: binding.waited, default=None))
    if slowest is not None:
        report.figures["longest wait of a pod"] = round(slowest.waited, 2)
        if before is not None and slowest.waited > IN_FLIGHT_SECONDS_MAX + longest:
            report.violate("L3", f"pod {slowest.pod} waited {slowest.waited:.1f} s")
    after = _levels(stage)
    report.figures["levels before"], report.figures["levels after"] = before, after
    if after["assumed"] or after["in flight"]:
        report.violate("L3", f"with nothing to do {after['assumed']} pods are assumed and {after['in flight']} in flight")
    if before is not None and after["waiting"] > before["waiting"]:
        report.violate("L4", f"{after['waiting']} pods wait in the queue, {before['waiting']} did before the faults")
    report.figures["memory"] = stage.memory_bytes()
    if load.alive:
        report.violate("L1", "a submission has not been answered for 90 s")


def _judge_streams(stage: Stage, watchers: list[Watcher], slow: SlowWatcher | None, report: SessionReport) -> None:
    """Nothing is submitted and nothing floods any more."""
    if slow is not None:
        slow.hurry()
    # The auditor is the measure: on a busy machine it may come last.
    deadline = time.monotonic() + AUDITED_SECONDS_MAX
    while any(watcher.is_ahead for watcher in watchers) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + CONVERGED_SECONDS_MAX
    while not all(watcher.has_caught_up for watcher in watchers):
        if time.monotonic() > deadline:
            report.violate("S7", f"not all streams have caught up with etcd {CONVERGED_SECONDS_MAX:.0f} s after the last change")
            break
        time.sleep(0.05)
    if slow is not None:
        behind = max(0, min(watcher.events for watcher in watchers) - slow.events)
        allowed = SLOW_SECONDS_MAX + behind / SLOW_EVENTS_A_SECOND_MIN
        deadline = time.monotonic() + allowed
        while not slow.has_caught_up and slow.failure is None:
            if time.monotonic() > deadline:
                report.violate(
                    "S7", f"the slow stream, {behind} events behind, has not caught up within {allowed:.0f} s of reading"
                )
                break
            time.sleep(0.05)
    for stream in watchers if slow is None else (*watchers, slow):
        if stream.failure is not None:
            report.violate("S6", f"a stream ended: {stream.failure}")
        if (words := stream.verdict()) is not None:
            report.violate("S6", words)
    report.figures["events of a stream"] = min(watcher.events for watcher in watchers)
    report.figures["cut off for slowness"] = 0 if slow is None else slow.cut_off


def _judge_safety(stage: Stage, load: SpreadLoad, report: SessionReport) -> None:
    stage.ask(lambda auditor: auditor.settle())
    findings = stage.ask(lambda auditor: auditor.findings)
    for kind, count in findings.counts().items():
        if count:
            report.violate(INVARIANTS[kind], f"{kind}, {count} times, first: {findings.first[kind]}")
    report.tolerated = dict(findings.tolerated)
    for words in load.wrong_answers:
        report.violate("S3", words)
    lost = stage.ask(lambda auditor: auditor.lost(load.acknowledged, load.deletions_asked))
    if lost:
        report.violate("S3", f"{len(lost)} acknowledged submissions are lost, first {lost[0]}")
    if back := stage.ask(lambda auditor: auditor.undeleted(load.deletions_acknowledged)):
        report.violate("S12", f"{len(back)} pods whose deletion was acknowledged are there, first {back[0]}")
    audited = audit_logs.judge(stage.directory, load.names_of(load.acknowledged), load.names_of(load.deletions_acknowledged))
    for words in audited.violations:
        report.violate("S11", words)
    report.tolerated |= audited.tolerated
    report.figures["lines of audit logs"] = audited.lines
    if stage.follower.error is not None:
        report.violate("the run", f"void: {stage.follower.error}")
    if stage.agents_failure is not None:
        report.violate("the run", f"the hollow nodes failed: {stage.agents_failure}")
    report.figures |= {
        "acknowledged": len(load.acknowledged),
        "deleted": len(load.deletions_acknowledged),
        "repeated submissions": load.repeated,
        "unanswered": len(load.unanswered),
        "bindings": stage.ask(lambda auditor: len(auditor.bindings)),
        "writes of pod groups": stage.ask(lambda auditor: auditor.leader_writes["group"]),
        "epochs": stage.ask(lambda auditor: len(auditor.epochs)),
        "leader writes": stage.ask(lambda auditor: dict(auditor.leader_writes)),
        "found": findings.counts() | {"lost": len(lost)},
        "refused": stage.refusals(),
        "refused writes": stage.refused_writes(),
        "revision": stage.ask(lambda auditor: auditor.revision),
    }


def _levels(stage: Stage) -> dict[str, int]:
    """What shall come back to where it was."""
    status = stage.status()
    pending = dict(status.pending_pods)
    in_flight = pending.pop("in_flight", pending.pop("in flight", 0))
    return {"assumed": status.assumed_pods, "in flight": in_flight, "waiting": sum(pending.values())}


def _first_later(auditor: Auditor, struck: Struck) -> Binding | None:
    place = len(auditor.bindings)
    while place and auditor.bindings[place - 1].seconds >= struck.at:
        place -= 1
    return next((one for one in auditor.bindings[place:] if one.epoch > struck.epoch), None)


def _released_since(auditor: Auditor, struck: Struck) -> float | None:
    return next((seconds for _, seconds in auditor.terms.released if seconds >= struck.at), None)


def _longest_gap(auditor: Auditor, since: float) -> float:
    place = len(auditor.bindings)
    while place and auditor.bindings[place - 1].seconds >= since:
        place -= 1
    times = [since, *(one.seconds for one in auditor.bindings[place:])]
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


def _holder(stage: Stage, address: str) -> str:
    with contextlib.suppress(ApiError), Client([address], timeout_seconds=5.0) as client:
        return client.leader().holder
    return ""


def _load(stage: Stage, session: Session, rate: float) -> SpreadLoad:
    clients = stage.load_clients
    share, live_max = rate / len(clients), LIVE_MAX // len(clients)
    return SpreadLoad(
        [
            # One after the other, so that pods come all the time and not in bursts.
            ChurningLoad(
                client,
                f"s{number}",
                share,
                live_max,
                session.seed + number,
                crowded=session.crowded,
                phase=number / len(clients),
                gangs=True,
            )
            for number, client in enumerate(clients)
        ]
    )


def _high_class() -> PriorityClass:
    found = PriorityClass(api_version="scheduling.k8s.io/v1", kind="PriorityClass", value=1000)
    found.metadata.name = HIGH_CLASS
    return found


def _words(effect: Effect) -> str:
    if not effect.took_effect:
        return f"{effect.kind}: did not take effect: {effect.note}"
    lasted = f" for {effect.seconds:.2f} s" if effect.seconds else ""
    later = "same epoch" if effect.later_epoch is None else f"later epoch binds after {effect.later_epoch:.2f} s"
    refused = f", {effect.refused} late writes refused" if effect.refused else ""
    return f"{effect.kind}{lasted}: {later}, longest gap {effect.longest_gap:.2f} s{refused}"
