"""One call after another, from one seed: a method, who calls it, what is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from rayched.v1 import access_pb2, services_pb2, streams_pb2, workloads_pb2
from rayched.v1.core_pb2 import Pod
from tests.fuzz.callers import ADMIN, HOLLOW, ROLES
from tests.fuzz.values import NAMESPACES, NODES, PODS, damaged, fill, text

API: Final = (services_pb2, access_pb2, streams_pb2)
_OTHERS: Final = (health_pb2, reflection_pb2)
_STREAM_SHARE: Final = 0.04
"""Of calls to methods that stream: they take a while each."""
_SOUND_SHARE: Final = 0.5
"""Of requests about an object: it is a sound one with parts that are not."""
_DAMAGED_SHARE: Final = 0.06
_KEPT_SHARE: Final = 0.15
"""Of writes that could be a dry run and are none: what is kept grows until it is cleared."""
_LARGE_SHARE: Final = 0.001
_LARGE_BYTES: Final = (1_250_000, 1_400_000, 4_100_000)
_HEADERS: Final = (
    ("rayched-for", "spiffe://rayched-00000000/user/admin"),
    ("rayched-hops", "-1"),
    ("authorization", "Bearer rt_abcdefgh_" + "x" * 43),
    ("x-large", "x" * 6_000),
    ("user-agent", "gap"),
)
_HEADER_SHARE: Final = 0.05
_UNKNOWN_SHARE: Final = 0.002
_BY_SHARE: Final = (*(role.name for role in ROLES), *(ADMIN,) * 5, *("submitter",) * 3, *(HOLLOW,) * 2)
"""Who calls: those who may more come further than to their own refusal."""


@dataclass(frozen=True)
class FuzzedCall:
    """`messages` are bytes, perhaps no messages; more than one where the method takes a stream."""

    number: int
    role: str
    path: str
    messages: tuple[bytes, ...]
    streams_in: bool = False
    streams_out: bool = False
    is_compressed: bool = False
    metadata: tuple[tuple[str, str], ...] = field(default=())

    @property
    def method(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def is_known(self) -> bool:
        """Whether the API has such a method."""
        return not self.path.endswith("/Nothing")


class FuzzedCalls:
    """Iterate over it; equal seeds give equal calls."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        services = [one for module in (*API, *_OTHERS) for one in module.DESCRIPTOR.services_by_name.values()]
        self._methods = [method for service in services for method in service.methods]
        self._plain = [one for one in self._methods if not one.client_streaming and not one.server_streaming]
        self._streams = [one for one in self._methods if one not in self._plain]

    @property
    def paths(self) -> Sequence[str]:
        """Of all methods."""
        return [_path(one) for one in self._methods]

    def __iter__(self) -> Iterator[FuzzedCall]:
        number = 0
        while True:
            yield self._call(number)
            number += 1

    def _call(self, number: int) -> FuzzedCall:
        random = self._random
        method = random.choice(self._streams if random.random() < _STREAM_SHARE else self._plain)
        role = random.choice(_BY_SHARE)
        count = random.choice((0, 1, 1, 2, 3)) if method.client_streaming else 1
        messages = tuple(self._message(method) for _ in range(count))
        metadata = (random.choice(_HEADERS),) if random.random() < _HEADER_SHARE else ()
        path = _path(method)
        if random.random() < _UNKNOWN_SHARE:
            path = path.rpartition("/")[0] + "/Nothing"
        return FuzzedCall(
            number,
            role,
            path,
            messages,
            bool(method.client_streaming),
            bool(method.server_streaming),
            random.random() < _UNKNOWN_SHARE,
            metadata,
        )

    def _message(self, method: MethodDescriptor) -> bytes:
        random = self._random
        request = message_factory.GetMessageClass(method.input_type)()
        fields = request.DESCRIPTOR.fields_by_name
        if ("object" in fields or "objects" in fields) and random.random() < _SOUND_SHARE:
            if "objects" in fields:
                for _ in range(random.choice((1, 2, 5))):
                    self._pod(request.objects.add())
            else:
                self._pod(request.object)
        else:
            fill(random, request, random.choice((0.1, 0.3, 0.6)))
            self._known(request)
        if "dry_run" in fields:
            request.dry_run = random.random() >= _KEPT_SHARE
        if random.random() < _LARGE_SHARE:
            # As an unknown field, which every parser has to skip.
            return bytes(request.SerializeToString()) + _unknown_field(random.choice(_LARGE_BYTES))
        data: bytes = request.SerializeToString()
        return damaged(random, data) if random.random() < _DAMAGED_SHARE else data

    def _pod(self, target: workloads_pb2.Object) -> None:
        """A pod that could run, with a part of its spec that is random."""
        random = self._random
        name = random.choice(PODS) if random.random() < 0.5 else f"fuzzed-{random.randrange(200)}"
        pod = Pod(metadata={"name": name, "namespace": random.choice(NAMESPACES)})
        pod.spec.containers.add(name="main", image="image").resources.requests["cpu"].string = "10m"
        if random.random() < 0.7:
            one = random.choice(pod.spec.DESCRIPTOR.fields)
            whole = type(pod.spec)()
            fill(random, whole, 0.5, 1)
            for other in whole.DESCRIPTOR.fields:
                if other.name != one.name:
                    whole.ClearField(other.name)
            pod.spec.MergeFrom(whole)
        if random.random() < 0.2:
            pod.metadata.labels[text(random)] = text(random)
        target.pod.CopyFrom(pod)

    def _known(self, request: Any) -> None:
        """Names of what there is, so that calls come further than to the first look."""
        random = self._random
        for name, words in (("namespace", NAMESPACES), ("name", (*PODS, *NODES)), ("node", NODES), ("node_name", NODES)):
            one = request.DESCRIPTOR.fields_by_name.get(name)
            if one is not None and one.message_type is None and not one.is_repeated and random.random() < 0.6:
                setattr(request, name, random.choice(words))
        key = request.DESCRIPTOR.fields_by_name.get("key")
        if key is not None and key.message_type is not None and not key.is_repeated and random.random() < 0.8:
            request.key.kind, (request.key.namespace, request.key.name) = random.choice(
                (("Pod", (random.choice(NAMESPACES), random.choice(PODS))), ("Node", ("", random.choice(NODES))))
            )


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _unknown_field(size: int) -> bytes:
    """Field 2,000 with so many bytes."""
    length, written = size, bytearray()
    while length > 0x7F:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    return b"\x82\x7d" + bytes(written) + bytes([length]) + bytes(size)
