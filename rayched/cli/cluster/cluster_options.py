"""What every replica of a cluster is told: `replica` takes these options for itself, `up` for the replicas that it starts.

A command that has them is written with a parameter `shared: ClusterOptions` (option_groups.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from leader.tls_channel import EtcdTls
from rayched.api.well_known_taints import DefaultTolerations
from rayched.cli.cluster import edge_options, node_options
from rayched.cli.cluster.edge_options import DEFAULTS, RATES
from rayched.cli.cluster.node_options import NODES, TOLERATIONS
from rayched.controllers.node_settings import NodeSettings
from rayched.replica.settings import SUSPECT_AFTER, SettingsError, default_data_dir, split_endpoints, worker_count
from rayched.server.edge.limits import EdgeLimits


def _worker_count(text: str) -> str:
    try:
        worker_count(text)
    except SettingsError as error:
        raise typer.BadParameter(str(error).partition(": ")[2]) from None
    return text


EtcdEndpoints = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT,...", envvar="RAYCHED_ETCD_ENDPOINTS", help="An etcd to use; none: one of its own.", show_default=False
    ),
]
EtcdCa = Annotated[
    str,
    typer.Option("--etcd-cafile", metavar="FILE", help="Authorities of etcd's certificates: TLS.", show_default=False),
]
EtcdCertificate = Annotated[
    str, typer.Option("--etcd-certfile", metavar="FILE", help="The certificate that etcd is shown.", show_default=False)
]
EtcdKey = Annotated[str, typer.Option("--etcd-keyfile", metavar="FILE", help="Its key.", show_default=False)]
EtcdServerName = Annotated[
    str,
    typer.Option("--etcd-server-name", metavar="NAME", help="What all certificates of etcd name.", show_default=False),
]
InsecureEtcd = Annotated[
    bool, typer.Option("--insecure-etcd", help="No TLS to an etcd beyond loopback: who is on the way may do everything.")
]
EtcdRoot = Annotated[str, typer.Option(metavar="PREFIX", help="What the keys of this cluster begin with.")]
Workers = Annotated[
    str,
    typer.Option(
        metavar="N|auto",
        help="FilterScoreWorkers of the replica that leads; auto: one for each CPU that Ray, or this host, has free.",
        callback=_worker_count,
    ),
]
Profile = Annotated[str, typer.Option(metavar="fast|kube", help="Durations of the election: 2/1.3/0.4 s or 15/10/2 s.")]
Takeover = Annotated[
    str,
    typer.Option(
        metavar="evidence|lease",
        help="What a takeover waits for: evidence that the leader is gone, or the end of its lease. Profile fast: evidence;"
        " kube: lease.",
        show_default=False,
    ),
]
SuspectAfter = Annotated[
    str,
    typer.Option(
        metavar="DURATION|off",
        help=f"How long a leader that neither renews nor answers is waited for. Profile fast: {SUSPECT_AFTER}; kube: off.",
        show_default=False,
    ),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A KubeSchedulerConfiguration.", show_default=False)
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed for the random choice between nodes with equal scores.")]
UnschedulableMax = Annotated[
    str,
    typer.Option(
        "--pod-max-in-unschedulable-pods-duration",
        metavar="DURATION",
        help="A pod that no event wakes is tried again after this.",
    ),
]
HeadOfLineLimit = Annotated[
    int,
    typer.Option(
        "--head-of-line-limit",
        metavar="N",
        help="After N retries of others, try the pod that has waited longest, ignoring priority; 0: off, as kube-scheduler.",
        min=0,
    ),
]
FairNamespaces = Annotated[
    bool,
    typer.Option(
        "--fair-namespaces",
        help="While others of the same priority wait, a namespace has half of a second's attempts at most.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", envvar="RAYCHED_HOME", help="Directory of etcd's data and of logs.", show_default=False),
]
LogFormat = Annotated[str, typer.Option(metavar="text|json", help="Lines of the log: for people, or one JSON object each.")]
LogLevel = Annotated[
    str,
    typer.Option(
        metavar="debug|info|warning|error", envvar="RAYCHED_LOG_LEVEL", help="From which level on; debug has every attempt."
    ),
]


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """As they were given."""

    HEADINGS: ClassVar = {
        "etcd_endpoints": "etcd",
        "election_profile": "Leader election",
        "workers": "Scheduling",
        "node_monitor_period": "Lost nodes and ended pods",
        "connections_max": "Limits",
        "data_dir": "Files and logs",
    }

    etcd_endpoints: EtcdEndpoints = ""
    etcd_cafile: EtcdCa = ""
    etcd_certfile: EtcdCertificate = ""
    etcd_keyfile: EtcdKey = ""
    etcd_server_name: EtcdServerName = ""
    insecure_etcd: InsecureEtcd = False
    etcd_root: EtcdRoot = "/rayched"
    election_profile: Profile = "fast"
    takeover: Takeover = ""
    suspect_after: SuspectAfter = ""
    workers: Workers = "2"
    config: Config = None
    seed: Seed = 0
    pod_max_in_unschedulable_pods_duration: UnschedulableMax = "5m"
    head_of_line_limit: HeadOfLineLimit = 0
    fair_namespaces: FairNamespaces = False
    node_monitor_period: node_options.MonitorPeriod = NODES.node_monitor_period
    node_monitor_grace_period: node_options.MonitorGrace = NODES.node_monitor_grace_period
    node_startup_grace_period: node_options.StartupGrace = NODES.node_startup_grace_period
    node_eviction_rate: node_options.EvictionRate = NODES.node_eviction_rate
    secondary_node_eviction_rate: node_options.SecondaryEvictionRate = NODES.secondary_node_eviction_rate
    unhealthy_zone_threshold: node_options.UnhealthyZone = NODES.unhealthy_zone_threshold
    large_cluster_size_threshold: node_options.LargeCluster = NODES.large_cluster_size_threshold
    orphan_quarantine: node_options.OrphanQuarantine = NODES.orphan_quarantine
    termination_margin: node_options.TerminationMargin = NODES.termination_margin
    terminated_pod_gc_threshold: node_options.TerminatedPods = NODES.terminated_pod_gc_threshold
    default_not_ready_toleration_seconds: node_options.NotReadySeconds = TOLERATIONS.not_ready_seconds
    default_unreachable_toleration_seconds: node_options.UnreachableSeconds = TOLERATIONS.unreachable_seconds
    connections_max: edge_options.ConnectionsMax = DEFAULTS.connections
    connections_per_address: edge_options.ConnectionsPerAddress = DEFAULTS.identity.connections
    write_rate: edge_options.WriteRate = RATES.writes
    read_rate: edge_options.ReadRate = RATES.reads
    watch_rate: edge_options.WatchRate = RATES.watches
    heartbeat_rate: edge_options.HeartbeatRate = RATES.heartbeats
    store_bytes: edge_options.StoreBytes = DEFAULTS.identity.store_bytes
    limit_loopback: edge_options.LimitLoopback = False
    http_names: edge_options.HttpNames = ""
    data_dir: DataDir = None
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"

    def settings(self) -> dict[str, Any]:
        """As ReplicaSettings takes them. Raises NodeSettingsError and SettingsError."""
        return {
            "etcd_endpoints": split_endpoints(self.etcd_endpoints),
            "etcd_tls": self._etcd_tls(),
            "insecure_etcd": self.insecure_etcd,
            "root": self.etcd_root,
            "data_dir": self.data_dir or default_data_dir(),
            "election_profile": self.election_profile,
            "takeover": self.takeover,
            "suspect_after": self.suspect_after,
            "workers": worker_count(self.workers),
            "scheduler_configuration": self.config,
            "seed": self.seed,
            "pod_max_in_unschedulable_pods_duration": self.pod_max_in_unschedulable_pods_duration,
            "head_of_line_limit": self.head_of_line_limit,
            "fair_namespaces": self.fair_namespaces,
            "nodes": NodeSettings(**{one.name: getattr(self, one.name) for one in fields(NodeSettings)}),
            "tolerations": self._tolerations(),
            "edge": self._edge(),
            "http_names": split_endpoints(self.http_names),
            "log_format": self.log_format,
            "log_level": self.log_level.lower(),
        }

    def flags(self) -> list[str]:
        """The flags of `rayched replica` that say the same, but for where etcd and data are. Raises as `settings`."""
        settings = self.settings()
        return [
            *self._etcd_flags(),
            *("--etcd-root", self.etcd_root, "--election-profile", self.election_profile, "--workers", self.workers),
            *(("--takeover", self.takeover) if self.takeover else ()),
            *(("--suspect-after", self.suspect_after) if self.suspect_after else ()),
            *(("--config", str(self.config)) if self.config is not None else ()),
            *("--seed", str(self.seed), "--head-of-line-limit", str(self.head_of_line_limit)),
            *(("--fair-namespaces",) if self.fair_namespaces else ()),
            *("--pod-max-in-unschedulable-pods-duration", self.pod_max_in_unschedulable_pods_duration),
            *("--log-format", self.log_format, "--log-level", self.log_level),
            *node_options.node_flags(settings["nodes"], settings["tolerations"]),
            *self._edge_flags(),
        ]

    def _edge(self) -> EdgeLimits:
        return edge_options.edge_limits(
            self.connections_max,
            self.connections_per_address,
            self.write_rate,
            self.read_rate,
            self.watch_rate,
            self.heartbeat_rate,
            self.store_bytes,
            self.limit_loopback,
        )

    def _edge_flags(self) -> list[str]:
        return [
            *("--connections-max", str(self.connections_max), "--connections-per-address", str(self.connections_per_address)),
            *("--write-rate", str(self.write_rate), "--read-rate", str(self.read_rate)),
            *("--watch-rate", str(self.watch_rate), "--heartbeat-rate", str(self.heartbeat_rate)),
            *("--store-bytes", str(self.store_bytes)),
            *(("--limit-loopback",) if self.limit_loopback else ()),
            *(("--http-names", self.http_names) if self.http_names else ()),
        ]

    def _etcd_tls(self) -> EtcdTls | None:
        given = {
            "--etcd-certfile": self.etcd_certfile,
            "--etcd-keyfile": self.etcd_keyfile,
            "--etcd-server-name": self.etcd_server_name,
        }
        if not self.etcd_cafile:
            if any(given.values()):
                raise SettingsError(
                    f"{' and '.join(flag for flag, text in given.items() if text)}: TLS needs --etcd-cafile as well"
                )
            return None
        return EtcdTls(self.etcd_cafile, self.etcd_certfile, self.etcd_keyfile, self.etcd_server_name)

    def _etcd_flags(self) -> list[str]:
        tls = self._etcd_tls()
        if tls is None:
            return ["--insecure-etcd"] if self.insecure_etcd else []
        given = {"cafile": tls.ca, "certfile": tls.certificate, "keyfile": tls.key}
        paths = [word for part, path in given.items() if path for word in (f"--etcd-{part}", os.path.abspath(path))]
        return [*paths, *(("--etcd-server-name", tls.server_name) if tls.server_name else ())]

    def _tolerations(self) -> DefaultTolerations:
        return DefaultTolerations(self.default_not_ready_toleration_seconds, self.default_unreachable_toleration_seconds)
