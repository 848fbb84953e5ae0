"""A replica that the others reach elsewhere than where it listens."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.replica.clusters import SmallCluster

ADVERTISED = "replica-0.rayched.example:7420"


@pytest.mark.cluster
def test_the_leader_is_named_by_its_advertised_address_and_not_by_where_it_listens(tmp_path: Path) -> None:
    with SmallCluster(tmp_path, replicas=1, options=["--advertise-address", ADVERTISED]) as cluster:
        assert cluster.client.leader().address == ADVERTISED
        with urllib.request.urlopen(f"http://{cluster.local.replicas[0].http_address}/statusz", timeout=10) as answer:
            status = answer.read().decode()
        assert f"at {ADVERTISED}, epoch" in status
        assert f"API: {cluster.local.addresses[0]}\n" in status
