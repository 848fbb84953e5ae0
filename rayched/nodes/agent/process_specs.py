"""What the `process` driver makes of a container: the specification of one process, or why there is none. Reads nothing
of the host but where links of a hostPath lead.

The environment is what the manifest says and what stands below; nothing of the agent's own environment is in it.

    RAYCHED_POD_NAME, _POD_NAMESPACE, _POD_UID, RAYCHED_NODE_NAME, RAYCHED_CONTAINER, RAYCHED_ATTEMPT, RAYCHED_WORK_DIR,
    RAYCHED_VOLUME_<NAME>, RAYCHED_MEMORY_LIMIT, RAYCHED_CPU_LIMIT, TMPDIR, HOME, HOSTNAME, PATH

The pod's uid, the container and the attempt tell a process' owner when nothing else does, so a manifest cannot replace them.

There is no isolation of mounts: a volume is where RAYCHED_VOLUME_<NAME> says, whatever its mountPath is.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rayched.api.quantity import QuantityError, milli_value, value
from rayched.nodes.agent.expansion import ExpansionFault, expanded
from rayched.v1.core_pb2 import Container, Pod

NOBODY: Final = 65_534
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_IMAGE_DIRECTORY: Final = "dir:"
_LENGTH_MAX: Final = 1 << 20


class ConfigurationFault(Exception):
    """The node cannot run a container as it is written; one line. It waits until somebody changes that."""


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """What this node allows pods. `own_user` and `own_group` are the agent's."""

    own_user: int
    own_group: int
    pod_user: int = NOBODY
    pod_group: int = NOBODY
    allow_root: bool = False
    allowed_users: Sequence[tuple[int, int]] = ()
    """Ranges, with both their ends, beside `pod_user`."""
    allowed_groups: Sequence[tuple[int, int]] = ()
    """The same, beside the group that a pod has when it names none."""
    host_paths: Sequence[str] = ()
    image_roots: Sequence[str] = ()
    pod_pids: int = 0
    """Processes and threads that a pod may have, where the kernel counts them; 0: no limit."""


@dataclass(frozen=True, slots=True)
class AttemptPlace:
    """Where an attempt has what it needs. `volumes`: path by name of the volume."""

    node: str
    address: str
    attempt: int
    work: str
    log: str
    volumes: Mapping[str, str] = field(default_factory=dict)
    memory_capacity: int = 1


def process_spec(pod: Pod, container: Container, place: AttemptPlace, policy: RunPolicy) -> dict[str, Any]:
    """As the shim reads it, but for oom_score_adj. Raises ConfigurationFault."""
    image = _image_directory(container, policy)
    user, group, groups = _identity(pod, container, policy)
    own = _own_variables(pod, container, place)
    variables = environment(pod, container, place, own)
    if image:
        variables["PATH"] = f"{image}/bin:{variables['PATH']}"
    if not container.command:
        raise ConfigurationFault(f'container "{container.name}" has no command, and driver process has no image to take one from')
    return {
        "argv": words(container, (*container.command, *container.args), variables),
        "env": variables,
        "cwd": container.working_dir or image or place.work,
        "user": user,
        "group": group,
        "groups": groups,
        "log": place.log,
    }


def environment(pod: Pod, container: Container, place: AttemptPlace, own: Mapping[str, str]) -> dict[str, str]:
    """What the container has in it, whatever driver it has. `own`: what the manifest may replace. Raises ConfigurationFault."""
    variables = {**_known_variables(pod, container, place), **own}
    size = 0
    for one in container.env:
        if one.HasField("value_from"):
            variables[one.name] = _field(pod, one.value_from.field_ref.field_path, place)
        else:
            variables[one.name] = _expanded(f"env {one.name}", one.value, variables, container)
        # Counted as it grows: each may be short, and all of them more than there is memory.
        size += len(one.name) + len(variables[one.name])
        _check_size(container, size)
    return variables | _cookie(pod, container, place)


def words(container: Container, texts: Iterable[str], variables: Mapping[str, str]) -> list[str]:
    """Of its command or its arguments. Raises ConfigurationFault."""
    found = []
    size = sum(len(one.name) + len(variables[one.name]) for one in container.env)
    for text in texts:
        found.append(_expanded("an argument", text, variables, container))
        size += len(found[-1])
        _check_size(container, size)
    return found


def check_mounts(container: Container, place: AttemptPlace) -> None:
    """Raises ConfigurationFault."""
    for mount in container.volume_mounts:
        if mount.name not in place.volumes:
            raise ConfigurationFault(f'container "{container.name}" mounts volume "{mount.name}", which the pod does not have')


def _expanded(what: str, text: str, variables: Mapping[str, str], container: Container) -> str:
    try:
        return expanded(text, variables)
    except ExpansionFault as fault:
        raise ConfigurationFault(f'container "{container.name}": {what} {fault}') from None


def _check_size(container: Container, size: int) -> None:
    if size > _LENGTH_MAX:
        text = f"its command and environment are longer than {_LENGTH_MAX} characters"
        raise ConfigurationFault(f'container "{container.name}": {text}')


def volume_variable(name: str) -> str:
    return f"RAYCHED_VOLUME_{name.upper().replace('-', '_').replace('.', '_')}"


def host_path(path: str, policy: RunPolicy) -> str:
    """A path of the host that a pod may have, with links followed. Raises ConfigurationFault."""
    if not os.path.isabs(path):
        raise ConfigurationFault(f"hostPath {path!r}: want an absolute path")
    found = os.path.realpath(path)
    roots = [os.path.realpath(root) for root in policy.host_paths]
    if not any(found == root or found.startswith(root.rstrip("/") + "/") for root in roots):
        allowed = ", ".join(policy.host_paths) or "none"
        raise ConfigurationFault(f"hostPath {path!r} is not allowed on this node; allowed are {allowed}")
    return found


def _own_variables(pod: Pod, container: Container, place: AttemptPlace) -> dict[str, str]:
    check_mounts(container, place)
    found = {
        "PATH": _PATH,
        "HOME": place.work,
        "TMPDIR": place.work,
        "HOSTNAME": hostname(pod),
        "RAYCHED_WORK_DIR": place.work,
    }
    for mount in container.volume_mounts:
        if os.path.isabs(mount.sub_path) or ".." in mount.sub_path.split("/"):
            text = f"subPath {mount.sub_path!r} of volume {mount.name!r}: want a path below the volume, without '..'"
            raise ConfigurationFault(f'container "{container.name}": {text}')
        path = place.volumes[mount.name]
        found[volume_variable(mount.name)] = os.path.join(path, mount.sub_path) if mount.sub_path else path
    return found


def hostname(pod: Pod) -> str:
    return pod.spec.hostname or pod.metadata.name


def _known_variables(pod: Pod, container: Container, place: AttemptPlace) -> dict[str, str]:
    found = {
        "RAYCHED_POD_NAME": pod.metadata.name,
        "RAYCHED_POD_NAMESPACE": pod.metadata.namespace,
        "RAYCHED_NODE_NAME": place.node,
    }
    try:
        for name, variable, number in (("memory", "MEMORY", value), ("cpu", "CPU", milli_value)):
            if name in container.resources.limits:
                found[f"RAYCHED_{variable}_LIMIT"] = str(number(container.resources.limits[name].string))
    except QuantityError as error:
        raise ConfigurationFault(f'container "{container.name}": {error}') from None
    return found


def _cookie(pod: Pod, container: Container, place: AttemptPlace) -> dict[str, str]:
    return {
        "RAYCHED_POD_UID": pod.metadata.uid,
        "RAYCHED_CONTAINER": container.name,
        "RAYCHED_ATTEMPT": str(place.attempt),
    }


def _field(pod: Pod, path: str, place: AttemptPlace) -> str:
    metadata = pod.metadata
    plain = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "spec.nodeName": place.node,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": place.address,
        "status.podIP": place.address,
    }
    if path in plain:
        return plain[path]
    for prefix, values in (("metadata.labels", metadata.labels), ("metadata.annotations", metadata.annotations)):
        if path.startswith(f"{prefix}['") and path.endswith("']"):
            return values.get(path[len(prefix) + 2 : -2], "")
    allowed = f"{', '.join(plain)}, metadata.labels['KEY'], metadata.annotations['KEY']"
    raise ConfigurationFault(f"fieldPath {path!r} is not known; allowed are {allowed}")


def _image_directory(container: Container, policy: RunPolicy) -> str:
    """The directory that stands for an image; empty: none does."""
    if not container.image.startswith(_IMAGE_DIRECTORY):
        return ""
    path = os.path.normpath(container.image.removeprefix(_IMAGE_DIRECTORY))
    if not any(path == root or path.startswith(root.rstrip("/") + "/") for root in policy.image_roots):
        allowed = ", ".join(policy.image_roots) or "none"
        raise ConfigurationFault(f"image {container.image!r} is not below a directory for images; allowed are {allowed}")
    return path


def _identity(pod: Pod, container: Container, policy: RunPolicy) -> tuple[int | None, int | None, list[int]]:
    """User, group and further groups; None: those of the agent."""
    own, whole = container.security_context, pod.spec.security_context
    user = first_of("run_as_user", own, whole)
    group = first_of("run_as_group", own, whole)
    if policy.own_user != 0:
        for what, asked, is_own in (("runAsUser", user, policy.own_user), ("runAsGroup", group, policy.own_group)):
            if asked is not None and asked != is_own:
                text = f"this node's agent is not root and runs all as {is_own}"
                raise ConfigurationFault(f'container "{container.name}": {what} {asked} is not possible, {text}')
        return None, None, []
    user = policy.pod_user if user is None else user
    if group is None:
        group = group_of(user, policy)
    check_user(pod, container, policy, user)
    check_groups(pod, container, policy, group, group_of(user, policy))
    return user, group, further_groups(pod)


def further_groups(pod: Pod) -> list[int]:
    """Beside that of the user."""
    whole = pod.spec.security_context
    return [*whole.supplemental_groups, *([whole.fs_group] if whole.HasField("fs_group") else [])]


def group_of(user: int, policy: RunPolicy) -> int:
    """Where a pod names none."""
    return policy.pod_group if user == policy.pod_user else user


def check_user(pod: Pod, container: Container, policy: RunPolicy, user: int) -> None:
    """Whom an agent that is root lets a container be. Raises ConfigurationFault."""
    own, whole = container.security_context, pod.spec.security_context
    not_root = first_of("run_as_non_root", own, whole)
    if user == 0 and (not policy.allow_root or not_root):
        reason = "its runAsNonRoot forbids it" if not_root else "--allow-root-pods is not set on this node"
        raise ConfigurationFault(f'container "{container.name}": cannot run as user 0, {reason}')
    # Whom the node itself chose it allows.
    if user:
        _check_id(f'container "{container.name}": runAsUser', user, policy.pod_user, policy.allowed_users)


def check_groups(pod: Pod, container: Container, policy: RunPolicy, group: int, own: int) -> None:
    """The same of its groups; `own`: that of its user. Raises ConfigurationFault."""
    whole = pod.spec.security_context
    named = [("supplementalGroups", one) for one in whole.supplemental_groups]
    if whole.HasField("fs_group"):
        named.append(("fsGroup", whole.fs_group))
    for what, one in (("runAsGroup", group), *named):
        if one == 0 and not policy.allow_root:
            text = f"{what} 0 is not possible, --allow-root-pods is not set on this node"
            raise ConfigurationFault(f'container "{container.name}": {text}')
        if one:
            _check_id(f'container "{container.name}": {what}', one, own, policy.allowed_groups)


def _check_id(what: str, asked: int, own: int, ranges: Sequence[tuple[int, int]]) -> None:
    if asked != own and not any(first <= asked <= last for first, last in ranges):
        allowed = ", ".join([str(own), *(f"{first}-{last}" for first, last in ranges)])
        raise ConfigurationFault(f"{what} {asked} is not allowed on this node; allowed are {allowed}")


def first_of(field_name: str, *contexts: Any) -> Any:
    for context in contexts:
        if context.HasField(field_name):
            return getattr(context, field_name)
    return None
