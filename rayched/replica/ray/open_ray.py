"""Whether a Ray cluster takes whoever comes. Who reaches one that does runs code there as whoever started it.

Its GCS is asked whether it lives, without a token: a question that changes nothing, and that one with a token refuses.
"""

from __future__ import annotations

from typing import Final

import grpc

_QUESTION: Final = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_SECONDS_MAX: Final = 5.0
_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
OPEN_RAY: Final = (
    "this Ray takes whoever comes, and who reaches it runs code as rayched does; start it with RAY_AUTH_MODE=token and"
    " RAY_AUTH_TOKEN_PATH, and give the same to this command"
)


def takes_whoever_comes(address: str) -> bool:
    """`address`: host:port of the GCS. False also where nobody answers, or TLS is spoken: then connecting tells more."""
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        try:
            channel.unary_unary(_QUESTION)(b"", timeout=_SECONDS_MAX)
        except grpc.RpcError:
            return False
    return True
