"""The store and the election over TLS, against a real etcd that wants a certificate."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from leader.channel import SecureEndpoints, open_aio_channel, open_channel
from leader.config import FAST, ElectionConfig
from leader.elector import Elector
from leader.etcd_lock import EtcdLock
from leader.lock import Callbacks
from rayched.pki.authority import Authority
from rayched.pki.tls_files import TlsFiles
from rayched.replica.etcd_wait import ask
from rayched.store.calls import Deadlines
from rayched.store.errors import StoreUnavailable
from rayched.store.io.async_client import AsyncStoreClient
from rayched.store.io.client import StoreClient
from tests.etcd_tls import SERVER_NAME, a_client_of_etcd, etcd_over_tls, etcd_tls
from tests.pki.made import an_authority
from tests.server.serving import until

pytestmark = pytest.mark.cluster


@dataclass
class SecureEtcd:
    endpoint: str
    authority: Authority
    directory: Path

    def files(self, name: str = "rayched") -> TlsFiles:
        return a_client_of_etcd(self.authority, self.directory / name)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureEtcd]:
    directory, authority = tmp_path_factory.mktemp("etcd"), an_authority()
    with etcd_over_tls(directory, authority) as endpoint:
        yield SecureEtcd(endpoint, authority, directory)


def test_the_store_reads_and_writes(etcd: SecureEtcd) -> None:
    with open_channel(SecureEndpoints([etcd.endpoint], etcd_tls(etcd.files()))) as channel:
        store = StoreClient(channel)
        revision = store.put(b"/a", b"1")
        found = store.get(b"/a")
        assert found is not None and (found.value, found.mod_revision) == (b"1", revision)
        assert store.status().database_bytes > 0

    async def read() -> bytes:
        async with open_aio_channel(SecureEndpoints([etcd.endpoint], etcd_tls(etcd.files()))) as channel:
            entry = await AsyncStoreClient(channel).get(b"/a")
            assert entry is not None
            return entry.value

    assert asyncio.run(read()) == b"1"


@pytest.mark.parametrize("case", ["no certificate", "another authority", "no TLS", "another name"])
def test_etcd_is_reached_with_its_own_certificates_alone(etcd: SecureEtcd, tmp_path: Path, case: str) -> None:
    files = etcd.files()
    stranger = a_client_of_etcd(an_authority(), tmp_path / "stranger")
    endpoints = {
        "no certificate": lambda: SecureEndpoints([etcd.endpoint], etcd_tls(files).__class__(str(files.ca))),
        "another authority": lambda: SecureEndpoints([etcd.endpoint], etcd_tls(stranger)),
        "no TLS": lambda: (etcd.endpoint.removeprefix("https://"),),
        "another name": lambda: SecureEndpoints([etcd.endpoint], etcd_tls(files, "elsewhere.example")),
    }[case]()
    with pytest.raises(StoreUnavailable):
        ask(endpoints, 1.0)
    ask(SecureEndpoints([etcd.endpoint], etcd_tls(files, SERVER_NAME)), 5.0)


@pytest.mark.row("B27")
def test_a_leader_goes_on_leading_while_its_certificate_is_replaced(etcd: SecureEtcd) -> None:
    """Of the election: the elector changes its channel between two renewals."""
    files, ended = etcd.files("leader"), threading.Event()
    epochs: list[int] = []
    lock = EtcdLock(SecureEndpoints([etcd.endpoint], etcd_tls(files)), "/record", "/epoch")

    def work(epoch: int) -> None:
        epochs.append(epoch)
        ended.wait()

    elector = Elector(ElectionConfig.of(FAST, identity="me"), lock, Callbacks(work, ended.set))
    thread = threading.Thread(target=elector.run)
    thread.start()
    try:
        until(lambda: bool(epochs), 10.0)
        for _ in range(3):
            a_client_of_etcd(etcd.authority, files.key.parent)
            time.sleep(2.0)
        assert elector.epoch() == epochs[0] and len(epochs) == 1
        (member,) = lock._channel.members
        assert len(member._replaced) <= 3
    finally:
        elector.request_stop()
        thread.join(10)
    assert not thread.is_alive()


def test_reads_and_writes_go_on_while_files_are_replaced(etcd: SecureEtcd) -> None:
    files = etcd.files("busy")
    deadlines = Deadlines(patience_seconds=0.0)
    with open_channel(SecureEndpoints([etcd.endpoint], etcd_tls(files))) as channel:
        store = StoreClient(channel, deadlines)
        ends_at = time.monotonic() + 5.0
        number = 0
        while time.monotonic() < ends_at:
            if number % 100 == 0:
                a_client_of_etcd(etcd.authority, files.key.parent)
            store.put(b"/busy", b"%d" % number)
            number += 1
        assert number > 100
        found = store.get(b"/busy")
        assert found is not None and found.value == b"%d" % (number - 1)
