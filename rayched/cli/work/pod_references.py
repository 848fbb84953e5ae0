"""The pod and the container that a command reaches into, by kubectl's rules."""

from __future__ import annotations

from rayched.cli.printing import fail, note, wrong
from rayched.client.client import Client
from rayched.v1.core_pb2 import Pod

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def pod_name(word: str, what: str) -> str:
    """Of `web` or `pod/web`. `what` is done to pods alone."""
    kind, _, name = word.rpartition("/")
    if kind not in ("", "pod", "pods", "po"):
        wrong(f"{word}: only pods {what}")
    return name


def pod_of(client: Client, name: str, namespace: str) -> Pod:
    return client.get("pod", name, namespace)


def container_names(pod: Pod) -> list[str]:
    """In the order in which they start."""
    return [one.name for one in (*pod.spec.init_containers, *pod.spec.containers)]


def container_of(pod: Pod, given: str) -> str:
    """The one given, else the default one, which is told where there are several."""
    regular = [one.name for one in pod.spec.containers]
    if given:
        if given not in container_names(pod):
            fail(f"container {given} is not valid for pod {pod.metadata.name}")
        return given
    annotated = pod.metadata.annotations.get(_DEFAULT_CONTAINER, "")
    if annotated in container_names(pod):
        return annotated
    if annotated:
        note(f'Default container name "{annotated}" not found in a pod')
    if len(regular) > 1:
        note(f'Defaulted container "{regular[0]}" out of: {", ".join((*regular, *container_names(pod)[: -len(regular)]))}')
    return regular[0]
