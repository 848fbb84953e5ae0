"""etcd beside a run: which revision is current, and which keys were written between two of them."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any, Final

from leader.channel import open_channel
from leader.etcd_shim import rpc

_SECONDS_MAX: Final = 30.0


class EtcdHistory:
    """A context manager; `root` as `--etcd-root` has it."""

    def __init__(self, endpoints: Sequence[str], root: str = "/rayched") -> None:
        self.endpoints = endpoints
        self._channel = open_channel(endpoints)
        self._kv, self._watch = rpc.KVStub(self._channel), rpc.WatchStub(self._channel)
        self._prefix = f"{root}/".encode()

    def __enter__(self) -> EtcdHistory:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def revision(self) -> int:
        """The current one, as all members agree on it."""
        answer = self._kv.Range(rpc.RangeRequest(key=self._prefix, keys_only=True), timeout=_SECONDS_MAX)
        found: int = answer.header.revision
        return found

    def written(self, after: int, until: int) -> list[str]:
        """Keys below the root, in the order of the writes behind revision `after` up to `until`, deleted ones too."""
        end = self._prefix[:-1] + bytes([self._prefix[-1] + 1])
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests.put(
            rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=self._prefix, range_end=end, start_revision=after + 1))
        )
        found: list[str] = []
        call = self._watch.Watch(iter(requests.get, None), timeout=_SECONDS_MAX)
        try:
            for answer in call:
                if answer.compact_revision:
                    raise RuntimeError(f"etcd was compacted to {answer.compact_revision}, and {after} was still to be read")
                # A revision is never split over two answers.
                found += [one.kv.key.decode(errors="replace") for one in answer.events if one.kv.mod_revision <= until]
                if answer.events and answer.events[-1].kv.mod_revision >= until:
                    return found
        finally:
            requests.put(None)
            call.cancel()
        raise RuntimeError(f"etcd ended the watch before revision {until}")
