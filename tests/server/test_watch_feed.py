"""Those who follow the cluster beside the hub, by a feed without etcd: its loop is the test's, its deliveries come by hand."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import grpc

from rayched.api.kinds import NODE, POD, wrap
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.followers import WatchSubscriber
from rayched.server.watching.selection import select
from rayched.server.watching.subscriptions import Loss, Lost
from rayched.server.watching.watch_feed import WatchFeed
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.codec import encode
from rayched.store.entries import Deleted, Entry
from rayched.store.keys import Keys, ObjectKey
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll
from tests.server.objects import a_node, a_pod
from tests.server.serving import until

KEYS = Keys()


def pod(number: int, revision: int) -> Entry:
    value = encode(wrap(a_pod(f"pod-{number}", namespace="default")))
    return Entry(KEYS.object_key(POD, "default", f"pod-{number}"), value, revision, revision)


def with_feed(work: Callable[[WatchFeed], Awaitable[None]], semaphore_taken: int = 0) -> None:
    """`semaphore_taken`: deliveries that the test carries over by itself."""

    async def run() -> None:
        # Nobody listens there, and nothing connects before the feed is started.
        channel = grpc.insecure_channel("127.0.0.1:1")
        feed = WatchFeed(channel, KEYS.cluster_prefix, WatchHub(KEYS.parse, EventEncoder()))
        for _ in range(semaphore_taken):
            feed._free.acquire()
        await work(feed)
        channel.close()

    asyncio.run(run())


async def taken(box: queue.SimpleQueue[Delivery]) -> Delivery:
    return await asyncio.to_thread(box.get, timeout=30.0)


def test_who_comes_late_is_told_the_present_state_and_then_what_all_are_told() -> None:
    async def work(feed: WatchFeed) -> None:
        early: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        late: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        nodes: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        first = feed.follow(KEYS.cluster_prefix, early.put)
        node = Entry(KEYS.object_key(NODE, "", "n"), encode(wrap(a_node("n"))), 2, 2)
        feed.deliver(ListedAll((node, pod(1, 1)), 5))
        listed = await taken(early)
        assert isinstance(listed, ListedAll)
        assert (set(listed.entries), listed.revision) == ({node, pod(1, 1)}, 5)
        feed.deliver(Changed((pod(2, 6), Deleted(pod(1, 1).key, 6)), 6))
        assert await taken(early) == Changed((pod(2, 6), Deleted(pod(1, 1).key, 6)), 6)
        second = feed.follow(KEYS.cluster_prefix, late.put)
        assert await taken(late) == ListedAll((node, pod(2, 6)), 6)
        third = feed.follow(KEYS.prefix(NODE), nodes.put)
        assert await taken(nodes) == ListedAll((node,), 6)
        feed.deliver(Changed((pod(3, 7),), 7))
        feed.deliver(Changed((Deleted(node.key, 8), pod(4, 8)), 8))
        for box in (early, late):
            assert [await taken(box), await taken(box)] == [
                Changed((pod(3, 7),), 7),
                Changed((Deleted(node.key, 8), pod(4, 8)), 8),
            ]
        assert await taken(nodes) == Changed((Deleted(node.key, 8),), 8)
        for one in (first, second, third):
            await asyncio.to_thread(one.stop)
            assert not one.alive

    with_feed(work)


def test_what_one_decodes_the_others_need_not() -> None:
    async def work(feed: WatchFeed) -> None:
        assert feed.decode(pod(1, 3)) is feed.decode(pod(1, 3))
        assert feed.decode(pod(1, 3)).pod.metadata.resource_version == "3"

    with_feed(work)


def test_a_follower_that_fails_is_not_alive_and_harms_nobody() -> None:
    async def work(feed: WatchFeed) -> None:
        box: queue.SimpleQueue[Delivery] = queue.SimpleQueue()

        def fail(_: Delivery) -> None:
            raise RuntimeError("a bug")

        failing, other = feed.follow(KEYS.cluster_prefix, fail), feed.follow(KEYS.cluster_prefix, box.put)
        feed.deliver(ListedAll((), 5))
        assert await taken(box) == ListedAll((), 5)
        while failing.alive:
            await asyncio.sleep(0.01)
        feed.deliver(Changed((pod(1, 6),), 6))
        assert await taken(box) == Changed((pod(1, 6),), 6)
        await asyncio.to_thread(other.stop)

    with_feed(work)


def test_a_hub_that_fails_at_a_delivery_takes_no_further_one_and_all_who_read_it_are_told() -> None:
    async def work(feed: WatchFeed) -> None:
        feed._take(ListedAll((pod(1, 1),), 5))
        follower = feed.follow(KEYS.cluster_prefix, lambda _: None)
        await asyncio.sleep(0)
        subscription = feed.hub.subscribe(select("Pod", "", "", ""), 5, lambda: None)
        assert subscription is not None and feed.listed.is_set() and not feed.failed.is_set()
        parse = feed.hub._parse

        def broken(key: bytes) -> ObjectKey | None:
            if key == pod(2, 6).key:
                raise RuntimeError("a bug")
            return parse(key)

        feed.hub._parse = broken
        feed._take(Changed((pod(2, 6),), 6))
        feed._take(Changed((pod(3, 7),), 7))
        assert feed.failed.is_set() and feed.hub.revision == 5 and feed.hub.n_objects == 1
        assert subscription.read() == Lost(Loss.FAILED, 5)
        while follower.alive:
            await asyncio.sleep(0.01)

    with_feed(work, semaphore_taken=3)


def test_whoever_follows_a_feed_that_has_ended_is_not_alive() -> None:
    async def work(feed: WatchFeed) -> None:
        before = feed.follow(KEYS.cluster_prefix, lambda _: None)
        await asyncio.sleep(0)
        await feed.stop()
        after = feed.follow(KEYS.cluster_prefix, lambda _: None)
        while before.alive or after.alive:
            await asyncio.sleep(0.01)

    with_feed(work)


@contextmanager
def held(handled: list[Delivery], asked: threading.Semaphore) -> Iterator[tuple[WatchSubscriber, threading.Event]]:
    """A follower that takes nothing until it is let."""
    free = threading.Event()

    def handle(delivery: Delivery) -> None:
        assert free.wait(30.0)
        handled.append(delivery)

    follower = WatchSubscriber(None, handle, lambda _: asked.release(), lambda _: None, changes_max=2)
    yield follower, free
    free.set()
    follower.stop()


def test_one_who_is_far_behind_is_listed_to_anew_and_is_told_nothing_between() -> None:
    handled: list[Delivery] = []
    asked = threading.Semaphore(0)
    with held(handled, asked) as (follower, free):
        assert asked.acquire(timeout=30.0)
        follower.offer(ListedAll((), 1))
        for revision in range(2, 9):
            follower.offer(Changed((pod(revision, revision),), revision))
        free.set()
        assert asked.acquire(timeout=30.0)
        follower.offer(Changed((pod(9, 9),), 9))
        follower.offer(ListedAll((pod(9, 9),), 9))
        follower.offer(Changed((pod(10, 10),), 10))
        until(lambda: len(handled) == 6, 30.0)
    revisions = [(type(one).__name__, one.revision) for one in handled if isinstance(one, ListedAll | Changed)]
    assert revisions == [("ListedAll", 1), ("Changed", 2), ("Changed", 3), ("Changed", 4), ("ListedAll", 9), ("Changed", 10)]
