"""What is written into the cgroups of a container and of its pod, of the second version with controllers. Pure.

| file | value |
|---|---|
| memory.max | the limit; of the pod only where every container has one |
| memory.swap.max, memory.oom.group | 0 and 1 where there is a limit: none of it goes to disk, and all of it ends together |
| cpu.max | the limit, of each 100 ms; at least 1 ms |
| pids.max | of the pod: what the node lets each have |
| cpu.weight | ⌈10^((L² + 125 L) / 612 - 7 / 34)⌉ with L = log2(shares); 1 below 3 shares |

Shares are 1024 for a CPU that is requested, from 2 to 262144; so a CPU has a weight of 100.

Source: kubelet's container and pod cgroups, Kubernetes 1.34; runc's conversion of shares from 1.3.2 on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from rayched.api.quantity import milli_value, value
from rayched.api.resources import CPU, MEMORY, is_sidecar, pod_requests
from rayched.v1.core_pb2 import Container, Pod
from rayched.v1.meta_pb2 import Quantity

PERIOD_MICROSECONDS: Final = 100_000
_QUOTA_MIN: Final = 1_000
_SHARES_MIN: Final = 2
_SHARES_MAX: Final = 262_144
_WEIGHT_MAX: Final = 10_000


def container_limits(container: Container) -> dict[str, str]:
    """Values by file. Raises QuantityError."""
    found = {"cpu.weight": str(cpu_weight(cpu_shares(_milli(container.resources.requests))))}
    return found | _cpu(_milli(container.resources.limits)) | _memory(memory_limit(container))


def pod_limits(pod: Pod, pids: int = 0) -> dict[str, str]:
    """The same, of all its containers together. `pids`: processes and threads; 0: no limit. Raises QuantityError."""
    found = {"cpu.weight": str(cpu_weight(cpu_shares(pod_requests(pod).get(CPU, 0))))}
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    cpu, memory = [_milli(one.resources.limits) for one in containers], [memory_limit(one) for one in containers]
    if all(cpu):
        found |= _cpu(_together(pod, cpu) + _milli(pod.spec.overhead))
    if all(memory):
        found |= _memory(_together(pod, memory) + _bytes(pod.spec.overhead))
    if pids:
        found["pids.max"] = str(pids)
    return found


def memory_limit(container: Container) -> int:
    """Bytes; 0: none. Raises QuantityError."""
    return _bytes(container.resources.limits)


def cpu_quota(container: Container) -> int:
    """Microseconds of each period; 0: no limit. Raises QuantityError."""
    return _quota(_milli(container.resources.limits))


def cpu_shares(milli: int) -> int:
    return min(max(milli * 1024 // 1000, _SHARES_MIN), _SHARES_MAX)


def container_shares(container: Container) -> int:
    """Raises QuantityError."""
    return cpu_shares(_milli(container.resources.requests))


def cpu_weight(shares: int) -> int:
    if shares <= _SHARES_MIN:
        return 1
    if shares >= _SHARES_MAX:
        return _WEIGHT_MAX
    exponent = math.log2(shares)
    return math.ceil(10 ** ((exponent * exponent + 125 * exponent) / 612 - 7 / 34))


def _together(pod: Pod, amounts: list[int]) -> int:
    """`amounts` in the order of its containers, then its init containers: sidecars run beside all others, the rest one by one."""
    beside = sum(amounts[: len(pod.spec.containers)])
    sidecars, alone = 0, 0
    for one, amount in zip(pod.spec.init_containers, amounts[len(pod.spec.containers) :], strict=True):
        if is_sidecar(one):
            sidecars += amount
        else:
            alone = max(alone, sidecars + amount)
    return max(beside + sidecars, alone)


def _cpu(milli: int) -> dict[str, str]:
    return {"cpu.max": f"{_quota(milli)} {PERIOD_MICROSECONDS}"} if milli else {}


def _quota(milli: int) -> int:
    return max(milli * PERIOD_MICROSECONDS // 1000, _QUOTA_MIN) if milli else 0


def _memory(limit: int) -> dict[str, str]:
    return {"memory.max": str(limit), "memory.swap.max": "0", "memory.oom.group": "1"} if limit else {}


def _milli(amounts: Mapping[str, Quantity]) -> int:
    return milli_value(amounts[CPU].string) if CPU in amounts else 0


def _bytes(amounts: Mapping[str, Quantity]) -> int:
    return value(amounts[MEMORY].string) if MEMORY in amounts else 0
