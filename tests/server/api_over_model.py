"""A Creator with its admission over a hub and a model of etcd, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rayched.api.kinds import AnyObject, of_message, wrap
from rayched.server.admission.admission import Admission
from rayched.server.admission.creation import Creator
from rayched.server.admission.submissions import Creation
from rayched.server.errors import ApiFailure
from rayched.server.objects import Objects
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.codec import encode
from rayched.store.entries import Entry, Page
from rayched.store.errors import Compacted
from rayched.store.keys import Keys
from rayched.store.space import SpaceGate
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import Object
from tests.server.objects import a_namespace
from tests.server.test_creation_in_a_namespace import Store

KEYS = Keys()


class ModelOfStore(Store):
    """With the calls that read."""

    compacted = 0
    """History below is gone."""

    async def get(self, key: bytes) -> Entry | None:
        self.reads += 1
        return self.model.now.get(key)

    async def list_all(self, prefix: bytes) -> Page:
        self.reads += 1
        return Page(
            tuple(entry for key, entry in sorted(self.model.now.items()) if key.startswith(prefix)), self.model.revision, None
        )

    async def list_page(self, prefix: bytes, *, limit: int, revision: int) -> Page:
        self.reads += 1
        if revision < self.compacted:
            raise Compacted("gone", self.compacted)
        state: dict[bytes, Entry] = {}
        for changes in self.model.history[:revision]:
            for change in changes:
                state.pop(change.key, None)
                if isinstance(change, Entry):
                    state[change.key] = change
        return Page(tuple(entry for key, entry in sorted(state.items()) if key.startswith(prefix))[:limit], revision, None)


class ApiOverModel:
    """The hub knows what was stored at first, and what it is shown."""

    def __init__(self, *stored: AnyObject, is_ready: bool = True) -> None:
        self.store = ModelOfStore()
        self.hub = WatchHub(KEYS.parse, EventEncoder())
        for message in (a_namespace("default"), *stored):
            self.put(message)
        self.hub.listed(list(self.store.model.now.values()), self.store.model.revision)
        self.ready = asyncio.Event()
        if is_ready:
            self.ready.set()
        self.gate = SpaceGate()
        self.objects = Objects(self.store, KEYS, self.gate)  # type: ignore[arg-type]
        self.admission = Admission(self.hub, self.objects, self.ready)
        self.creator = Creator(self.objects, self.admission)

    def key_of(self, message: AnyObject) -> bytes:
        metadata = message.metadata
        return KEYS.object_key(of_message(message), metadata.namespace, metadata.name)

    def put(self, message: AnyObject) -> int:
        return self.store.model.put(self.key_of(message), encode(wrap(message)))

    def create(self, *messages: AnyObject, dry_run: bool = False) -> list[Creation]:
        return asyncio.run(self.creator.create([wrap(message) for message in messages], dry_run))

    def create_many(self, *messages: AnyObject) -> list[Creation]:
        return asyncio.run(self.creator.create_many([wrap(message).SerializeToString() for message in messages]))

    def stored(self, message: AnyObject) -> Object | None:
        entry = self.store.model.now.get(self.key_of(message))
        return None if entry is None else Stored.FromString(entry.value).object


def codes(results: Sequence[Creation]) -> list[str]:
    return [result.code.name if isinstance(result, ApiFailure) else "OK" for result in results]
