"""What `up` is told is what its replicas are told."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from rayched.cli.cluster.cluster_options import ClusterOptions
from rayched.replica.settings import SettingsError
from rayched.server.edge.limits import EdgeLimits
from tests.deploy.commands import flags, parsed

SAID_OTHERWISE = {"etcd_endpoints", "data_dir"}
"""By whoever starts the replica."""
OTHER: dict[str, Any] = {
    "etcd_cafile": "/etcd/ca.crt",
    "etcd_certfile": "/etcd/tls.crt",
    "etcd_keyfile": "/etcd/tls.key",
    "etcd_server_name": "etcd.example",
    "insecure_etcd": True,
    "etcd_root": "/other",
    "election_profile": "kube",
    "takeover": "lease",
    "suspect_after": "off",
    "workers": "5",
    "config": Path("profiles.yaml"),
    "seed": 7,
    "pod_max_in_unschedulable_pods_duration": "90s",
    "head_of_line_limit": 3,
    "fair_namespaces": True,
    "node_monitor_period": 1.0,
    "node_monitor_grace_period": 75.0,
    "node_startup_grace_period": 9.0,
    "node_eviction_rate": 0.5,
    "secondary_node_eviction_rate": 0.25,
    "unhealthy_zone_threshold": 0.75,
    "large_cluster_size_threshold": 5,
    "orphan_quarantine": 11.0,
    "termination_margin": 13.0,
    "terminated_pod_gc_threshold": 15,
    "default_not_ready_toleration_seconds": 17,
    "default_unreachable_toleration_seconds": 19,
    "connections_max": 21,
    "connections_per_address": 23,
    "write_rate": 25.5,
    "read_rate": 27.5,
    "watch_rate": 29.5,
    "heartbeat_rate": 31.5,
    "store_bytes": 4096.5,
    "limit_loopback": True,
    "http_names": "metrics.example,other.example",
    "log_format": "json",
    "log_level": "debug",
}

TOGETHER = ("etcd_cafile", "etcd_certfile", "etcd_keyfile", "etcd_server_name")
"""None of them but the first means anything alone."""


def told(options: ClusterOptions) -> dict[str, Any]:
    """What a replica takes from the flags."""
    found = parsed(["replica", *options.flags()])
    return {one.name: found[one.name] for one in fields(ClusterOptions) if one.name not in SAID_OTHERWISE}


def test_every_option_is_tried() -> None:
    assert OTHER.keys() | SAID_OTHERWISE == {one.name for one in fields(ClusterOptions)}


def test_replicas_are_told_the_defaults_where_nothing_is_said() -> None:
    assert told(ClusterOptions()) == {name: getattr(ClusterOptions(), name) for name in OTHER}


@pytest.mark.parametrize("name", OTHER)
def test_replicas_are_told_each_option(name: str) -> None:
    given = replace(ClusterOptions(), **{each: OTHER[each] for each in (TOGETHER if name in TOGETHER else (name,))})
    assert told(given) == {each: getattr(given, each) for each in OTHER}


def test_limits_are_those_of_identities_and_of_loopback_where_that_is_asked_for() -> None:
    given = replace(ClusterOptions(), **OTHER)
    limits = given.settings()["edge"]
    assert limits.connections == 21 and limits.identity.connections == 23
    assert (limits.identity.rates.writes, limits.identity.rates.heartbeats) == (25.5, 31.5)
    assert (limits.identity.store_bytes, limits.store_bytes) == (4096.5, 3 * 4096.5)
    assert limits.loopback == limits.identity
    assert given.settings()["http_names"] == ("metrics.example", "other.example")
    assert ClusterOptions().settings()["edge"] == EdgeLimits()


def test_both_commands_have_all_of_them() -> None:
    shared = {f"--{one.name.replace('_', '-')}" for one in fields(ClusterOptions)}
    assert shared <= flags("up") and shared <= flags("replica")


@pytest.mark.parametrize("name", TOGETHER[1:])
def test_tls_of_etcd_needs_its_authorities(name: str) -> None:
    given = replace(ClusterOptions(), **{name: OTHER[name]})
    with pytest.raises(SettingsError, match=rf"^--{name.replace('_', '-')}: TLS needs --etcd-cafile as well$"):
        given.settings()


def test_paths_are_told_so_that_they_are_found_from_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "ca.crt") in replace(ClusterOptions(), etcd_cafile="ca.crt").flags()
