"""A kubeconfig for gateways, so that people write `kubectl get pods`. Pure.

Certificates and tokens are named by their files, which kubectl reads at each start, so that new ones are taken as they come.

Source: clientcmd/api/v1 of client-go, Kubernetes 1.34.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rayched.api.yaml_text import TextError, dump_all, load_all
from rayched.pki.client_token import CallerFiles, TokenFiles

NAME: Final = "rayched"
"""Of the user, and of the first cluster and its context."""
_OWN: Final = re.compile(rf"{NAME}(-[0-9]+)?")


def context_name(number: int) -> str:
    """Of the server with this place in the list."""
    return f"{NAME}-{number}" if number else NAME


def kubeconfig(servers: Sequence[str], namespace: str, files: CallerFiles | None, current: int = 0) -> str:
    """As YAML: a cluster and a context for each server, an address such as https://127.0.0.1:7620; `current` is one's place.

    `files`: the user's certificate or token; None: there is no TLS.
    """
    names = [context_name(number) for number in range(len(servers))]
    clusters, user = [], dict[str, Any]()
    for name, server in zip(names, servers, strict=True):
        cluster = {"server": server}
        if files is not None:
            cluster["certificate-authority"] = _place(files.ca)
        clusters.append({"name": name, "cluster": cluster})
    if isinstance(files, TokenFiles):
        user = {"tokenFile": _place(files.token)}
    elif files is not None:
        user = {"client-certificate": _place(files.certificate), "client-key": _place(files.key)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "users": [{"name": NAME, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": NAME, "namespace": namespace}} for name in names],
        "current-context": names[current],
    }
    return dump_all([config])


def is_own(text: str) -> bool:
    """Whether this names gateways alone, as `kubeconfig` does, also once kubectl has written it anew."""
    try:
        (config,) = load_all(text, "")
        names = {kind: {one["name"] for one in config[kind]} for kind in ("clusters", "contexts", "users")}
    except (TextError, ValueError, TypeError, KeyError):
        return False
    return names["users"] == {NAME} and all(_OWN.fullmatch(str(name)) for name in names["clusters"] | names["contexts"])


def _place(path: Path) -> str:
    """As a kubeconfig names files wherever it lies itself."""
    return str(path.absolute())
