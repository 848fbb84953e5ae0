"""What an etcd with users does not let its user do, told until it does. On the thread of whoever asks; read on any."""

from __future__ import annotations

import contextlib
import enum
import logging
from collections.abc import Iterator
from typing import Final

from rayched.store.errors import StoreDenied

log = logging.getLogger("rayched.space")


class EtcdAct(enum.Enum):
    """What keeps room in etcd. Some versions let nobody do it who has not the role root."""

    STATUS = "tell how full it is"
    MEMBERS = "name its members"
    COMPACT = "be compacted"
    DEFRAGMENT = "be defragmented"
    DISARM = "have its alarm disarmed"


_ROOT: Final = "give its user the role root"
WHAT_HELPS: Final = {
    EtcdAct.STATUS: f"watch etcd's own metrics, or {_ROOT}",
    EtcdAct.MEMBERS: _ROOT,
    EtcdAct.COMPACT: (
        "start etcd with --auto-compaction-mode=periodic --auto-compaction-retention=10m and replicas with --no-compact,"
        f" or {_ROOT}"
    ),
    EtcdAct.DEFRAGMENT: f"run `etcdctl defrag` as root, or {_ROOT}",
    EtcdAct.DISARM: f"run `etcdctl alarm disarm` as root, or {_ROOT}",
}


class EtcdDenials:
    """By act, as it was asked for last."""

    def __init__(self) -> None:
        self._denied: dict[EtcdAct, str] = {}

    @contextlib.contextmanager
    def asked(self, act: EtcdAct) -> Iterator[None]:
        """Around a call. Raises what the call raises."""
        try:
            yield
        except StoreDenied as error:
            is_new = act not in self._denied
            self._denied[act] = f"for this user etcd will not {act.value} ({error}): {WHAT_HELPS[act]}"
            if is_new:
                log.error("%s", self._denied[act])
            raise
        self._denied.pop(act, None)

    def problems(self) -> list[str]:
        """What people should know, one line each."""
        return list(self._denied.values())
