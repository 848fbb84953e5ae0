"""Rules for what only a node's agent reads of a container: probes, hooks, users, mounts; and for the pod's volumes.

Source: ValidatePodSpec, Kubernetes 1.34. Differs: what a container may mount and as whom it may run is the node's to say, not the
API's.
"""

from __future__ import annotations

from typing import Any, Final

from rayched.api.errors import quoted
from rayched.api.names import label_fault
from rayched.api.validation.faults import Faults
from rayched.v1.core_pb2 import Container, PodSpec, Probe
from rayched.v1.meta_pb2 import IntOrString

PORT_MAX: Final = 65_535
_SECONDS_MAX: Final = 2**31 - 1
_USER_MAX: Final = 2**31 - 1
_SIGNALS: Final = (
    "ABRT ALRM BUS CHLD CONT FPE HUP ILL INT IO KILL PIPE PROF PWR QUIT RTMAX RTMIN SEGV STOP SYS TERM TRAP TSTP TTIN TTOU "
    "URG USR1 USR2 VTALRM WINCH XCPU XFSZ"
)
_STOP_SIGNALS: Final = tuple(f"SIG{name}" for name in _SIGNALS.split(" "))
_PROBES: Final = (("livenessProbe", "liveness_probe"), ("readinessProbe", "readiness_probe"), ("startupProbe", "startup_probe"))


def check_volumes(spec: PodSpec, path: str, faults: Faults) -> None:
    """Volumes, and what containers mount of them."""
    names: set[str] = set()
    for position, volume in enumerate(spec.volumes):
        where = f"{path}.volumes[{position}].name"
        faults.check(where, label_fault(volume.name))
        if volume.name in names:
            faults.add(where, f"{quoted(volume.name)} occurs twice")
        names.add(volume.name)
        if volume.HasField("host_path") and not volume.host_path.path.startswith("/"):
            faults.add(f"{path}.volumes[{position}].hostPath.path", f"{quoted(volume.host_path.path)} must be absolute")
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for position, container in enumerate(containers):
            for place, mount in enumerate(container.volume_mounts):
                if mount.name not in names:
                    where = f"{path}.{field}[{position}].volumeMounts[{place}].name"
                    faults.add(where, f"{quoted(mount.name)} is no volume of the pod")


def check_running(container: Container, path: str, faults: Faults) -> None:
    """Probes, hooks and users."""
    for field, name in _PROBES:
        if container.HasField(name):
            _check_probe(getattr(container, name), f"{path}.{field}", name != "readiness_probe", faults)
    for field, name in (("postStart", "post_start"), ("preStop", "pre_stop")):
        if container.lifecycle.HasField(name):
            where = f"{path}.lifecycle.{field}"
            _check_handler(getattr(container.lifecycle, name), where, ("exec", "httpGet", "sleep"), faults)
    if container.lifecycle.stop_signal:
        faults.choice(f"{path}.lifecycle.stopSignal", container.lifecycle.stop_signal, _STOP_SIGNALS)
    if container.HasField("security_context"):
        check_users(container.security_context, f"{path}.securityContext", faults)


def check_users(context: Any, path: str, faults: Faults) -> None:
    for field, name in (("runAsUser", "run_as_user"), ("runAsGroup", "run_as_group")):
        if context.HasField(name):
            faults.within(f"{path}.{field}", getattr(context, name), 0, _USER_MAX)


def _check_probe(probe: Probe, path: str, once: bool, faults: Faults) -> None:
    """`once`: a single success is enough, and more cannot be asked for."""
    _check_handler(probe, path, ("exec", "httpGet", "tcpSocket"), faults)
    for field, number in (
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ):
        if number < 0:
            faults.not_negative(f"{path}.{field}", number)
    if once and probe.success_threshold > 1:
        faults.add(f"{path}.successThreshold", f"{probe.success_threshold} is not allowed; allowed is 1")
    if probe.HasField("termination_grace_period_seconds"):
        where = f"{path}.terminationGracePeriodSeconds"
        faults.within(where, probe.termination_grace_period_seconds, 1, _SECONDS_MAX)


def _check_handler(handler: Any, path: str, allowed: tuple[str, ...], faults: Faults) -> None:
    names = {"exec": "exec", "httpGet": "http_get", "tcpSocket": "tcp_socket", "sleep": "sleep"}
    given = [field for field in allowed if handler.HasField(names[field])]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        faults.add(path, f"want exactly one of {', '.join(allowed)}, found {found}")
    if "exec" in given and not handler.exec.command:
        faults.add(f"{path}.exec.command", "is required")
    for field in ("httpGet", "tcpSocket"):
        if field in given:
            _check_port(getattr(handler, names[field]).port, f"{path}.{field}.port", faults)


def _check_port(port: IntOrString, path: str, faults: Faults) -> None:
    if port.WhichOneof("value") != "string_value":
        faults.within(path, port.int_value, 1, PORT_MAX)
    elif not port.string_value:
        faults.add(path, "is required")
