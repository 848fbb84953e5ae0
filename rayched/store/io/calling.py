"""How calls on etcd are made and repeated: what both of the store's clients do in the same way."""

from __future__ import annotations

from typing import Any, Final

import tenacity

from leader.etcd_shim import rpc
from rayched.store.calls import Deadlines
from rayched.store.errors import StoreUnavailable

_TXN: Final = "/etcdserverpb.KV/Txn"


def serialized_txn(channel: Any) -> Any:
    """The call Txn for requests that are serialised already."""
    return channel.unary_unary(_TXN, response_deserializer=rpc.TxnResponse.FromString)


def patience(deadlines: Deadlines) -> dict[str, Any]:
    return {
        "stop": tenacity.stop_after_delay(deadlines.patience_seconds),
        "wait": tenacity.wait_random_exponential(deadlines.pause_seconds_min, deadlines.pause_seconds_max),
        "retry": tenacity.retry_if_exception_type(StoreUnavailable),
        "reraise": True,
    }
