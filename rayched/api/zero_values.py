"""Fields that Kubernetes writes also where they are zero or empty.

Most fields of an object are left out where they are not set. These are not: scripts ask for them (`exitCode == 0`), and typed
clients refuse an object without them. Message name -> JSON names; all of them are plain values.

Source: fields without `omitempty` in k8s.io/api 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ALWAYS_WRITTEN: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "ContainerStatus": "name ready restartCount image imageID",
        "ContainerStateTerminated": "exitCode",
        "NodeSystemInfo": """
            architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion kubeletVersion machineID operatingSystem
            osImage systemUUID
            """,
        "Condition": "type status reason message",
        "PodDisruptionBudgetStatus": "disruptionsAllowed currentHealthy desiredHealthy expectedPods",
        "PriorityClass": "value",
        "ReplicaSetStatus": "replicas",
    }.items()
}
