"""The watch of the two keys over a real etcd: what is told at its beginning, what follows, and its end."""

from __future__ import annotations

import pytest

from leader import events as ev
from leader.channel import open_channel
from leader.etcd_requests import LockKeys
from leader.etcd_shim import rpc
from leader.etcd_watch import KeyWatch
from leader.record import Epoch, LeaderRecord
from rayched.replica.etcd.etcd_server import EtcdServer
from tests.leader.members import eventually

pytestmark = pytest.mark.cluster


def state_of(told: list[ev.Event]) -> tuple[LeaderRecord | None, Epoch | None]:
    """What whoever believes each event holds for there; both keys may also be read anew."""
    record: LeaderRecord | None = None
    epoch: Epoch | None = None
    for event in list(told):
        match event:
            case ev.Listed(view):
                record = view.record.record if view.record else None
                epoch = view.epoch.epoch if view.epoch else None
            case ev.RecordChanged(found):
                record = found.record if found else None
            case ev.EpochChanged(found):
                epoch = found.epoch if found else None
    return record, epoch


def test_both_keys_are_told_as_they_are_and_as_they_change_until_the_end(etcd: EtcdServer, etcd_root: str) -> None:
    keys = LockKeys(f"{etcd_root}/record".encode(), f"{etcd_root}/epoch".encode())
    told: list[ev.Event] = []
    with open_channel([etcd.endpoint]) as channel:
        store = rpc.KVStub(channel)
        watch = KeyWatch(channel, keys, told.append)
        assert watch._thread.daemon
        eventually(lambda: told)
        assert isinstance(told[0], ev.Listed) and not told[0].went_back and state_of(told) == (None, None)
        record, epoch = LeaderRecord("a"), Epoch(3, "a")
        store.Put(rpc.PutRequest(key=keys.record, value=record.to_json()), timeout=5)
        eventually(lambda: state_of(told) == (record, None))
        store.Put(rpc.PutRequest(key=keys.epoch, value=epoch.to_json()), timeout=5)
        eventually(lambda: state_of(told) == (record, epoch))
        store.DeleteRange(rpc.DeleteRangeRequest(key=keys.record), timeout=5)
        eventually(lambda: state_of(told) == (None, epoch))
        watch.close()
        eventually(lambda: not watch._thread.is_alive())
        n_told = len(told)
        store.Put(rpc.PutRequest(key=keys.record, value=record.to_json()), timeout=5)
    assert len(told) == n_told
