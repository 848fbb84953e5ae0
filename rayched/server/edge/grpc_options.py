"""The options of a replica's gRPC server: what gRPC's own code refuses before this one hears of it."""

from __future__ import annotations

from collections.abc import Sequence

from rayched.server.edge.limits import EdgeLimits
from rayched.server.edge.method_traits import REPORT_BYTES_MAX


def server_options(limits: EdgeLimits) -> Sequence[tuple[str, int]]:
    """As grpc.aio.server takes them."""
    return (
        # Without it two servers could share a port and each get some of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", REPORT_BYTES_MAX),
        # One bit a way of compression: none but the identity. A few bytes would unpack to megabytes.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        # Between the two gRPC refuses the more the larger they are.
        ("grpc.max_metadata_size", 4 << 10),
        ("grpc.absolute_max_metadata_size", 8 << 10),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.max_concurrent_streams", limits.calls_a_connection),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake_seconds * 1_000)),
        ("grpc.max_connection_idle_ms", int(limits.idle_seconds * 1_000)),
        ("grpc.max_connection_age_ms", int(limits.age_seconds * 1_000)),
        # Calls that come all at once are refused by the edge, with a reason and a delay, and not by gRPC as CANCELLED.
        ("grpc.server.max_pending_requests", 1 << 16),
        ("grpc.server.max_pending_requests_hard_limit", 1 << 17),
        # Seconds after which gRPC would do so all the same, where this process has had no time for them; 30 unless told.
        ("grpc.server_max_unrequested_time_in_server", 300),
        # A request that nobody reads takes a window of its stream, and windows do not grow by themselves.
        ("grpc.http2.lookahead_bytes", 64 << 10),
        ("grpc.http2.bdp_probe", 0),
        # The client pings every 6 s, also without a call.
        ("grpc.http2.min_ping_interval_without_data_ms", 4000),
        ("grpc.keepalive_permit_without_calls", 1),
        # A client that vanished without a word is noticed, and its streams end.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
    )
