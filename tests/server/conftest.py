"""One running server for all tests of a module, over keys of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from rayched.client import Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.server.serving import Serving, serving

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def keys() -> Keys:
    return Keys(f"/server-{os.getpid()}-{next(_numbers)}")


@pytest.fixture(scope="module")
def api(etcd: EtcdServer, keys: Keys) -> Iterator[Serving]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], keys)) as server:
        yield server


@pytest.fixture(scope="module")
def client(api: Serving) -> Iterator[Client]:
    with Client(api.address, timeout_seconds=30.0) as found:
        yield found


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"object-{next(_numbers)}"
