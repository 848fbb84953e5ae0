"""Events without end for those who watch: gated pods whose annotation changes, written to etcd itself at a steady rate.

No scheduler has anything to do with them, and no replica has to live for the writes, so the rate stays what it is through every
fault but the loss of etcd's quorum.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Final

import grpc

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Object

BATCH: Final = 100
"""Pods, and changes in one revision."""
_CALL_SECONDS: Final = 2.0
_BEHIND_SECONDS_MAX: Final = 1.0


class Flood:
    """A thread that changes `rate` pods a second. What is more than a second late is not made up for."""

    def __init__(self, endpoints: Sequence[str], rate: float, root: str = "/rayched") -> None:
        self._endpoints = endpoints
        self._rate = rate
        self._values = [_pod(number) for number in range(BATCH)]
        self._prefix = f"{root}/cluster/pods/default/".encode()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flood", daemon=True)
        self.written = 0
        """Changes that etcd has acknowledged."""

    def start(self) -> Flood:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        with open_channel(self._endpoints) as channel:
            kv = rpc.KVStub(channel)
            due = time.monotonic()
            for turn in itertools.count():
                if self._stopped.is_set():
                    return
                try:
                    kv.Txn(self._request(turn), timeout=_CALL_SECONDS)
                    self.written += BATCH
                except grpc.RpcError:
                    # etcd has no leader now; the auditor sees whether it was written.
                    self._stopped.wait(0.05)
                due = max(due + BATCH / self._rate, time.monotonic() - _BEHIND_SECONDS_MAX)
                self._stopped.wait(max(0.0, due - time.monotonic()))

    def _request(self, turn: int) -> rpc.TxnRequest:
        request = rpc.TxnRequest()
        for pod in self._values:
            pod.metadata.annotations["turn"] = str(turn)
            put = request.success.add().request_put
            put.key, put.value = self._prefix + pod.metadata.name.encode(), encode(Object(pod=pod))
        return request


def _pod(number: int) -> Pod:
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid = "default", f"flood-{number}", str(uuid.uuid4())
    pod.spec.scheduler_name = "nobody"
    pod.spec.scheduling_gates.add(name="chaos/flood")
    pod.spec.containers.add(name="main", image="registry.example/main:1")
    return pod
