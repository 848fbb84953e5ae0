"""Collection of signs of life of nodes that are gone.

Whoever deletes a node removes its heartbeat afterwards, in a request of its own. Where that one fails, or its author does, the
key would stay for good. A key goes only while its node is not there and the key is as it was read, under the leader's epoch: a
node that comes back writes both in one transaction.
"""

from __future__ import annotations

import logging
from typing import Final

from rayched.api.kinds import NODE
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.refusals import count_fenced_among
from rayched.store.transactions import Committed, Guard, GuardedDelete

log = logging.getLogger(__name__)


class HeartbeatGarbage:
    """A duty of the leader. Cost of a turn: the keys of all nodes and heartbeats, some 200 bytes a node."""

    name: Final = "heartbeat garbage"
    period_seconds: Final = 300.0

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def turn(self, store: StoreClient, epoch: int | None) -> None:
        """May raise StoreError."""
        if epoch is None:
            return
        prefix = self._keys.prefix(NODE)
        nodes = {entry.key for entry in store.list_all(prefix, keys_only=True).entries}
        writes = []
        for entry in store.list_all(self._keys.heartbeats_prefix, keys_only=True).entries:
            name = self._keys.node_of_heartbeat(entry.key)
            if name is not None and (node_key := self._keys.object_key(NODE, "", name)) not in nodes:
                writes.append(GuardedDelete(entry.key, entry.mod_revision, also=((node_key, 0),)))
        if writes:
            outcomes = store.commit(Guard(self._keys.epoch, epoch), writes)
            count_fenced_among("garbage", outcomes)
            log.info("%d heartbeats of nodes removed that are gone", sum(isinstance(one, Committed) for one in outcomes))
