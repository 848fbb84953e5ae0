"""The policy of following a prefix of etcd, without I/O: answers and time go in, requests and deliveries come out.

```
             ┌──(nothing to go on from)──▶ LISTING ──(all pages)───────┐
  PAUSED ──▶ OPENING                                                   ▼
    ▲        └──(the last change is known)──▶ PROVING ──(the same)─▶ FOLLOWING
    └───────── stream ended, silent or refused; history gone or another one ┘
```

What is delivered, in this order and without a gap:

* `ListedAll`: everything under the prefix as of one revision. The consumer replaces what it has; what is not in it is gone. Its
  revision may be lower than the one before, after etcd lost writes or was restored.
* `Changed`: what happened after that, each revision whole, once and in order. A message that etcd splits into fragments is
  delivered as far as its revisions are complete; the rest waits for the next fragment and is dropped if the stream breaks.
* `Broken` and `Resumed`: the stream broke; it is open again and nothing was missed.

Rules:

* After any break the watch begins at the last revision delivered that put something, and etcd has to tell all that was delivered
  from there on once more, equal in every byte; then follows what is new. Anything else shows that etcd's history is not the one
  that was followed (restored, wiped, writes lost), also where it has grown past the last revision: all is listed anew. What is
  put holds uids and times, so two histories do not put the same at the same revision; what is deleted leaves but a name.
  Where nothing was put since the list, nothing can be proved: all is listed anew. So it is where etcd has compacted the revision.
* Another cluster id in the new stream's header is seen at once. A lower revision may be that of a member that merely lags: it has
  `answer_seconds` to tell what it has to.
* A list is read while the stream that will follow it is open, and counts only if that is open still: etcd's process was the same
  then, so nothing is missed between the two. Pages are read at the revision of the first page. One that fails is asked for again;
  if its revision is gone or is from the future, the list begins anew.
* A stream without any message for `ask_seconds` is asked for its progress, and given up when `answer_seconds` pass without an
  answer. The answer proves life and nothing else: before etcd 3.5.8 it may overtake events, so it never moves the revision.
* Who knows that there is more, as whoever has begun a term does, has the stream asked at once, and given up after
  `hurry_seconds`: a member that fell silent with the former leader is not waited for.
* A break after at least `pause_seconds_max` of following is repaired at once; else the pauses double from `pause_seconds_min`.
* The stream requires a leader (metadata `hasleader`), or a member cut off from the others would stay silent.

Source: etcd API v3 and its guarantees for watches; docs/adr/0013. Cost: a few microseconds a message, about one a change.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from leader.etcd_shim import kv, rpc
from rayched.store.entries import Change, Deleted, Entry, entry_of
from rayched.store.keys import prefix_end
from rayched.store.list_watch_effects import (
    Break,
    Broken,
    CallFailure,
    Changed,
    CloseStream,
    Effect,
    FetchPage,
    ListedAll,
    OpenStream,
    Resumed,
    SendOnStream,
)
from rayched.store.page_size import PageSize

PAGE_ENTRIES: Final = 2000
"""Of a page of a list at most, where nobody says otherwise."""
_DELETE: Final = kv.Event.DELETE
_PROOF_CHANGES_MAX: Final = 1000
"""More deletions than so without any put are not remembered; a break then costs a listing."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient the core is; all in seconds."""

    ask_seconds: float = 1.0
    answer_seconds: float = 2.0
    page_seconds_max: float = 5.0
    pause_seconds_min: float = 0.05
    pause_seconds_max: float = 1.0
    hurry_seconds: float = 0.2
    """In place of `answer_seconds` where a sign of life is wanted at once; twice as long after each stream that gave none."""


class _Phase(enum.Enum):
    PAUSED = enum.auto()
    OPENING = enum.auto()
    LISTING = enum.auto()
    PROVING = enum.auto()
    FOLLOWING = enum.auto()


@dataclass(slots=True)
class _List:
    """A list under way. `revision` is that of its first page, or 0 before."""

    cluster_id: int = 0
    revision_min: int = 0
    """Of the store, when the stream began that will follow the list."""
    revision: int = 0
    entries: list[Entry] = field(default_factory=list)


class ListWatchCore:
    """Follows one prefix. Every method takes the time (any monotonic clock, seconds) and returns what to do, in order.

    `tick` is to be called at `due_at`, but only once everything that has arrived was handed in.
    """

    RULE_RESUMES_BEHIND_THE_LAST: ClassVar[bool] = True
    RULE_COMPACTED_HISTORY_IS_LISTED: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self, prefix: bytes, *, page_size: int = PAGE_ENTRIES, pace: Pace | None = None) -> None:
        self._prefix = prefix
        self._range_end = prefix_end(prefix)
        self._pages = PageSize(page_size)
        self._pace = pace or Pace()
        self._phase = _Phase.PAUSED
        self._due_at: float | None = None
        self._list = _List()
        self._cluster_id = 0
        self._stream = 0
        self._is_open = False
        self._held: list[Change] = []
        self._proof: tuple[Change, ...] = ()
        """What was delivered from the last put on; empty: a break is followed by a list."""
        self._opened_at = self._heard_at = math.nan
        self._asked_at: float | None = None
        self._hurried_at: float | None = None
        """Since when a sign of life is wanted at once, until there is one."""
        self._hurries = 0
        """Streams that gave none."""
        self._failures = 0
        self.revision = 0
        """Everything up to it has been delivered."""
        self.lists = 0
        self.breaks: Counter[Break] = Counter()

    @property
    def following(self) -> bool:
        """Whether changes are arriving, as far as is known."""
        return self._phase is _Phase.FOLLOWING

    @property
    def reads(self) -> bool:
        """Whether messages of the stream are wanted now; while pages are read they wait."""
        return self._phase in (_Phase.OPENING, _Phase.PROVING, _Phase.FOLLOWING)

    @property
    def due_at(self) -> float | None:
        """When `tick` is wanted; None while only an answer can move things on."""
        match self._phase:
            case _Phase.PAUSED:
                return self._due_at
            case _Phase.LISTING:
                return None
            case _Phase.OPENING:
                return self._silent_at(self._heard_at)
            case _Phase.PROVING:
                return self._heard_at + self._pace.answer_seconds
            case _Phase.FOLLOWING if self._asked_at is not None:
                return self._silent_at(self._asked_at)
            case _Phase.FOLLOWING:
                ask_at = self._heard_at + self._pace.ask_seconds
                return ask_at if self._hurried_at is None else min(ask_at, self._hurried_at)

    def start(self, now: float) -> list[Effect]:
        """The first request."""
        return self._proceed(now)

    def hurry(self, now: float) -> None:
        """Somebody knows that there is more, and waits for it: a stream that gives no sign of life soon is given up."""
        if self._hurried_at is None:
            self._hurried_at, self._hurries = now, 0

    def _silent_at(self, asked_at: float) -> float:
        """When a stream that was asked then is taken for silent."""
        answer_at = asked_at + self._pace.answer_seconds
        if self._hurried_at is None:
            return answer_at
        return min(answer_at, max(asked_at, self._hurried_at) + self._pace.hurry_seconds * 2.0 ** min(self._hurries, 30))

    def tick(self, now: float) -> list[Effect]:
        """Time has passed."""
        due_at = self.due_at
        if due_at is None or now < due_at:
            return []
        if self._phase is _Phase.PAUSED:
            return self._proceed(now)
        if self._phase is _Phase.FOLLOWING and self._asked_at is None:
            self._asked_at = now
            return [SendOnStream(self._stream, rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))]
        if self._phase is _Phase.PROVING:
            untold = f"it tells nothing of revision {self._proof[0].mod_revision} within {self._pace.answer_seconds:g} s"
            return self._list_anew(Break.SET_BACK, untold, now)
        asked_at = self._asked_at if self._phase is _Phase.FOLLOWING and self._asked_at is not None else self._heard_at
        self._hurries += self._hurried_at is not None
        return self._break(Break.SILENT, f"no message for {round(now - asked_at, 1):g} s after a request", now)

    def page_arrived(self, answer: Any, now: float) -> list[Effect]:
        """A RangeResponse to the FetchPage under way."""
        header, listing = answer.header, self._list
        listing.revision = listing.revision or header.revision
        if header.cluster_id != listing.cluster_id or header.revision < max(listing.revision, listing.revision_min):
            return self._list_anew(Break.SET_BACK, "while a list was read", now)
        listing.entries.extend(map(entry_of, answer.kvs))
        self._pages.arrived(len(answer.kvs), answer.ByteSize())
        if answer.more and answer.kvs:
            return [self._fetch()]
        self.revision, self._cluster_id = listing.revision, listing.cluster_id
        self.lists += 1
        self._list = _List()
        return [ListedAll(tuple(listing.entries), listing.revision), *self._follow(now)]

    def page_failed(self, failure: CallFailure, now: float) -> list[Effect]:
        """The FetchPage under way has no answer."""
        if failure.lost is not None:
            return self._list_anew(failure.lost, failure.message, now)
        self._pages.failed()
        return self._break(Break.LIST_FAILED, failure.message, now)

    def stream_message(self, stream: int, message: Any, now: float) -> list[Effect]:
        """A WatchResponse."""
        if not self._is_heard(stream):
            return []
        self._heard_at, self._asked_at, self._hurried_at = now, None, None
        if message.compact_revision and not self.RULE_COMPACTED_HISTORY_IS_LISTED:
            self.revision = message.compact_revision
            self._proof = (Deleted(b"", self.revision),)
            return self._break(Break.COMPACTED, "what was compacted is left out", now)
        if message.compact_revision:
            return self._list_anew(Break.COMPACTED, f"etcd keeps revisions from {message.compact_revision} on", now)
        if message.canceled:
            return self._break(Break.REFUSED, message.cancel_reason, now)
        if message.created:
            return self._created(message.header, now)
        return self._changed(message, now)

    def stream_ended(self, stream: int, failure: CallFailure, now: float) -> list[Effect]:
        """The stream is over, for whatever reason."""
        if not self._is_heard(stream):
            return []
        return self._break(Break.STREAM_ENDED, failure.message, now)

    def _is_heard(self, stream: int) -> bool:
        """Whether the stream is the one that is open: what comes late from one that was given up says nothing."""
        return self._is_open and stream == self._stream

    def _created(self, header: Any, now: float) -> list[Effect]:
        if not self._proof:
            self._phase = _Phase.LISTING
            self._list = _List(header.cluster_id, header.revision)
            return [self._fetch()]
        if header.cluster_id != self._cluster_id:
            found = f"cluster {header.cluster_id:x} after cluster {self._cluster_id:x}"
            return self._list_anew(Break.SET_BACK, found, now)
        if not self._proves:
            return self._follow(now)
        self._phase = _Phase.PROVING
        return []

    def _follow(self, now: float) -> list[Effect]:
        self._phase = _Phase.FOLLOWING
        self._opened_at = self._heard_at = now
        return [Resumed(self.revision)]

    def _changed(self, message: Any, now: float) -> list[Effect]:
        # What was delivered already is dropped: before etcd 3.5.22 a watch from a future revision could get old events.
        proving = self._phase is _Phase.PROVING
        held, first = self._held, self._proof[0].mod_revision if proving else self._next
        for event in message.events:
            pair = event.kv
            if pair.mod_revision >= first:
                held.append(Deleted(pair.key, pair.mod_revision) if event.type == _DELETE else entry_of(pair))
        if not held:
            return []
        complete = len(held)
        if message.fragment:
            newest = held[-1].mod_revision
            complete = next(i for i, change in enumerate(held) if change.mod_revision == newest)
            if not complete:
                return []
        if proving:
            return self._proved(complete, now)
        self._held = held[complete:]
        return [self._delivery(held[:complete])]

    def _proved(self, complete: int, now: float) -> list[Effect]:
        """What is told once more beside what was delivered."""
        ready, past = self._held[:complete], self._proof
        if tuple(ready[: len(past)]) != past[:complete]:
            told = f"what it tells from revision {past[0].mod_revision} to {self.revision} is not what was delivered"
            return self._list_anew(Break.SET_BACK, told, now)
        if complete < len(past):
            return []
        self._held = self._held[complete:]
        new = [change for change in ready if change.mod_revision >= self._next]
        effects = self._follow(now)
        return [*effects, self._delivery(new)] if new else effects

    def _delivery(self, changes: list[Change]) -> Changed:
        self.revision = changes[-1].mod_revision
        put = next((change for change in reversed(changes) if isinstance(change, Entry)), None)
        if put is not None:
            self._proof = tuple(change for change in changes if change.mod_revision >= put.mod_revision)
        elif self._proof:
            self._proof += tuple(changes)
        if len(self._proof) > _PROOF_CHANGES_MAX:
            self._proof = ()
        return Changed(tuple(changes), self.revision)

    def _list_anew(self, reason: Break, message: str, now: float) -> list[Effect]:
        self._proof = ()
        return self._break(reason, message, now)

    def _break(self, reason: Break, message: str, now: float) -> list[Effect]:
        """Give up what is under way, tell it, and go on at once or after a pause."""
        effects: list[Effect] = []
        if self._phase is _Phase.FOLLOWING and now - self._opened_at >= self._pace.pause_seconds_max:
            self._failures = 0
        # The stream behind a page without an answer stays: what happens meanwhile is told after the list.
        if reason is not Break.LIST_FAILED:
            effects.append(CloseStream(self._stream))
            self._is_open = False
            self._held = []
        self.breaks[reason] += 1
        effects.append(Broken(reason, message))
        self._failures += 1
        if self._failures == 1:
            return effects + self._proceed(now)
        # The exponent is bounded so that years of failures do not grow a number without end.
        pause = self._pace.pause_seconds_min * 2 ** min(self._failures - 2, 30)
        self._phase = _Phase.PAUSED
        self._due_at = now + min(pause, self._pace.pause_seconds_max)
        return effects

    @property
    def _next(self) -> int:
        """The first revision that is still to come."""
        return self.revision + self.RULE_RESUMES_BEHIND_THE_LAST

    @property
    def _proves(self) -> bool:
        # Who leaves out the list after a compaction, as a planted bug does, leaves out the one after a failed proof too.
        return self.RULE_COMPACTED_HISTORY_IS_LISTED

    def _proceed(self, now: float) -> list[Effect]:
        """The next request: a page where a list is under way, else a stream."""
        if self._is_open:
            self._phase = _Phase.LISTING
            return [self._fetch()]
        self._phase = _Phase.OPENING
        self._heard_at = now
        self._stream += 1
        self._is_open = True
        # 0 is the present.
        start = 0 if not self._proof else self._proof[0].mod_revision if self._proves else self._next
        create = rpc.WatchCreateRequest(
            key=self._prefix, range_end=self._range_end, start_revision=start, progress_notify=True, fragment=True
        )
        return [OpenStream(self._stream, rpc.WatchRequest(create_request=create))]

    def _fetch(self) -> FetchPage:
        listing = self._list
        request = rpc.RangeRequest(
            key=listing.entries[-1].key + b"\0" if listing.entries else self._prefix,
            range_end=self._range_end,
            limit=self._pages.wanted,
            revision=listing.revision,
        )
        return FetchPage(request, self._pace.page_seconds_max)
