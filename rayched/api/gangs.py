"""A job that asks to be a pod group: with the annotation its controller makes a PodGroup, of which all its pods are members.

```yaml
kind: Job
metadata: {name: train, annotations: {rayched.dev/gang: "true"}}
```

The group has the job's name, and its minCount is the job's parallelism, or its completions where these are fewer. A template that
names a group itself keeps it, and none is made.

Pure.
"""

from __future__ import annotations

from typing import Final

from rayched.v1.workloads_pb2 import Job

GANG_ANNOTATION: Final = "rayched.dev/gang"
YES: Final = "true"
NO: Final = "false"


def asks_for_group(job: Job) -> bool:
    """Whether its pods start together or not at all, in a group that its controller makes."""
    own = job.spec.template.spec.scheduling_group.pod_group_name
    return job.metadata.annotations.get(GANG_ANNOTATION) == YES and not own


def min_count(job: Job) -> int:
    """How many of its pods have to start together; 0: it wants none now."""
    spec = job.spec
    if spec.suspend:
        return 0
    return min(spec.parallelism, spec.completions) if spec.HasField("completions") else spec.parallelism
