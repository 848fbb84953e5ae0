"""etcd's history for one who watches from the past, where etcd tells more than it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from leader.etcd_shim import kv, rpc
from rayched.api.kinds import POD
from rayched.server.watching.history import History
from rayched.store.keys import Keys

KEYS = Keys()


def put(name: str, revision: int) -> Any:
    key = KEYS.object_key(POD, "default", name)
    return kv.Event(type=kv.Event.PUT, kv=kv.KeyValue(key=key, create_revision=revision, mod_revision=revision))


class _Kept:
    async def Range(self, request: Any, timeout: float) -> Any:
        assert request.revision == 5
        return rpc.RangeResponse()


class _TellsMore(History):
    """As etcd before 3.5.22 may: events of the revision before the first one wanted, too."""

    async def _messages(self, start_revision: int) -> AsyncIterator[Any]:  # type: ignore[override]
        assert start_revision == 6
        yield rpc.WatchResponse(events=[put("old", 4), put("older", 5)])
        yield rpc.WatchResponse(events=[put("seen", 5), put("new", 6)])


def test_what_the_watcher_has_seen_is_not_told_again_whatever_etcd_sends() -> None:
    async def run() -> list[tuple[str, int]]:
        async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
            history = _TellsMore(channel, KEYS, KEYS.cluster_prefix)
            history._kv = _Kept()
            return [(change.key.name, change.revision) async for changes in history.after(5) for change in changes]

    assert asyncio.run(run()) == [("new", 6)]
