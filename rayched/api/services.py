"""All services of the gRPC API by name, whichever file of protos/ they stand in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.descriptor import ServiceDescriptor

from rayched.v1 import access_pb2, services_pb2, streams_pb2

DESCRIPTORS: Final[Mapping[str, ServiceDescriptor]] = {
    name: service
    for file in (services_pb2.DESCRIPTOR, streams_pb2.DESCRIPTOR, access_pb2.DESCRIPTOR)
    for name, service in file.services_by_name.items()
}
