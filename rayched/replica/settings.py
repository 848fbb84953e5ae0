"""Settings of a replica and of `up`: what the flags say, checked as a whole before anything starts."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leader.channel import SecureEndpoints
from leader.tls_channel import EtcdTls
from rayched.api.durations import duration_seconds
from rayched.api.well_known_taints import DefaultTolerations
from rayched.controllers.node_settings import NodeSettings
from rayched.pki.tls_files import TlsFiles
from rayched.replica.gateway_keeper import GatewayPlace
from rayched.server.edge.limits import EdgeLimits

DEFAULT_PORT = 7420
"""Of the first replica; those of `up` count on from here."""
HTTP_PORT_DISTANCE = 100
"""From the API's port to that of the HTTP endpoint, where none is given."""
GATEWAY_PORT_DISTANCE = 200
"""The same to that of the gateway beside it."""
NO_ADDRESS = "off"
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
TAKEOVERS = ("lease", "evidence")
SUSPECT_AFTER = "700ms"
"""In profile fast."""
SUSPECT_SECONDS_MIN = 0.3
SUSPECT_SECONDS_MAX = 60.0
NEVER = "off"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
WILDCARDS = ("0.0.0.0", "::", "*")
"""Every address of the host: good to listen on, but nobody can be sent there."""
AUDIT_FILE = "audit.jsonl"
STANDARD_OUTPUT = "-"
WORKERS_MAX = 64
WORKERS_AUTO = "auto"
"""As many as there is room for."""


class SettingsError(ValueError):
    """A setting that cannot be used: one line, naming flag, value and what is allowed."""


def default_data_dir() -> Path:
    """$RAYCHED_HOME, or rayched below the user's state directory."""
    if home := os.environ.get("RAYCHED_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rayched"


def new_identity() -> str:
    """Unique for each process: the host's name and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


def split_endpoints(text: str) -> tuple[str, ...]:
    """A comma-separated list, blanks ignored."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def worker_count(text: str) -> int | None:
    """What --workers says; None: WORKERS_AUTO. Raises SettingsError."""
    if text == WORKERS_AUTO:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) > WORKERS_MAX:
        raise SettingsError(f"--workers {text}: allowed are 0 to {WORKERS_MAX}, and {WORKERS_AUTO}")
    return int(text)


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The workers of one replica."""

    workers: int | None
    """None: as many as Ray has CPUs free for, from time to time."""
    cpus: int
    """That each takes away from what Ray has free."""


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """One replica. Addresses are host:port."""

    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    http_address: str = ""
    """Of health, metrics and status; "": loopback and the API's port + HTTP_PORT_DISTANCE; "off": none."""
    advertise_address: str = ""
    """Of the API, for the other replicas, which forward to the leader; "": where it listens."""
    etcd_endpoints: tuple[str, ...] = ()
    """Empty: an etcd of its own, below data_dir."""
    etcd_tls: EtcdTls | None = None
    """What these are reached with; None: there is no TLS."""
    root: str = "/rayched"
    data_dir: Path = field(default_factory=default_data_dir)
    identity: str = field(default_factory=new_identity)
    election_profile: str = "fast"
    takeover: str = ""
    """What a takeover waits for: "lease", its end alone; "evidence", that the leader is gone, as well; "": evidence in the
    profile fast, lease in kube."""
    suspect_after: str = ""
    """How long a leader that neither renews nor answers is waited for, as Go writes durations; "off": until its lease ends;
    "": SUSPECT_AFTER in the profile fast, off in kube."""
    workers: int | None = 2
    """None: as many as the Ray cluster has CPUs free for; in a Ray of its own one less than this process may use."""
    shard_always: bool = False
    """Send every evaluation to the workers, whatever it costs. For tests."""
    ray_address: str | None = None
    scheduler_configuration: Path | None = None
    seed: int = 0
    nodes: NodeSettings = field(default_factory=NodeSettings)
    tolerations: DefaultTolerations = field(default_factory=DefaultTolerations)
    compact: bool = True
    """Compact etcd every 5 minutes and keep 10, less the fuller it is; defragment and disarm it where that is safe."""
    log_format: str = "text"
    log_level: str = "info"
    insecure_loopback: bool = False
    """The API has no TLS, and its port is on loopback."""
    insecure_etcd: bool = False
    """An etcd beyond loopback is reached without TLS."""
    tls: TlsFiles | None = None
    """What the API is served with, and shown to other replicas; None: there is no TLS."""
    token_listen: str = ""
    """Where callers show bearer tokens in place of certificates; "": nowhere."""
    signer: Path | None = None
    """The authority's directory, with its key, by which this replica certifies keys; None: it does not."""
    client_deny_list: Path | None = None
    """Revoked certificates; None: there are none."""
    audit_log: str = ""
    """The file of the audit log; "": AUDIT_FILE below data_dir; STANDARD_OUTPUT; "off": there is none."""
    audit_strict: bool = False
    """Calls that change something are refused while the audit log cannot be written."""
    edge: EdgeLimits = field(default_factory=EdgeLimits)
    """How much the API takes."""
    gateway: GatewayPlace | None = None
    """The process beside it that serves the Kubernetes API; None: there is none."""
    http_names: tuple[str, ...] = ()
    """Of the HTTP endpoint, besides addresses, localhost and this host's own."""
    pod_max_in_unschedulable_pods_duration: str = "5m"
    """As Go writes durations."""
    head_of_line_limit: int = 0
    """0: pods are tried strictly in QueueSort's order."""
    fair_namespaces: bool = False
    """A namespace has half of a second's attempts at most while others of the same priority wait."""

    def __post_init__(self) -> None:
        self._check_address("--listen", self.listen)
        if self.insecure_loopback and self.tls is not None:
            raise SettingsError("--insecure-loopback: says that there are no certificates, and --tls-cert-file names one")
        if self.insecure_loopback and split_address("--listen", self.listen)[0] not in LOOPBACK:
            raise SettingsError(f"--insecure-loopback: --listen {self.listen} is no loopback address")
        self._check_advertised()
        if self.client_deny_list is not None and self.tls is None:
            raise SettingsError(
                f"--client-deny-list-file {self.client_deny_list}: goes with --tls-cert-file, --tls-private-key-file and"
                " --client-ca-file alone"
            )
        if self.token_listen:
            self._check_address("--token-listen", self.token_listen)
            if self.tls is None:
                raise SettingsError(
                    f"--token-listen {self.token_listen}: tokens go over TLS alone, with --tls-cert-file,"
                    " --tls-private-key-file and --client-ca-file"
                )
        if self.signer is not None and self.tls is None:
            raise SettingsError(
                f"--signer {self.signer}: certificates are signed for callers who show one, with --tls-cert-file,"
                " --tls-private-key-file and --client-ca-file"
            )
        if self.http_address not in ("", NO_ADDRESS):
            self._check_address("--http-address", self.http_address)
            host, _ = split_address("--http-address", self.http_address)
            if host not in LOOPBACK and self.tls is None:
                raise SettingsError(
                    f"--http-address {self.http_address}: {host} is no loopback address; others are served over TLS,"
                    " with --tls-cert-file"
                )
        if self.workers is not None and not 0 <= self.workers <= WORKERS_MAX:
            raise SettingsError(f"--workers {self.workers}: allowed are 0 to {WORKERS_MAX}, and {WORKERS_AUTO}")
        if self.election_profile not in ("fast", "kube"):
            raise SettingsError(f"--election-profile {self.election_profile}: allowed are fast and kube")
        if self.takeover and self.takeover not in TAKEOVERS:
            raise SettingsError(f"--takeover {self.takeover}: allowed are {' and '.join(TAKEOVERS)}")
        self._check_suspicion()
        if self.audit_strict and self.audit_log == NO_ADDRESS:
            raise SettingsError(f"--audit-strict: there is no audit log to write, as --audit-log is {NO_ADDRESS}")
        if self.log_format not in LOG_FORMATS:
            raise SettingsError(f"--log-format {self.log_format}: allowed are {' and '.join(LOG_FORMATS)}")
        if self.log_level not in LOG_LEVELS:
            raise SettingsError(f"--log-level {self.log_level}: allowed are {', '.join(LOG_LEVELS)}")
        if not self.root.startswith("/") or self.root.endswith("/"):
            raise SettingsError(f"--etcd-root {self.root}: it starts with a slash and does not end with one")
        check_etcd(self.etcd_endpoints, self.etcd_tls, insecure=self.insecure_etcd)
        if not (duration_seconds(self.pod_max_in_unschedulable_pods_duration) or 0.0) > 0:
            raise SettingsError(
                f"--pod-max-in-unschedulable-pods-duration {self.pod_max_in_unschedulable_pods_duration!r}:"
                " a duration longer than 0 such as 5m or 90s"
            )
        if self.head_of_line_limit < 0:
            raise SettingsError(f"--head-of-line-limit {self.head_of_line_limit}: a number of attempts, or 0 for none")

    @property
    def given_etcd(self) -> tuple[str, ...]:
        """The endpoints of an etcd that was named, as channels are opened to them; empty: there is none."""
        return self.etcd_endpoints if self.etcd_tls is None else SecureEndpoints(self.etcd_endpoints, self.etcd_tls)

    @property
    def audit_path(self) -> Path | None:
        """None: it is no file."""
        if self.audit_log in (NO_ADDRESS, STANDARD_OUTPUT):
            return None
        return Path(self.audit_log) if self.audit_log else self.data_dir / AUDIT_FILE

    @property
    def pool(self) -> PoolSettings:
        if self.ray_address is not None:
            return PoolSettings(self.workers, 1)
        # Nobody else is in a Ray of its own.
        if self.workers is None:
            return PoolSettings(min(WORKERS_MAX, max(1, len(os.sched_getaffinity(0)) - 1)), 0)
        return PoolSettings(self.workers, 0)

    @property
    def takes_evidence(self) -> bool:
        """Whether the term of a leader that is known to be gone is ended at once."""
        return (self.takeover or ("evidence" if self.election_profile == "fast" else "lease")) == "evidence"

    @property
    def suspect_seconds(self) -> float | None:
        """How long a leader is silent before its followers act on it; None: they never do."""
        if not self.takes_evidence:
            return None
        text = self.suspect_after or (SUSPECT_AFTER if self.election_profile == "fast" else NEVER)
        return None if text == NEVER else duration_seconds(text)

    @property
    def http_place(self) -> tuple[str, int] | None:
        """Host and port of the HTTP endpoint; None: there is none. Port 0: the system chooses."""
        if self.http_address == NO_ADDRESS:
            return None
        if self.http_address:
            return split_address("--http-address", self.http_address)
        _, port = split_address("--listen", self.listen)
        distance = HTTP_PORT_DISTANCE if port + HTTP_PORT_DISTANCE <= 65535 else -HTTP_PORT_DISTANCE
        return "127.0.0.1", port + distance if port else 0

    def _check_advertised(self) -> None:
        host, _ = split_address("--listen", self.listen)
        if not self.advertise_address:
            if host in WILDCARDS:
                raise SettingsError(
                    f"--listen {self.listen}: {host} leads nobody here; name an address that the other replicas reach"
                    " with --advertise-address as well"
                )
            return
        advertised, port = split_address("--advertise-address", self.advertise_address)
        if advertised in WILDCARDS or not 0 < port <= 65535:
            raise SettingsError(
                f"--advertise-address {self.advertise_address}: want one address that the other replicas reach,"
                " with a port of 1 to 65535"
            )

    def _check_suspicion(self) -> None:
        if self.suspect_after in ("", NEVER):
            return
        if not SUSPECT_SECONDS_MIN <= (duration_seconds(self.suspect_after) or 0.0) <= SUSPECT_SECONDS_MAX:
            raise SettingsError(
                f"--suspect-after {self.suspect_after}: a duration of {SUSPECT_SECONDS_MIN:g} to {SUSPECT_SECONDS_MAX:g} s"
                f" such as {SUSPECT_AFTER}, or {NEVER}"
            )
        if not self.takes_evidence:
            raise SettingsError(f"--suspect-after {self.suspect_after}: it needs --takeover evidence")

    def missing_certificates(self) -> list[str]:
        """What to do where nobody said with what the API is served, line by line; else nothing."""
        if self.tls is not None or self.insecure_loopback:
            return []
        host, _ = split_address("--listen", self.advertise_address or self.listen)
        san = "" if host in LOOPBACK else f" --san {host}"
        files = "/etc/rayched/tls"
        return [
            f"--listen {self.listen}: there are no certificates, and without them whoever reaches the API may do everything;"
            " these commands make some and use them:",
            "  rayched pki init",
            f"  rayched pki issue replica NAME{san} --out {files}",
            f"  rayched replica --listen {self.listen} --tls-cert-file {files}/tls.crt --tls-private-key-file {files}/tls.key"
            f" --client-ca-file {files}/ca.crt",
            "without certificates: on loopback alone, with --insecure-loopback",
        ]

    def _check_address(self, flag: str, address: str) -> None:
        _, port = split_address(flag, address)
        if not 0 <= port <= 65535:
            raise SettingsError(f"{flag} {address}: the port is 0 to 65535")

    @property
    def unschedulable_seconds_max(self) -> float:
        """After this a pod that no event woke is tried again."""
        return duration_seconds(self.pod_max_in_unschedulable_pods_duration) or 0.0


def check_etcd(endpoints: Sequence[str], tls: EtcdTls | None, *, insecure: bool = False) -> None:
    """`insecure`: it may be beyond loopback without TLS. Raises SettingsError."""
    scheme = "http://" if tls is None else "https://"
    for endpoint in endpoints:
        if endpoint.startswith("unix:"):
            continue
        host, _ = split_address("--etcd-endpoints", endpoint.removeprefix(scheme))
        if tls is None and not insecure and host not in LOOPBACK:
            raise SettingsError(
                f"--etcd-endpoints {endpoint}: {host.removeprefix('https://')} is no loopback address, and without TLS whoever is"
                " on the way reads and writes all there is: name the authorities of etcd's certificates with --etcd-cafile, or go"
                " without with --insecure-etcd"
            )
    if insecure and (tls is not None or not endpoints):
        raise SettingsError(
            "--insecure-etcd: says that an etcd of others is reached without TLS, and "
            + ("--etcd-cafile says with" if tls is not None else "--etcd-endpoints names none")
        )
    if tls is None:
        return
    if not endpoints:
        raise SettingsError("--etcd-cafile: goes with --etcd-endpoints alone, as an etcd of its own has no port")
    if bool(tls.certificate) != bool(tls.key):
        raise SettingsError("--etcd-certfile and --etcd-keyfile go together, and one is missing")
    if len(endpoints) > 1 and not tls.server_name:
        raise SettingsError(
            f"--etcd-endpoints {','.join(endpoints)}: several over TLS need --etcd-server-name, a name that all of their"
            " certificates have"
        )


def check_gateway(listen: str, *, has_tls: bool, replica_has_tls: bool) -> None:
    """Raises SettingsError."""
    host, _ = split_address("--gateway-address", listen)
    if replica_has_tls and not has_tls:
        raise SettingsError(
            f"--gateway-address {listen}: the replica has certificates, and the gateway needs one of its own, which"
            " `rayched pki issue web NAME` makes: --gateway-cert-file and --gateway-private-key-file"
        )
    if not has_tls and host not in LOOPBACK:
        raise SettingsError(f"--gateway-address {listen}: {host} is no loopback address; others are served over TLS alone")


def split_address(flag: str, address: str) -> tuple[str, int]:
    """Host and port; raises SettingsError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise SettingsError(f"{flag} {address!r}: an address is host:port")
    return host.strip("[]"), int(port)
