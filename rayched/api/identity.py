"""Who a call says it is from: a text in its metadata. Pure.

Of a node's agent it is `system:node:<name>`, as Kubernetes names kubelets. A call without an identity is from whoever can reach
the replicas.
"""

from __future__ import annotations

from typing import Final

IDENTITY_METADATA: Final = "rayched-identity"
FOR_METADATA: Final = "rayched-for"
"""In whose name a replica or a gateway makes a call: the URI of an identity, which is believed from these alone."""
FOR_SERIAL_METADATA: Final = "rayched-for-serial"
"""The serial number of the certificate that whom a gateway names has shown to it, hexadecimal, and behind a blank the id of the
bearer token that it was made with, where it was; believed from gateways alone."""
FOR_BEARER_METADATA: Final = "rayched-for-token"
"""The bearer token that the user has shown in whose name a gateway makes a call; looked at from gateways alone."""
_NODE_PREFIX: Final = "system:node:"


def node_identity(node: str) -> str:
    return _NODE_PREFIX + node


def node_of(identity: str) -> str | None:
    """The node whose agent has this identity; None: it is no agent's."""
    return identity.removeprefix(_NODE_PREFIX) if identity.startswith(_NODE_PREFIX) else None
