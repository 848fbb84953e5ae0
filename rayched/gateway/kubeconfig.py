"""A kubeconfig for the gateway, so that people write `kubectl get pods`. Pure.

Source: clientcmd/api/v1 of client-go, Kubernetes 1.34.
"""

from __future__ import annotations

from rayched.api.yaml_text import dump_all

NAME = "rayched"
"""Of the cluster, the user and the context."""


def kubeconfig(server: str, namespace: str) -> str:
    """As YAML. `server` is an address such as http://127.0.0.1:7620."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": server}}],
        "users": [{"name": NAME, "user": {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
    }
    return dump_all([config])
