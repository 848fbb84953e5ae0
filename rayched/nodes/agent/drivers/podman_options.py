"""What podman is told of a container: the options of `podman create`, and its environment. Reads nothing of the host but where
links of a path lead.

The container has the host's network, as the pod's address is the node's; namespaces of its own for all else. Podman's own log is
off, as the shim keeps it, and so are restarts, health checks and what podman would pass on of the agent's environment.

An environment goes by a file, which only the agent's user can read. What a line of that file cannot say (a line break, a quote)
goes by the command line, which other users of the host may read while the container is made.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Mapping
from typing import Final

from rayched.api.disconnection import STOP_AFTER_ANNOTATION, stop_after_seconds
from rayched.nodes.agent.cgroup_limits import PERIOD_MICROSECONDS, container_shares, cpu_quota, memory_limit
from rayched.nodes.agent.process_specs import (
    AttemptPlace,
    ConfigurationFault,
    RunPolicy,
    check_groups,
    check_mounts,
    check_user,
    environment,
    first_of,
    further_groups,
    group_of,
    hostname,
    volume_variable,
    words,
)
from rayched.nodes.agent.shim.proc_table import engine_name
from rayched.v1.core_pb2 import Container, Pod

UID_LABEL: Final = "rayched.dev/uid"
OWNER_LABEL: Final = "rayched.dev/agent"
CONTAINER_LABEL: Final = "rayched.dev/container"
_REFERENCE: Final = re.compile(
    r"[a-zA-Z0-9][a-zA-Z0-9._-]*(?::[0-9]+(?=/))?(?:/[a-zA-Z0-9][a-zA-Z0-9._-]*)*"
    r"(?::[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_TRANSPORTS: Final = frozenset({"containers-storage", "dir", "docker", "docker-archive", "docker-daemon", "oci", "oci-archive"})
"""What podman takes for a place on the host, or for another program's, before a colon."""
_PLAIN: Final = re.compile(r"[^\n\r\"'`\\#$\0]{0,60000}")
"""A value that a line of a file says as it is, whichever podman reads it."""


def check_image(container: Container) -> None:
    """Raises ConfigurationFault."""
    image = container.image
    if not image:
        raise ConfigurationFault(f'container "{container.name}" has no image, and driver podman needs one')
    if not _REFERENCE.fullmatch(image) or image.partition(":")[0] in _TRANSPORTS:
        raise ConfigurationFault(f'container "{container.name}": couldn\'t parse image name {image!r}: invalid reference format')


def check_promises(pod: Pod) -> None:
    """A container outlives a shim that is killed; so it may not be counted on to be gone. Raises ConfigurationFault."""
    if stop_after_seconds(pod) is not None:
        raise ConfigurationFault(
            f"annotation {STOP_AFTER_ANNOTATION}: driver podman cannot promise it; allowed with driver process"
        )


def create_options(pod: Pod, container: Container, place: AttemptPlace, policy: RunPolicy, owner: str) -> list[str]:
    """Of `podman create`, but for limits, the environment, the image and what follows it. Raises ConfigurationFault."""
    uid = pod.metadata.uid
    options = [
        *("--name", engine_name(uid, container.name, place.attempt)),
        *("--label", f"{UID_LABEL}={uid}", "--label", f"{OWNER_LABEL}={owner}", "--label", f"{CONTAINER_LABEL}={container.name}"),
        *("--replace", "--pull", "never", "--log-driver", "none", "--restart", "no", "--no-healthcheck"),
        *("--network", "host", "--http-proxy=false", "--systemd=false", "--hostname", hostname(pod)),
    ]
    options += _identity(pod, container, policy)
    if container.working_dir:
        options += ["--workdir", container.working_dir]
    for mount in container.volume_mounts:
        options += ["--mount", _mount(container, mount.name, mount.mount_path, mount.sub_path, place, read_only=mount.read_only)]
    return options


def limit_options(container: Container, controllers: Collection[str], pids: int = 0) -> list[str]:
    """`controllers`: those of cgroups that podman can use here; without one it would start nothing that asks for it. `pids`: what
    a pod may have; podman knows containers alone, so each of them gets it. 0: podman's own limit."""
    options: list[str] = []
    if pids and "pids" in controllers:
        options += ["--pids-limit", str(pids)]
    limit, quota = memory_limit(container), cpu_quota(container)
    if limit and "memory" in controllers:
        options += ["--memory", f"{limit}b", "--memory-swap", f"{limit}b"]
    if "cpu" in controllers:
        options += ["--cpu-shares", str(container_shares(container))]
        if quota:
            options += ["--cpu-period", str(PERIOD_MICROSECONDS), "--cpu-quota", str(quota)]
    return options


def container_environment(pod: Pod, container: Container, place: AttemptPlace) -> dict[str, str]:
    """Raises ConfigurationFault."""
    check_mounts(container, place)
    own = {volume_variable(mount.name): mount.mount_path for mount in container.volume_mounts}
    return environment(pod, container, place, own)


def environment_by_file(variables: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text of the file, and the options for what it cannot say."""
    lines, options = [], []
    for name, value in variables.items():
        if _PLAIN.fullmatch(value) and value == value.strip():
            lines.append(f"{name}={value}\n")
        else:
            options += ["--env", f"{name}={value}"]
    return "".join(lines), options


def program(container: Container, variables: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The option for the command, which stands before the image, and the arguments, which stand behind it. Without either the
    image's own are used, as in Kubernetes. Raises ConfigurationFault."""
    found = words(container, (*container.command, *container.args), variables)
    command, arguments = found[: len(container.command)], found[len(container.command) :]
    return (["--entrypoint", json.dumps(command)] if command else []), arguments


def asks_for_no_root(pod: Pod, container: Container) -> bool:
    """It says runAsNonRoot and no user, so the image's has to be another one."""
    own, whole = container.security_context, pod.spec.security_context
    return bool(first_of("run_as_non_root", own, whole)) and first_of("run_as_user", own, whole) is None


def _identity(pod: Pod, container: Container, policy: RunPolicy) -> list[str]:
    own, whole = container.security_context, pod.spec.security_context
    user, group = first_of("run_as_user", own, whole), first_of("run_as_group", own, whole)
    if policy.own_user == 0 and user is None and not policy.allow_root:
        # An image shall not make root of a pod that may not be it.
        user = policy.pod_user
    if user is None and group is not None:
        raise ConfigurationFault(f'container "{container.name}": runAsGroup {group} needs a runAsUser with driver podman')
    own_group = policy.pod_group if user is None else group_of(user, policy)
    group = own_group if group is None else group
    if policy.own_user == 0:
        if user is not None:
            check_user(pod, container, policy, user)
        check_groups(pod, container, policy, group, own_group)
    options = [] if user is None else ["--user", f"{user}:{group}"]
    for one in further_groups(pod):
        options += ["--group-add", str(one)]
    return options


def _mount(container: Container, name: str, target: str, sub_path: str, place: AttemptPlace, *, read_only: bool) -> str:
    if sub_path:
        # Where its links lead podman would follow, out of the volume.
        text = f"subPath {sub_path!r} of volume {name!r} is not possible with driver podman"
        raise ConfigurationFault(f'container "{container.name}": {text}')
    fields = ["type=bind", f"source={place.volumes[name]}", f"target={target}", *(["readonly"] if read_only else [])]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
