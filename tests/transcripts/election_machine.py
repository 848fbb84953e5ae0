"""Commands of transcripts about the election.

The first word is a candidate's name. All candidates share one store and see its changes at once.

NAME joins lease=10 deadline=6 retry=2   a candidate begins its run; durations in seconds
NAME stops                               it ends its run
NAME resigns                             it gives up leading
NAME wants-a-new-term                    the process that writes under its epoch was replaced
NAME drains                              its work has stopped; without `slow` at `joins` it does so at once
NAME cut off                             its requests do not arrive any more, and it sees no change
NAME loses-answers                       its requests arrive and it sees changes, but no answer comes back
NAME gets-late-answers SECONDS           its requests arrive and it sees changes, but each answer takes so long
NAME connected                           all works again
wait SECONDS                             time passes for all
show                                     what is in the store, and what each candidate believes

Each line that is printed has the time in seconds, the candidate, and what it does or is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from leader import effects as fx
from leader import events as ev
from leader.clock import Instant
from leader.config import ElectionConfig
from leader.election import Election
from tests.leader.model import ModelStore
from tests.transcripts.transcript import Command, TranscriptError, unknown

CONNECTED, CUT_OFF, LOSES_ANSWERS, LATE = "connected", "cut", "loses-answers", "gets-late-answers"
_ACTS = "joins, stops, resigns, wants-a-new-term, drains, cut, loses-answers, gets-late-answers, connected"


class _Member:
    def __init__(self, name: str, command: Command) -> None:
        self.name = name
        lease = command.number("lease", 10)
        config = ElectionConfig(
            identity=name,
            lease_duration=lease,
            renew_deadline=command.number("deadline", 6),
            retry_period=command.number("retry", 2),
            store_ttl_seconds=round(lease),
        )
        self.election = Election(config, f"of-{name}", lambda: 0.0)
        self.drains_at_once = "slow" not in command.arguments
        self.network = CONNECTED
        self.late_seconds = 0.0
        self.due: float | None = None
        self.belief: tuple[int, float] | None = None


class ElectionMachine:
    def __init__(self) -> None:
        self._now = 0.0
        self._store = ModelStore()
        self._members: dict[str, _Member] = {}
        self._answers: list[tuple[float, int, _Member, ev.Event]] = []
        """Late ones: when they come, and in which order they were sent."""

    def run(self, command: Command) -> Iterator[str]:
        if command.verb == "wait":
            yield from self._wait(float(command.arguments[0]))
            return
        if command.verb == "show":
            yield from self._show()
            return
        name, act = command.verb, next(iter(command.arguments), "")
        if act == "joins":
            self._members[name] = _Member(name, command)
        elif name not in self._members:
            raise TranscriptError(f'"{name}" has not joined: want {", ".join([*self._members, "wait", "show"])}')
        member = self._members[name]
        match act:
            case "joins":
                event: ev.Event = ev.Started()
            case "stops":
                event = ev.StopRequested()
            case "resigns":
                event = ev.ResignRequested("asked to")
            case "wants-a-new-term":
                event = ev.NewTermRequested()
            case "drains":
                event = ev.Drained()
            case "cut" | "loses-answers" | "gets-late-answers" | "connected":
                member.network = act
                member.late_seconds = float(command.arguments[1]) if act == LATE else 0.0
                if act == CONNECTED:
                    yield from self._step(member, ev.Listed(self._store.view(), went_back=False))
                return
            case _:
                raise unknown(Command(act, ()), _ACTS)
        yield from self._step(member, event)

    def _step(self, first: _Member, event: ev.Event) -> Iterator[str]:
        waiting: deque[tuple[_Member, ev.Event]] = deque([(first, event)])
        while waiting:
            member, event = waiting.popleft()
            for effect in member.election.step(Instant(round(self._now * 1e9), round(self._now * 1e6)), event):
                match effect:
                    case fx.Get() | fx.Acquire() | fx.Renew() | fx.BeginTerm() | fx.Release():
                        text, events = self._perform(member, effect)
                        waiting.extend(events)
                    case fx.ArmTimer(due_ns):
                        member.due = None if due_ns is None else due_ns / 1e9
                        continue
                    case _:
                        text = _told(member, effect)
                        if isinstance(effect, fx.StopLeading) and member.drains_at_once:
                            waiting.append((member, ev.Drained()))
                if text:
                    yield f"{self._now:5.1f} {member.name}: {text}"

    def _perform(self, member: _Member, request: fx.Request) -> tuple[str, list[tuple[_Member, ev.Event]]]:
        text = _asked(request)
        if member.network == CUT_OFF:
            return f"{text} -> no answer", []
        before = self._store.revision
        outcome = self._store.perform(request)
        seen: list[tuple[_Member, ev.Event]] = []
        if self._store.revision != before:
            for other in self._members.values():
                if other.network != CUT_OFF:
                    seen.append((other, ev.EpochChanged(self._store.epoch, self._store.revision)))
                    seen.append((other, ev.RecordChanged(self._store.record, self._store.revision)))
        if member.network == LOSES_ANSWERS:
            return f"{text} -> {_became(outcome)}, but the answer is lost", seen
        if member.network == LATE:
            answer = ev.Answered(request.number, outcome)
            self._answers.append((self._now + member.late_seconds, len(self._answers), member, answer))
            return f"{text} -> {_became(outcome)}, but the answer takes {member.late_seconds:g} s", seen
        return f"{text} -> {_became(outcome)}", [(member, ev.Answered(request.number, outcome)), *seen]

    def _wait(self, seconds: float) -> Iterator[str]:
        until = self._now + seconds
        while True:
            due = [(member.due, name) for name, member in self._members.items() if member.due is not None]
            late = min(self._answers, default=None, key=lambda answer: answer[:2])
            if late is not None and late[0] <= min([until, *(at for at, _ in due)]):
                self._answers.remove(late)
                self._now, _, member, answer = late
                yield f"{self._now:5.1f} {member.name}: an answer comes"
                yield from self._step(member, answer)
                continue
            if not due or min(due)[0] > until:
                break
            at, name = min(due)
            self._now = max(self._now, at)
            yield from self._step(self._members[name], ev.Tick())
        self._now = until

    def _show(self) -> Iterator[str]:
        record, epoch = self._store.record, self._store.epoch
        if record is None or epoch is None:
            yield "store: empty"
        else:
            yield f"store: record of {record.record.holder or 'nobody'}, epoch {epoch.mod_revision}"
        for member in self._members.values():
            belief = "does not believe that it leads"
            if member.belief is not None and self._now < member.belief[1]:
                belief = f"may write under epoch {member.belief[0]} until {member.belief[1]:.1f}"
            yield f"{member.name}: {member.election.state.value}, {belief}"


def _asked(request: fx.Request) -> str:
    match request:
        case fx.Get():
            return "read both keys"
        case fx.Acquire():
            return f"acquire, if the record is at {request.record_revision} and the epoch at {request.epoch_revision}"
        case fx.Renew():
            return f"renew, if the epoch is {request.guard}"
        case fx.BeginTerm():
            return f"begin a term, if the epoch is {request.guard}"
        case fx.Release():
            return f"release, if the epoch is {request.guard}"


def _became(outcome: ev.Outcome) -> str:
    match outcome:
        case ev.Written(revision):
            return f"written at {revision}"
        case ev.Refused(view):
            return f"refused, the epoch is {view.epoch.mod_revision if view.epoch else 0}"
        case ev.Found(view):
            return "nothing there" if view.record is None else f"record of {view.record.record.holder or 'nobody'}"
        case _:
            raise AssertionError(outcome)


def _told(member: _Member, effect: fx.Effect) -> str:
    match effect:
        case fx.PublishBelief(epoch, valid_until_ns):
            member.belief = (epoch, valid_until_ns / 1e9)
            return f"may write under epoch {epoch} until {valid_until_ns / 1e9:.1f}"
        case fx.WithdrawBelief():
            member.belief = None
            return "may not write any more"
        case fx.StartLeading(epoch):
            return f"START the work under epoch {epoch}"
        case fx.StopLeading():
            return "STOP the work"
        case fx.NewLeader(identity):
            return f"sees that {identity or 'nobody'} leads"
        case fx.TermBegun(epoch):
            return f"the new term has begun, epoch {epoch}"
        case fx.TermFailed(reason):
            return f"no new term: {reason}"
        case fx.Overdue():
            return "OVERDUE: the work has not stopped in time"
        case fx.Ended():
            return "the run is over"
        case _:
            # Texts for people and values for metrics.
            return ""
