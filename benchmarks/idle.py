"""`make idle`: what a cluster costs that has nothing to do.

Three replicas with their gateways and an etcd, as `rayched up` starts them, without a pod or a node. When all is started and no
process has come or gone for a while, the time of the processor is counted that all of them take, how often their threads were
woken, and at the end their memory (PSS: a page that several processes share counts once among them), by kind of process.

`rayched up` itself is not among them: this program stands in its place. Exit code 1 where more is used than is allowed. What else
the host did meanwhile stands below the table: work beside it makes every wake-up dearer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.idle_processes import ProcessWatch, Used, busy_seconds, total
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import scratch_directory
from rayched.client.errors import ApiError
from rayched.pki.errors import PkiError
from rayched.replica.cluster.free_ports import neighbouring_ports
from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaFailed
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.local_start import wait_until_up
from rayched.replica.etcd.etcd_binary import EtcdServerError

CORES_MAX: Final = 0.03
PSS_BYTES_MAX: Final = 800_000_000
_LOOK_SECONDS: Final = 1.0
_SAME_SECONDS: Final = 20.0
"""For so long no process comes or goes before it is counted: the last to be started are the leader's workers and its spare
scheduler, some seconds after the cluster is up."""
_SETTLE_SECONDS_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class Idle:
    """What was used within `seconds`, by kind of process."""

    seconds: float
    kinds: Mapping[str, Used]
    other_cores: float
    """What the host did besides, in processors."""
    threads: Sequence[tuple[str, str, int]]
    """Kind, name, and how often they were woken."""

    @property
    def total(self) -> Used:
        return total(self.kinds.values())

    @property
    def cores(self) -> float:
        return self.total.cpu_seconds / self.seconds

    def missed(self) -> list[str]:
        """The demands that were not met, in words."""
        found = []
        if self.cores > CORES_MAX:
            found.append(f"{self.cores:.3f} of a core were used, at most {CORES_MAX} are allowed")
        if self.total.pss_bytes > PSS_BYTES_MAX:
            found.append(f"{self.total.pss_bytes / 1e9:.2f} GB (PSS) were taken, at most {PSS_BYTES_MAX / 1e9} are allowed")
        return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description="What a cluster costs that has nothing to do.")
    parser.add_argument("--minutes", type=float, default=10.0, help="for which it is looked at; above 0")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="print the N threads that were woken most, too")
    parser.add_argument("--json", type=Path, help="write the figures there")
    asked = parser.parse_args(arguments)
    if asked.minutes <= 0 or asked.replicas < 1:
        parser.error("--minutes has to be above 0, --replicas at least 1")
    try:
        idle = measure(asked.minutes * 60, asked.replicas)
    except (ReplicaFailed, ApiError, EtcdServerError, PkiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    show(idle, asked.threads)
    missed = idle.missed()
    if asked.json:
        asked.json.write_text(json.dumps(_as_json(idle), indent=1) + "\n")
    for words in missed:
        print(f"error: {words}", file=sys.stderr)
    return 1 if missed else 0


def measure(seconds: float, replicas: int) -> Idle:
    """Raises ReplicaFailed, ApiError, EtcdServerError, PkiError."""
    with scratch_directory("idle") as directory:
        pki = LocalPki(directory / "pki", replicas, gateways=True)
        cluster = LocalCluster(directory / "up", replicas, first_gateway_port=neighbouring_ports(replicas), pki=pki)
        with cluster:
            with cluster.client() as client:
                wait_until_up(cluster, client, tell=printing.note)
            assert cluster.etcd is not None and cluster.etcd.pid is not None
            watch = ProcessWatch((cluster.etcd.pid, *(replica.pid for replica in cluster.replicas)))
            _settle(cluster, watch)
            began, busy = time.monotonic(), busy_seconds()
            watch.look()
            while (left := began + seconds - time.monotonic()) > 0:
                time.sleep(min(_LOOK_SECONDS, left))
                cluster.check()
                watch.look()
            took, busy = time.monotonic() - began, busy_seconds() - busy
            threads, kinds = watch.threads(), watch.used()
            return Idle(took, kinds, max(0.0, busy - total(kinds.values()).cpu_seconds) / took, threads)


def show(idle: Idle, threads: int = 0) -> None:
    rows = [*idle.kinds.items(), ("all", idle.total)]
    headings = ("PROCESS", "COUNT", "CPU S/MIN", "PSS MB", "THREADS", "SWITCHES/S")
    printing.plain_table(headings, [_row(name, used, idle.seconds) for name, used in rows])
    if threads:
        printing.out("")
        most = [(kind, name, f"{count / idle.seconds:.1f}") for kind, name, count in idle.threads[:threads]]
        printing.plain_table(("PROCESS", "THREAD", "SWITCHES/S"), most)
    printing.out("")
    printing.out(
        f"{idle.cores:.3f} of a core ({CORES_MAX} allowed), {idle.total.pss_bytes / 1e9:.2f} GB ({PSS_BYTES_MAX / 1e9} allowed),"
        f" in {idle.seconds / 60:.1f} minutes; the rest of this host took {idle.other_cores:.2f} of a core"
    )


def _row(name: str, used: Used, seconds: float) -> tuple[str, ...]:
    return (
        name,
        str(used.processes),
        f"{used.cpu_seconds * 60 / seconds:.2f}",
        f"{used.pss_bytes / 1e6:.0f}",
        str(used.threads),
        f"{used.switches / seconds:.0f}",
    )


def _as_json(idle: Idle) -> dict[str, object]:
    kinds = {kind: asdict(used) for kind, used in idle.kinds.items()}
    found = {"seconds": idle.seconds, "cores": idle.cores, "other_cores": idle.other_cores}
    return {**found, "kinds": kinds, "threads": idle.threads}


def _settle(cluster: LocalCluster, watch: ProcessWatch) -> None:
    """Returns when the processes have been the same for a while. Raises ReplicaFailed."""
    began = same_since = time.monotonic()
    before = watch.pids()
    while time.monotonic() - same_since < _SAME_SECONDS:
        if time.monotonic() - began > _SETTLE_SECONDS_MAX:
            where = f"logs are in {cluster.directory}"
            raise ReplicaFailed(f"processes still come and go {_SETTLE_SECONDS_MAX:.0f} s after the start; {where}")
        time.sleep(_LOOK_SECONDS)
        cluster.check()
        if (now := watch.pids()) != before:
            before, same_since = now, time.monotonic()


if __name__ == "__main__":
    sys.exit(main())
