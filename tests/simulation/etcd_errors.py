"""What a call on the model of etcd ends with: gRPC's errors, with etcd's own texts."""

from __future__ import annotations

import grpc


class EtcdError(grpc.RpcError):
    """What a call on etcd ends with."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


def compacted() -> EtcdError:
    return EtcdError(grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")


def future_revision() -> EtcdError:
    return EtcdError(grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")


def duplicate_key() -> EtcdError:
    return EtcdError(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request")


def no_lease() -> EtcdError:
    return EtcdError(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")


def too_many_operations() -> EtcdError:
    return EtcdError(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: too many operations in txn request")


def no_space() -> EtcdError:
    return EtcdError(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
