"""What the demo does: three replicas, hollow and real nodes, the examples, a thousand pods, a dead leader, the figures."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.cli import printing
from rayched.cli.cluster.port_options import check_ports
from rayched.cli.cluster.real_work import RUNS_PODS, RealWork, WorkFound
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, apply_all, scratch_directory
from rayched.cli.cluster.up_command import kubeconfig_command, page_address, tell_ended, ui_command
from rayched.cli.manifests.named_manifests import read_manifests
from rayched.cli.nodes.real_nodes import RealNodes
from rayched.cli.printing import fail, note, out, wrong
from rayched.client.contexts import ContextError
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.pki.errors import PkiError
from rayched.replica.cluster.local_cluster import ReplicaFailed
from rayched.replica.etcd.etcd_binary import EtcdServerError
from rayched.replica.settings import GATEWAY_PORT_DISTANCE
from rayched.v1.core_pb2 import Pod

if TYPE_CHECKING:
    from rayched.replica.cluster.local_pki import LocalPki

_ZONES = 3
_TEMPLATES = (("web", "100m", "128Mi"), ("api", "250m", "512Mi"), ("batch", "500m", "1Gi"))
_STEP_SECONDS_MAX = 600.0
"""For agents, bindings and work, each. A busy host takes its time; what fails is noticed at once, and a person told what is
waited for."""
_KEPT = """
The cluster stays until you press Ctrl-C. Its replicas:
{addresses}

In another terminal:

  rayched leader                                 # who leads; -w follows
  rayched get pods -o wide | head                # where things are
  rayched get nodes -o wide
  rayched describe pod on-ssd
  rayched logs counter --tail 3                  # a pod that really runs
  rayched cordon node-000
  {kubeconfig}
  kubectl --kubeconfig rayched.kubeconfig get pods
  rayched delete pods -l app=batch
  {kill} # the leader, and its gateway
"""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What the command was told."""

    examples: Path
    nodes: int
    real_nodes: int
    pods: int
    replicas: int
    port: int
    _: KW_ONLY
    keep: bool

    def run(self) -> None:
        """Ends the command where it fails."""
        manifests = [kinds.unwrap(result.object) for result in read_manifests([str(self.examples)])]
        profiles = self.examples / "scheduler" / "profiles.yaml"
        options = ["--config", str(profiles.absolute())] if profiles.exists() else []
        gateway_port = self.port + GATEWAY_PORT_DISTANCE
        for first in (self.port, gateway_port):
            check_ports(range(first, first + self.replicas))
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        work = _real_work(self.examples / "work") if self.real_nodes else []
        began = time.monotonic()
        note(
            f"starting etcd, {self.replicas} replicas, {self.nodes} hollow nodes in {_ZONES} zones"
            f" and {self.real_nodes} that run pods"
        )
        shapes = hollow_nodes(self.nodes, _ZONES, NodeShape())
        try:
            with (
                scratch_directory("demo") as directory,
                _certificates(directory, self.replicas) as pki,
                Rehearsal(
                    directory,
                    shapes,
                    self.replicas,
                    first_port=self.port,
                    first_gateway_port=gateway_port,
                    options=options,
                    pki=pki,
                ) as rehearsal,
                pki.context(rehearsal.cluster.addresses),
                contextlib.ExitStack() as owned,
            ):
                note(f"{self.replicas} replicas are up; starting what runs pods")
                note(f"{ui_command(rehearsal.cluster)} opens the page at {page_address(rehearsal.cluster)}")
                begun = _begin(rehearsal, directory, work, self.real_nodes, pki, owned)
                if failed := _run(rehearsal, manifests, begun, self.pods, began):
                    raise RehearsalFailed("; ".join(failed))
                if self.keep:
                    rehearsal.revive()
                    _stay(rehearsal)
        except KeyboardInterrupt:
            note("stopped")
        except (RehearsalFailed, ReplicaFailed, EtcdServerError, ApiError, PkiError, ContextError) as error:
            fail(str(error))


@contextlib.contextmanager
def _certificates(directory: Path, replicas: int) -> Iterator[LocalPki]:
    """They go with the directory, and at the end whatever becomes of that: keys are nobody's logs."""
    from rayched.replica.cluster.local_pki import LocalPki

    place = directory / "pki"
    try:
        yield LocalPki(place, replicas, gateways=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _real_work(directory: Path) -> list[AnyObject]:
    if not directory.exists():
        wrong(f"--examples: {directory} is not there, where the manifests of pods are that run; --real-nodes 0 goes without")
    return [kinds.unwrap(result.object) for result in read_manifests([str(directory)])]


def _begin(
    rehearsal: Rehearsal, directory: Path, objects: list[AnyObject], count: int, pki: LocalPki, owned: contextlib.ExitStack
) -> RealWork | None:
    """Starts the nodes that run pods, each with a certificate of its own, and the work on them; both end with `owned`."""
    if not count:
        return None
    names = [f"real-{number}" for number in range(count)]
    options = ("--label", f"{RUNS_PODS}=true")
    contexts = {name: pki.agent_context(name, rehearsal.cluster.addresses) for name in names}
    owned.enter_context(
        RealNodes(
            rehearsal.client,
            directory / "real-nodes",
            names,
            options,
            ready_seconds=_STEP_SECONDS_MAX,
            contexts=contexts,
        )
    )
    try:
        work = RealWork(rehearsal.client, names, objects)
    except ValueError as error:
        raise RehearsalFailed(str(error)) from error
    owned.callback(work.end)
    work.begin()
    return work


def _run(rehearsal: Rehearsal, manifests: list[AnyObject], work: RealWork | None, pods: int, began: float) -> list[str]:
    """What is wrong, in words."""
    apply_all(rehearsal.client, manifests)
    examples = sum(isinstance(item, Pod) and not item.spec.scheduling_gates for item in manifests)
    gated = sum(isinstance(item, Pod) and bool(item.spec.scheduling_gates) for item in manifests)
    note(f"{len(manifests)} objects of the examples applied; submitting {pods} pods")
    load = list(_load(pods))
    half = pods // 2
    expected = pods + examples + (work.lasting_pods if work else 0)
    with printing.progress("bound", expected) as bar:

        def advance(bound: int) -> None:
            bar.advance(bound)

        rehearsal.submit(load[:half])
        if not rehearsal.wait_until_bound(examples + half // 2, _STEP_SECONDS_MAX):
            found = rehearsal.verdict()
            return [*found.words, f"{found.bound} pods bound within {_STEP_SECONDS_MAX:.0f} s of the first submissions"]
        kill = rehearsal.kill_leader()
        note("the leader was killed with SIGKILL; submitting the rest")
        rehearsal.submit(load[half:])
        rehearsal.wait_until_bound(expected, _STEP_SECONDS_MAX, advance)
        binding = rehearsal.first_binding_after(kill, 1.0)
    if work is not None:
        work.wait(_STEP_SECONDS_MAX)
        # Pods of its jobs were counted, too, before they had ended.
        rehearsal.wait_until_bound(expected, _STEP_SECONDS_MAX)
    done = None if work is None else work.found()
    verdict = rehearsal.verdict()
    pause = None if binding is None else binding.seconds - kill.seconds
    zones = ", ".join(f"{zone or 'without a zone'} {count}" for zone, count in verdict.zones.items())
    printing.figures(
        "rayched demo",
        [
            ("pods bound", f"{verdict.bound:,} of {expected:,}" + (f", and {gated} gated" if gated else "")),
            ("spread over zones", zones),
            ("kill to next binding", "none came" if pause is None else f"{pause:.2f} s"),
            ("lost", str(verdict.lost)),
            ("bound twice", str(verdict.bound_twice)),
            ("over capacity", str(verdict.over_capacity)),
            *(_figures_of(done) if done else ()),
            ("took", f"{time.monotonic() - began:.0f} s in all"),
        ],
    )
    wrong = list(verdict.words)
    if verdict.bound != expected:
        wrong.append(f"{verdict.bound} pods are bound, {expected} should be")
    if pause is None:
        wrong.append("after the kill no binding came under a later epoch")
    return wrong + (done.words if done else [])


def _figures_of(work: WorkFound) -> list[tuple[str, str]]:
    count = work.count
    skipped = f"{count.skipped} skipped" if count.skipped else "none skipped"
    return [
        (
            "pods that ran",
            f"{work.ran} on {work.nodes} nodes: {work.ended} ended, {work.failed} failed, {work.restarts} restarts",
        ),
        ("counter", f"1 to {count.last}, {skipped}, at most {count.pause_seconds:.2f} s between two"),
    ]


def _load(pods: int) -> Iterator[Pod]:
    for number in range(pods):
        app, cpu, memory = _TEMPLATES[number % len(_TEMPLATES)]
        pod = Pod(api_version="v1", kind="Pod")
        pod.metadata.name = f"{app}-{number // len(_TEMPLATES)}"
        pod.metadata.namespace = "default"
        pod.metadata.labels["app"] = app
        container = pod.spec.containers.add(name="main", image=f"registry.example/{app}:1")
        container.resources.requests["cpu"].string = cpu
        container.resources.requests["memory"].string = memory
        yield pod


def _stay(rehearsal: Rehearsal) -> None:
    pid = rehearsal.leader().pid
    cluster = rehearsal.cluster
    kill = f"kill -9 {pid}".ljust(46)
    out(_KEPT.format(addresses=", ".join(cluster.addresses), kill=kill, kubeconfig=kubeconfig_command(cluster)))
    ended = set[int]()
    while True:
        time.sleep(1.0)
        tell_ended(cluster, ended)
