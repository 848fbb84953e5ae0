"""node: the agent of one node, in the foreground."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import pwd
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from rayched.api import quantity
from rayched.cli.context_option import chosen_context
from rayched.cli.nodes.eviction_options import EvictionOptions
from rayched.cli.nodes.node_joining import JoinOptions, renewed
from rayched.cli.option_groups import with_option_groups
from rayched.cli.options import Server, seconds_of
from rayched.cli.printing import fail, note, out, wrong
from rayched.cli.work.stream_token import stream_token
from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.agent import NodeAgent
from rayched.nodes.agent.agent_settings import AgentSettings
from rayched.nodes.agent.containment import CONTAINMENT_LABEL, ContainmentTier, tier_of, tracking_root
from rayched.nodes.agent.control import ControlFault, ask_agent
from rayched.nodes.agent.disk import DiskFault, default_root
from rayched.nodes.agent.drivers.container_driver import DriverFingerprint, DriverHealth
from rayched.nodes.agent.drivers.node_drivers import driver_labels
from rayched.nodes.agent.drivers.podman_client import PodmanClient
from rayched.nodes.agent.drivers.podman_driver import PODMAN, PodmanDriver
from rayched.nodes.agent.drivers.process_driver import PROCESS, ProcessDriver
from rayched.nodes.agent.endpoint import EndpointFault
from rayched.nodes.agent.eviction.signals import Signal
from rayched.nodes.agent.eviction.thresholds import DEPRECATED_FLAGS, Threshold
from rayched.nodes.agent.machine import Machine, this_machine
from rayched.nodes.agent.node_object import NodeSize, NodeSizeError
from rayched.nodes.agent.process_specs import RunPolicy
from rayched.nodes.agent.shutdown import ShutdownBand, two_bands
from rayched.nodes.agent.stats import NodeBounds
from rayched.replica.stop_signals import block_stop_signals

_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_SHUTDOWN = "shutdown"
"""In the place of a node's name."""
_THRESHOLD_OF = {Signal.MEMORY: "memory", Signal.NODE_FS: "ephemeral-storage"}
"""What is kept from pods for the threshold of a signal."""


def _several(metavar: str, help_text: str) -> object:
    return typer.Option(metavar=metavar, help=f"{help_text} May be repeated.", show_default=False)


def _of_host(metavar: str, help_text: str) -> object:
    return typer.Option(metavar=metavar, help=help_text, show_default=False)


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """As they were given."""

    root_dir: Annotated[
        Path | None,
        _of_host("DIR", "Where pods and the agent's state lie; none: /var/lib/rayched-node as root."),
    ] = None
    address: Annotated[str, typer.Option(metavar="IP", help="Of this host, which its pods have too.")] = "127.0.0.1"
    cpu: Annotated[str, _of_host("QUANTITY", "CPU of the node; none: the host's.")] = ""
    memory: Annotated[str, _of_host("QUANTITY", "Memory of the node; none: the host's.")] = ""
    ephemeral_storage: Annotated[str, _of_host("QUANTITY", "Disk of the node; none: that of --root-dir.")] = ""
    pids: Annotated[int | None, typer.Option(metavar="N", help="Tasks that pods have together; none: the host's.", min=1)] = None
    max_pods: Annotated[int, typer.Option(metavar="N", help="Pods that it takes.", min=1)] = 110
    resource: Annotated[list[str] | None, _several("NAME=N", "A further resource.")] = None
    node_label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label of the node. May be repeated.", show_default=False),
    ] = None
    system_reserved: Annotated[list[str] | None, _several("NAME=QUANTITY", "Kept from pods for the host.")] = None
    agent_reserved: Annotated[list[str] | None, _several("NAME=QUANTITY", "Kept from pods for the agent.")] = None
    heartbeat: Annotated[float, typer.Option(metavar="SECONDS", help="Time between heartbeats.", min=0.1)] = 10.0
    crash_loop_max_period: Annotated[
        str, typer.Option(metavar="DURATION", help="A container waits no longer for its next start; 1s to 300s.")
    ] = "300s"
    pod_user: Annotated[str, typer.Option(metavar="USER", help="Of pods that name none, where the agent is root.")] = "nobody"
    allowed_uids: Annotated[list[str] | None, _several("FIRST-LAST", "Users that pods may name beside --pod-user.")] = None
    allowed_gids: Annotated[list[str] | None, _several("FIRST-LAST", "Groups that pods may name beside their user's own.")] = None
    allow_root_pods: Annotated[bool, typer.Option("--allow-root-pods", help="Let pods run as root.")] = False
    allowed_host_paths: Annotated[list[Path] | None, _several("DIR", "A hostPath has to be in one of them.")] = None
    image_roots: Annotated[list[Path] | None, _several("DIR", "An image dir:PATH has to be in one of them.")] = None
    stream_token_file: Annotated[
        Path | None, _of_host("FILE", "The token that exec and port-forward need; none: both are off.")
    ] = None
    containment: Annotated[
        Literal["auto", "tree", "tracking", "cgroup"],
        typer.Option(
            help="How to tell processes of pods from others: by descent, by cgroups too, or by cgroups that keep limits; "
            "auto takes the most that there is."
        ),
    ] = "auto"
    default_driver: Annotated[Literal["process", "podman"], typer.Option(help="What runs pods without a RuntimeClass.")] = (
        "process"
    )
    pod_pids_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Tasks that each pod may have; none: no limit. Needs the tier cgroup of --containment."
        ),
    ] = None
    podman: Annotated[Path | None, _of_host("FILE", "The program of the driver podman; none: the one on $PATH, if any.")] = None
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take the node from another agent that still lives, or from another machine.")
    ] = False
    http_address: Annotated[
        str, _of_host("HOST:PORT", "Serve /metrics, /metrics/resource, /livez and /readyz there, on loopback; none: nowhere.")
    ] = ""
    shutdown_grace_period: Annotated[str, typer.Option(metavar="DURATION", help="What pods have when the host shuts down.")] = (
        "0s"
    )
    shutdown_grace_period_critical_pods: Annotated[
        str, typer.Option(metavar="DURATION", help="What of that is for critical pods, after all others.")
    ] = "0s"
    shutdown_grace_period_by_pod_priority: Annotated[
        str, _of_host("PRIORITY=DURATION,...", "The same by priority, in place of both: 0=60s,2000000000=10s.")
    ] = ""
    cancel: Annotated[bool, typer.Option("--cancel", help="Of node shutdown: take it back.")] = False

    def root(self) -> Path:
        return (self.root_dir or default_root()).absolute()

    def bounds(self) -> NodeBounds:
        memory = _amount("--memory", "memory", self.memory) if self.memory else None
        disk = _amount("--ephemeral-storage", "", self.ephemeral_storage) if self.ephemeral_storage else None
        return NodeBounds(memory, self.pids, disk)

    def size(self, machine: Machine, thresholds: Sequence[Threshold]) -> NodeSize:
        bounds = self.bounds()
        capacity = {
            "cpu": _amount("--cpu", "cpu", self.cpu) if self.cpu else machine.cpus * 1000,
            "memory": machine.memory if bounds.memory is None else bounds.memory,
            "ephemeral-storage": machine.disk if bounds.disk is None else bounds.disk,
            "pods": self.max_pods,
            **amounts_of("--resource", self.resource),
        }
        hard = {_THRESHOLD_OF[one.signal]: one.value for one in thresholds if one.signal in _THRESHOLD_OF and not one.grace}
        return NodeSize(
            capacity,
            amounts_of("--system-reserved", self.system_reserved),
            amounts_of("--agent-reserved", self.agent_reserved),
            {resource: value.of(capacity[resource]) for resource, value in hard.items()},
        )

    def policy(self) -> RunPolicy:
        user, group = _user(self.pod_user)
        return RunPolicy(
            os.geteuid(),
            os.getegid(),
            user,
            group,
            self.allow_root_pods,
            tuple(_range("--allowed-uids", text) for text in self.allowed_uids or ()),
            tuple(_range("--allowed-gids", text) for text in self.allowed_gids or ()),
            _directories(self.allowed_host_paths),
            _directories(self.image_roots),
            self.pod_pids_limit or 0,
        )

    def labels(self, cgroups: Path | None) -> dict[str, str]:
        """Of the node: what it can do, and what the user says."""
        own = {CONTAINMENT_LABEL: tier_of(cgroups).value, **driver_labels(self.drivers())}
        return own | dict(pair_of("--label", text) for text in self.node_label or ())

    def cgroups(self) -> Path | None:
        found = None if self.containment == "tree" else tracking_root(self.root())
        if found is None and self.containment in ("tracking", "cgroup"):
            wrong(f"--containment {self.containment}: this host has no cgroup of the second version that may be written to")
        if self.containment == "cgroup" and tier_of(found) is not ContainmentTier.CGROUP:
            wrong("--containment cgroup: the cgroup of the second version lacks one of the controllers cpu, memory and pids")
        if self.pod_pids_limit is not None and tier_of(found) is not ContainmentTier.CGROUP:
            wrong(f"--pod-pids-limit {self.pod_pids_limit}: needs the tier cgroup of --containment, found {tier_of(found)}")
        return found

    def podman_program(self) -> str:
        """Empty: there is none."""
        if self.podman is not None and not os.access(self.podman, os.X_OK):
            wrong(f"--podman {self.podman}: this is no program")
        return str(self.podman.absolute()) if self.podman is not None else shutil.which(PODMAN) or ""

    def drivers(self) -> dict[str, DriverFingerprint]:
        """Those that are there, as they were found. Blocks."""
        policy, podman = self.policy(), self.podman_program()
        found = {PROCESS: ProcessDriver(policy, None).fingerprint()}
        if podman:
            found[PODMAN] = PodmanDriver(PodmanClient(podman), policy, self.root()).fingerprint()
        chosen = found.get(self.default_driver)
        if chosen is None or chosen.health is not DriverHealth.HEALTHY:
            wrong(f"--default-driver {self.default_driver}: {chosen.text if chosen else 'there is no such program on $PATH'}")
        return found

    def shutdown(self) -> tuple[ShutdownBand, ...]:
        total = seconds_of("--shutdown-grace-period", self.shutdown_grace_period)
        critical = seconds_of("--shutdown-grace-period-critical-pods", self.shutdown_grace_period_critical_pods)
        if critical > total:
            wrong(f"--shutdown-grace-period-critical-pods {critical:g}s: want at most --shutdown-grace-period, {total:g}s")
        if not self.shutdown_grace_period_by_pod_priority:
            return two_bands(total, critical)
        option = "--shutdown-grace-period-by-pod-priority"
        if total:
            wrong(f"{option}: cannot be given together with --shutdown-grace-period")
        pairs = dict(pair_of(option, text) for text in self.shutdown_grace_period_by_pod_priority.split(","))
        for priority in pairs:
            if not priority.removeprefix("-").isdigit():
                wrong(f"{option} {priority!r}: want a priority such as 0 or 2000000000")
        bands = [ShutdownBand(int(priority), seconds_of(option, text)) for priority, text in pairs.items()]
        return tuple(sorted(bands, key=lambda band: band.priority))

    def restart_cap(self) -> float:
        cap = seconds_of("--crash-loop-max-period", self.crash_loop_max_period)
        if not 1 <= cap <= 300:
            wrong(f"--crash-loop-max-period {self.crash_loop_max_period!r}: want 1s to 300s")
        return cap


@with_option_groups({"joining": JoinOptions, "options": NodeOptions, "eviction": EvictionOptions}, DEPRECATED_FLAGS)
def node(
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)] = "",
    server: Server = None,
    ray_address: Annotated[
        str, _of_host("HOST:PORT", "A Ray cluster: an agent on each of its nodes, for what Ray has free there.")
    ] = "",
    pki_dir: Annotated[
        Path | None,
        _of_host("DIR", "With --ray-address: the authority that certifies its agents; none: pki in the data directory."),
    ] = None,
    *,
    joining: JoinOptions,
    options: NodeOptions,
    eviction: EvictionOptions,
) -> None:
    """Make this host a node: run the pods that are bound to it.

    \b
      rayched node worker-1 --server 127.0.0.1:7420
      rayched node small --cpu 2 --memory 1Gi --root-dir /tmp/small
      rayched node worker-2 --join-token-file w2.token --join-ca-file ca.crt
      rayched node shutdown                       before the host goes down
      rayched node --ray-address 10.0.0.5:6379    the nodes of a Ray cluster

    Pods are processes of this host. They keep running when the agent ends; the next one in the same directory takes them over.
    With --memory, --pids or --ephemeral-storage what counts is the agent and its pods alone, so several nodes can share a host.
    With --ray-address options hold for all agents; --cpu and --memory then say what to take of each node at most.
    """
    if ray_address:
        if joining.join_token_file is not None:
            wrong("--join-token-file: is of one node; agents on Ray get certificates of --pki-dir")
        if name:
            wrong(f"node {name} --ray-address: nodes of Ray have names of their own, leave NAME out")
        # Before anything starts a thread, which could take the signal.
        block_stop_signals()
        # Not at the top: it reads the options above, and other agents shall not wait for its import.
        from rayched.cli.nodes.ray_nodes_command import nodes_of_ray

        nodes_of_ray(ray_address, server, options, eviction, pki_dir)
        return
    if pki_dir is not None:
        wrong(f"--pki-dir {pki_dir}: goes with --ray-address alone; of a single agent the context has the certificate")
    if not name:
        wrong("a NAME for this node is needed, or --ray-address")
    if name == _SHUTDOWN:
        _shut_down(options.root(), cancel=options.cancel)
        return
    settings = _settings(name, options, eviction)
    if joining.join_token_file is not None and chosen_context():
        wrong(f"--context {chosen_context()}: with --join-token-file the agent has a context of its own; leave one of them out")
    certificate = joining.certificate(name, settings.root, server)
    context = chosen_context() if certificate is None else certificate.context
    try:
        client = NodeAgentClient(server, timeout_seconds=_PATIENCE_SECONDS, node=name, context=context)
    except ValueError as error:
        wrong(str(error))
    with client, renewed(certificate, client.endpoints):
        _run(settings, client)


def _settings(name: str, options: NodeOptions, eviction: EvictionOptions) -> AgentSettings:
    root, found = options.root(), eviction.settings()
    # The directory itself is made by the agent, once all that it is told makes sense.
    machine = this_machine(next(path for path in (root, *root.parents) if path.exists()))
    cgroups = options.cgroups()
    return AgentSettings(
        node=name,
        root=root,
        address=options.address,
        machine=machine,
        size=options.size(machine, found.thresholds),
        version=importlib.metadata.version("rayched"),
        policy=options.policy(),
        labels=options.labels(cgroups),
        cgroups=cgroups,
        default_driver=options.default_driver,
        podman=options.podman_program(),
        heartbeat_seconds=options.heartbeat,
        restart_cap=options.restart_cap(),
        take_over=options.take_over,
        stream_token=stream_token("--stream-token-file", options.stream_token_file),
        http_address=options.http_address,
        shutdown=options.shutdown(),
        eviction=found,
        bounds=options.bounds(),
    )


def _run(settings: AgentSettings, client: NodeAgentClient) -> None:
    logging.getLogger().setLevel(logging.INFO)
    try:
        agent = NodeAgent(settings, client)
    except (NodeSizeError, EndpointFault) as error:
        wrong(str(error))
    if agent.http_address:
        out(f"metrics at http://{agent.http_address}/metrics")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    out(f"node {settings.node} on {socket.gethostname()}, pods in {settings.root}")
    try:
        agent.run()
    except DiskFault as fault:
        fail(str(fault))
    if agent.failure:
        fail(agent.failure)
    note("stopped; pods that run here keep running")


def _shut_down(root: Path, *, cancel: bool) -> None:
    """Returns when the node's pods have ended."""
    try:
        found = ask_agent(root, "cancel-shutdown" if cancel else "shutdown")
        if cancel:
            out("the shutdown is taken back; pods that were asked to end do end")
            return
        while not found["over"]:
            time.sleep(_LOOK_SECONDS)
            found = ask_agent(root, "state", is_there=True)
            if not found["shutting_down"]:
                fail("the shutdown was taken back")
    except ControlFault as fault:
        fail(str(fault))
    out("all pods have had their time" if found["pods"] else "all pods have ended")


def _directories(paths: list[Path] | None) -> tuple[str, ...]:
    return tuple(os.path.normpath(path.absolute()) for path in paths or ())


def pair_of(option: str, text: str) -> tuple[str, str]:
    """NAME=VALUE; ends the command where it is none."""
    key, equals, found = text.partition("=")
    if not equals or not key:
        wrong(f"{option} {text!r}: want NAME=VALUE")
    return key, found


def amounts_of(option: str, texts: list[str] | None) -> dict[str, int]:
    """NAME=QUANTITY by name, CPU in thousandths; ends the command where one is none."""
    pairs = dict(pair_of(option, text) for text in texts or ())
    return {name: _amount(f"{option} {name}", name, text) for name, text in pairs.items()}


def _amount(option: str, resource: str, text: str) -> int:
    try:
        return quantity.milli_value(text) if resource == "cpu" else quantity.value(text)
    except quantity.QuantityError as error:
        wrong(f"{option}: {error}, want one such as 500m, 16 or 64Gi")


def _range(option: str, text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        wrong(f"{option} {text!r}: want FIRST-LAST or one number")
    return int(first), int(last if dash else first)


def _user(text: str) -> tuple[int, int]:
    if text.isdigit():
        return int(text), int(text)
    try:
        found = pwd.getpwnam(text)
    except KeyError:
        wrong(f"--pod-user {text!r}: this host has no such user")
    return found.pw_uid, found.pw_gid
