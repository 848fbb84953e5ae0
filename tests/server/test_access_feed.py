"""What a change below access/ costs a replica: the tables that it is about, and the streams that it may end. No etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest

from rayched.access.authorizing import Authorizer
from rayched.access.bindings import RoleBinding
from rayched.access.revocations import RevokedCaller
from rayched.access.tokens import BearerToken, hash_of
from rayched.server.access_feed import JUDGE_SECONDS, AccessFeed
from rayched.server.call_guard import CallGuard
from rayched.server.edge.caller import Caller
from rayched.server.errors import ApiFailure, Code
from rayched.store.entries import Deleted, Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.v1.access_pb2 import Revocation
from tests.access.matrix import IDENTITIES, binding, bindings, identity, table_of

KEYS = Keys("/fed")


class CountingGuard(CallGuard):
    """Tells how often which open streams were judged."""

    def __init__(self) -> None:
        super().__init__(Authorizer(table_of(*bindings())), clock=lambda: 50.0)
        self.judged: list[str] = []

    def judge_open_streams(self, *, of_tokens_alone: bool = False) -> None:
        self.judged.append("tokens" if of_tokens_alone else "all")
        super().judge_open_streams(of_tokens_alone=of_tokens_alone)


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    """To nobody: the feed is told by the test."""
    with grpc.insecure_channel("127.0.0.1:1") as found:
        yield found


def a_token(id: str) -> BearerToken:
    return BearerToken(id, hash_of("s" * 43), identity("viewer"), identity("viewer"), "", 0.0, 100.0)


def made(token: BearerToken, revision: int) -> Entry:
    return Entry(KEYS.token(token.id), token.stored(), revision, revision)


def a_binding(one: RoleBinding, revision: int) -> Entry:
    return Entry(KEYS.binding(one.id), one.to_message().SerializeToString(deterministic=True), revision, revision)


def a_revocation(revision: int) -> Entry:
    id = RevokedCaller.of("", IDENTITIES["viewer"]).id
    message = Revocation(id=id, identity=IDENTITIES["viewer"])
    return Entry(KEYS.revoked_prefix + id.encode(), message.SerializeToString(), revision, revision)


def all_there_is() -> ListedAll:
    tokens = [made(a_token(id), 1) for id in ("aaaaaaaa", "bbbbbbbb", "cccccccc")]
    return ListedAll((*tokens, *(a_binding(one, 1) for one in bindings())), 1)


async def judging() -> None:
    await asyncio.sleep(3 * JUDGE_SECONDS)


def test_a_change_is_read_into_the_table_that_it_is_about_and_judged_with_others_at_once(channel: grpc.Channel) -> None:
    async def play() -> None:
        guard = CountingGuard()
        feed = AccessFeed(channel, KEYS, guard, asyncio.Event())
        feed.deliver(all_there_is())
        await judging()
        assert guard.judged == ["all"]
        table, refused = guard.authorizer.table, guard.revoked._revoked
        version = table.version

        for number in range(100):
            feed.deliver(Changed((made(a_token(f"ddddddd{chr(97 + number % 26)}"), number + 2),), number + 2))
        await judging()
        assert guard.tokens.count(50.0) == 29
        assert guard.judged == ["all"], "a token that was made ends no stream"

        for id in ("bbbbbbbb", "cccccccc"):
            feed.deliver(Changed((Deleted(KEYS.token(id), 200),), 200))
        assert guard.tokens.count(50.0) == 27
        await judging()
        assert guard.judged == ["all", "tokens"]
        assert table.version == version and guard.revoked._revoked is refused, "they have not changed"

        by_id = guard.tokens._by_id
        feed.deliver(Changed((Deleted(KEYS.binding(binding("nobody", "viewer", "team-a").id), 201),), 201))
        feed.deliver(Changed((a_revocation(202),), 202))
        feed.deliver(Changed((Deleted(KEYS.token("aaaaaaaa"), 203),), 203))
        assert table.version == version + 1 and IDENTITIES["viewer"] in guard.revoked and guard.tokens._by_id is not by_id
        await judging()
        assert guard.judged == ["all", "tokens", "all"]

    asyncio.run(play())


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize(
    "change", [Deleted(KEYS.token("aaaaaaaa"), 2), Entry(KEYS.token("aaaaaaaa"), b"", 1, 2), a_revocation(2)], ids=str
)
def test_an_open_stream_ends_soon_after_what_ends_it(channel: grpc.Channel, change: Entry | Deleted, shown: bool) -> None:
    async def play() -> ApiFailure | None:
        guard = CountingGuard()
        feed = AccessFeed(channel, KEYS, guard, asyncio.Event())
        feed.deliver(all_there_is())
        await judging()
        caller = Caller(identity("viewer"), token=a_token("aaaaaaaa") if shown else None)

        async def stream() -> None:
            with guard.going_on(caller, "Watch.Watch"):
                await asyncio.Event().wait()

        task = asyncio.create_task(stream())
        await asyncio.sleep(0)
        feed.deliver(Changed((change,), 2))
        done, _ = await asyncio.wait((task,), timeout=1.0)
        if not done:
            task.cancel()
            return None
        failure = task.exception()
        assert isinstance(failure, ApiFailure)
        return failure

    failure = asyncio.run(play())
    if shown or change.key.startswith(KEYS.revoked_prefix):
        assert failure is not None and failure.code is Code.UNAUTHENTICATED
    else:
        assert failure is None, "who shows a certificate needs no token"


def test_a_fault_in_judging_ends_the_server(channel: grpc.Channel) -> None:
    class Faulty(CallGuard):
        def judge_open_streams(self, *, of_tokens_alone: bool = False) -> None:
            raise RuntimeError("a bug")

    async def play() -> None:
        failed = asyncio.Event()
        feed = AccessFeed(channel, KEYS, Faulty(Authorizer(table_of(*bindings()))), failed)
        feed.deliver(all_there_is())
        await asyncio.wait_for(failed.wait(), 5.0)

    asyncio.run(play())
