"""The core of list+watch against a model of etcd that keeps its whole history and is as slow and plain as possible.

A random script of writes, breaks, fragments, compactions, losses of history and passing time is played. Every delivery is
compared with the model's history; after the script the world heals, and the consumer's map has to equal the model's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leader.etcd_shim import kv, rpc
from rayched.store.entries import Deleted
from rayched.store.list_watch import ListWatchCore
from rayched.store.list_watch_effects import (
    Break,
    Broken,
    CallFailure,
    Changed,
    CloseStream,
    FetchPage,
    ListedAll,
    OpenStream,
    Resumed,
    SendOnStream,
)

KEYS = [b"/a/1", b"/a/2", b"/a/3", b"/a/4", b"/b/1"]

Write = tuple[bytes, bytes | None]


@dataclass
class ModelEtcd:
    """history[i] is what revision i + 1 wrote; revision 1 wrote nothing."""

    history: list[list[Write]] = field(default_factory=lambda: [[]])
    compacted: int = 0
    cluster: int = 77
    puts: int = 0

    @property
    def revision(self) -> int:
        return len(self.history)

    def header(self) -> Any:
        return rpc.ResponseHeader(cluster_id=self.cluster, revision=self.revision)

    def state(self, revision: int) -> dict[bytes, tuple[bytes, int, int]]:
        """key → value, creation, last change; by replaying everything."""
        found: dict[bytes, tuple[bytes, int, int]] = {}
        for number, writes in enumerate(self.history[:revision], start=1):
            for key, value in writes:
                if value is None:
                    del found[key]
                else:
                    found[key] = (value, found[key][1] if key in found else number, number)
        return {key: found[key] for key in sorted(found) if key.startswith(b"/a/")}

    def events(self, after: int, until: int) -> list[tuple[bytes, bytes | None, int]]:
        return [
            (key, value, number)
            for number in range(after + 1, until + 1)
            for key, value in self.history[number - 1]
            if key.startswith(b"/a/")
        ]

    def write(self, writes: dict[bytes, bytes | None]) -> None:
        """No two puts are the same, as those of objects with uids and times."""
        there = {key for key, *_ in self.state(self.revision).items()} | self._outside()
        possible: list[Write] = []
        for key, value in writes.items():
            if value is not None:
                self.puts += 1
                possible.append((key, value + b"%d" % self.puts))
            elif key in there:
                possible.append((key, None))
        if possible:
            self.history.append(possible)

    def _outside(self) -> set[bytes]:
        last = {key: value for writes in self.history for key, value in writes if not key.startswith(b"/a/")}
        return {key for key, value in last.items() if value is not None}

    def answer_range(self, request: Any) -> Any:
        revision = request.revision or self.revision
        if revision <= self.compacted and revision < self.revision:
            return CallFailure("compacted", Break.COMPACTED)
        if revision > self.revision:
            return CallFailure("future revision", Break.SET_BACK)
        matching = [(key, entry) for key, entry in self.state(revision).items() if request.key <= key < request.range_end]
        answer = rpc.RangeResponse(header=self.header(), more=len(matching) > request.limit)
        for key, (value, created, changed) in matching[: request.limit]:
            answer.kvs.append(kv.KeyValue(key=key, value=value, create_revision=created, mod_revision=changed))
        return answer


@dataclass
class ModelStream:
    """The server's side of one watch: what it has sent and the core has not yet received."""

    number: int
    next_revision: int
    wire: list[Any]
    compacted: int
    """When it was opened: of that revision deletions are gone."""
    mute: bool = False
    broken: bool = False

    def send(self, etcd: ModelEtcd, revisions: int, fragment: int) -> None:
        if self.mute:
            return
        until = min(self.next_revision - 1 + revisions, etcd.revision)
        events = []
        for key, value, number in etcd.events(self.next_revision - 1, until):
            if value is None and number == self.compacted:
                continue
            pair = kv.KeyValue(key=key, mod_revision=number)
            if value is not None:
                created = etcd.state(number)[key][1]
                pair = kv.KeyValue(key=key, value=value, mod_revision=number, create_revision=created)
            events.append(kv.Event(type=kv.Event.DELETE if value is None else kv.Event.PUT, kv=pair))
        self.next_revision = max(self.next_revision, until + 1)
        for start in range(0, len(events), fragment):
            more = start + fragment < len(events)
            part = events[start : start + fragment]
            self.wire.append(rpc.WatchResponse(header=etcd.header(), events=part, fragment=more))


class World:
    """The core, its etcd, a consumer that believes every delivery, and the time."""

    def __init__(self) -> None:
        self.etcd = ModelEtcd()
        self.etcd.write(dict.fromkeys(KEYS, b"x"))
        self.core = ListWatchCore(b"/a/", page_size=2)
        self.now = 100.0
        self.page: Any = None
        self.stream: ModelStream | None = None
        self.left_streams: list[ModelStream] = []
        self.map: dict[bytes, tuple[bytes, int, int]] = {}
        self.revision: int | None = None
        self.take(self.core.start(self.now))

    def take(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case FetchPage(request=request):
                    assert self.page is None
                    self.page = request
                case OpenStream():
                    assert self.stream is None
                    self.stream = self.opened(effect)
                case SendOnStream(stream=number):
                    assert self.stream is not None and self.stream.number == number
                    if not self.stream.mute:
                        # On old versions of etcd such an answer tells a revision whose events are not sent yet.
                        self.stream.wire.append(rpc.WatchResponse(header=self.etcd.header(), watch_id=-1))
                case CloseStream(stream=number):
                    if self.stream is not None and self.stream.number == number:
                        self.left_streams.append(self.stream)
                        self.stream = None
                case ListedAll(entries=entries, revision=revision):
                    listed = {entry.key: (entry.value, entry.create_revision, entry.mod_revision) for entry in entries}
                    assert len(listed) == len(entries)
                    assert list(listed.items()) == list(self.etcd.state(revision).items())
                    self.map, self.revision = listed, revision
                case Changed(changes=changes, revision=revision):
                    self.believe(changes, revision)
                case Resumed(revision=revision):
                    assert revision == self.revision
                case Broken():
                    pass

    def opened(self, opening: OpenStream) -> ModelStream:
        create = opening.request.create_request
        assert create.fragment and opening.metadata == (("hasleader", "true"),)
        stream = ModelStream(opening.stream, create.start_revision or self.etcd.revision + 1, [], self.etcd.compacted)
        stream.wire.append(rpc.WatchResponse(header=self.etcd.header(), created=True))
        if stream.next_revision < self.etcd.compacted:
            stream.wire.append(rpc.WatchResponse(header=self.etcd.header(), canceled=True, compact_revision=self.etcd.compacted))
            stream.mute = True
        return stream

    def believe(self, changes: tuple[Any, ...], revision: int) -> None:
        assert self.revision is not None and revision > self.revision
        told = [(c.key, None if isinstance(c, Deleted) else c.value, c.mod_revision) for c in changes]
        assert told == self.etcd.events(self.revision, revision)
        for change in changes:
            if isinstance(change, Deleted):
                del self.map[change.key]
            else:
                self.map[change.key] = (change.value, change.create_revision, change.mod_revision)
        self.revision = revision

    def answer_page(self) -> None:
        if self.page is not None:
            request, self.page = self.page, None
            if self._end_of_stream():
                return
            answer = self.etcd.answer_range(request)
            failed = isinstance(answer, CallFailure)
            self.take((self.core.page_failed if failed else self.core.page_arrived)(answer, self.now))

    def fail_page(self) -> None:
        if self.page is not None:
            self.page = None
            if not self._end_of_stream():
                self.take(self.core.page_failed(CallFailure("no answer"), self.now))

    def send(self, revisions: int, fragment: int) -> None:
        if self.stream is not None:
            self.stream.send(self.etcd, revisions, fragment)

    def receive(self, count: int) -> None:
        for _ in range(count):
            if self.stream is not None and self.stream.wire and self.core.reads:
                message = self.stream.wire.pop(0)
                self.take(self.core.stream_message(self.stream.number, message, self.now))

    def break_stream(self) -> None:
        """It is noticed by whoever reads, or when a page has come."""
        if self.stream is not None:
            self.stream.broken = self.stream.mute = True
            if self.core.reads:
                self._end_of_stream()

    def _end_of_stream(self) -> bool:
        if self.stream is None or not self.stream.broken:
            return False
        stream, self.stream = self.stream, None
        self.left_streams.append(stream)
        self.take(self.core.stream_ended(stream.number, CallFailure("reset"), self.now))
        return True

    def receive_late(self) -> None:
        """What was under way on a stream that was given up."""
        for stream in self.left_streams:
            for message in stream.wire:
                self.take(self.core.stream_message(stream.number, message, self.now))
            self.take(self.core.stream_ended(stream.number, CallFailure("reset"), self.now))
        self.left_streams = []

    def mute(self) -> None:
        """The server hangs, the connection stays."""
        if self.stream is not None:
            self.stream.wire, self.stream.mute = [], True

    def catch_up(self) -> None:
        self.pass_time(1.0)
        self.send(100, 100)
        self.receive(100)
        for _ in range(6):
            self.answer_page()
        self.send(100, 100)
        self.receive(100)

    def compact(self, back: int) -> None:
        self.etcd.compacted = max(self.etcd.compacted, self.etcd.revision - back)

    def lose(self, revisions: int, restored: bool) -> None:
        """etcd comes back without its last revisions; `restored` as another cluster."""
        del self.etcd.history[max(1, self.etcd.revision - revisions) :]
        self.etcd.compacted = min(self.etcd.compacted, self.etcd.revision)
        self.etcd.cluster += restored
        self.left_streams = []
        if self.stream is not None:
            self.stream.wire = []
            self.break_stream()

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(200):
            due_at = self.core.due_at
            if due_at is None or due_at > until:
                break
            self.now = max(self.now, due_at)
            self.take(self.core.tick(self.now))
        self.now = until

    def heal(self) -> None:
        for _ in range(100):
            self.pass_time(2.0)
            self.answer_page()
            self.send(1000, 3)
            self.receive(100)
            stream = self.stream
            if self.core.following and stream and not stream.mute and stream.next_revision > self.etcd.revision:
                return
        raise AssertionError("the world did not heal")


values = st.sampled_from([b"x", b"y", None])
write = st.tuples(st.just("write"), st.dictionaries(st.sampled_from(KEYS), values, min_size=1, max_size=4))
send = st.tuples(st.just("send"), st.integers(1, 3), st.integers(1, 2))
receive = st.tuples(st.just("receive"), st.integers(1, 3))
lose = st.tuples(st.just("lose"), st.integers(1, 3), st.booleans())
usual = st.one_of(write, send, receive, st.tuples(st.just("answer_page")), st.tuples(st.just("catch_up")))
trouble = st.one_of(
    st.tuples(st.just("break_stream")),
    st.tuples(st.just("fail_page")),
    st.tuples(st.just("receive_late")),
    st.tuples(st.just("mute")),
    st.tuples(st.just("compact"), st.integers(0, 2)),
    lose,
    st.tuples(st.just("pass_time"), st.sampled_from([0.01, 0.2, 1.5, 5.0])),
)
steps = st.one_of(usual, usual, usual, trouble)
# Situations that take several steps to reach, so that random scripts begin in them often enough.
beginnings = st.sampled_from(
    [
        [],
        [("catch_up",)],
        [("catch_up",), ("write", {b"/a/1": b"y"}), ("write", {b"/a/2": b"y", b"/a/3": b"y"}), ("send", 2, 1), ("receive", 2)],
        [("receive", 1), ("answer_page",), ("write", {b"/a/1": None, b"/a/4": b"y"}), ("answer_page",)],
        [("catch_up",), ("write", {b"/a/1": b"y"}), ("catch_up",), ("lose", 1, False)],
        [("catch_up",), ("write", {b"/a/1": b"y"}), ("compact", 0), ("break_stream",)],
        [("catch_up",), ("write", {b"/a/1": b"y"}), ("catch_up",), ("lose", 1, False), *[("write", {b"/a/2": b"y"})] * 3],
        [("catch_up",), ("write", {b"/a/1": None}), ("catch_up",), ("lose", 2, False), *[("write", {b"/a/2": b"y"})] * 3],
        [("catch_up",), ("lose", 1, False), *[("write", {b"/a/2": b"y"})] * 3],
        [("receive", 1), ("answer_page",), ("write", {b"/b/1": b"y"}), ("lose", 1, False), *[("write", {b"/a/2": b"y"})] * 3],
        [("catch_up",), ("write", {b"/a/1": b"y"}), ("catch_up",), ("lose", 1, True), ("write", {b"/a/2": b"y"})],
        [
            ("receive", 1),
            ("answer_page",),
            ("lose", 1, True),
            ("write", {b"/a/1": b"y"}),
            ("write", {b"/a/2": b"y"}),
            ("answer_page",),
        ],
    ]
)


def play(script: list[tuple[Any, ...]]) -> World:
    world = World()
    for name, *arguments in script:
        if name == "write":
            world.etcd.write(*arguments)
        else:
            getattr(world, name)(*arguments)
    world.heal()
    return world


@settings(max_examples=300, deadline=None)
@given(beginnings, st.lists(steps, min_size=8, max_size=60))
def test_the_consumers_map_equals_the_store_after_healing_without_gap_duplicate_or_reordering(
    beginning: list[tuple[Any, ...]], script: list[tuple[Any, ...]]
) -> None:
    world = play(beginning + script)
    assert world.map == world.etcd.state(world.etcd.revision)
