"""The Python SDK of rayched."""

from rayched.client.async_client import AsyncClient
from rayched.client.async_streaming import AsyncLogStream
from rayched.client.async_two_way import AsyncExecStream, AsyncPortForwarder
from rayched.client.async_watch import AsyncLeaderStream, AsyncWatchStream
from rayched.client.bindings import NotBound
from rayched.client.calls import Listing
from rayched.client.client import Client
from rayched.client.errors import ApiError, Violation
from rayched.client.executing import ExecOutput, ExecStream
from rayched.client.forwarding import PortForwarder
from rayched.client.log_following import LogChunk
from rayched.client.objects import new_job, new_node, new_pod
from rayched.client.streaming import LogStream
from rayched.client.submissions import NotAllSubmitted, SubmitOutcomes, Submitted
from rayched.client.watch import LeaderStream, WatchStream
from rayched.client.watching import Event, EventType

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncExecStream",
    "AsyncLeaderStream",
    "AsyncLogStream",
    "AsyncPortForwarder",
    "AsyncWatchStream",
    "Client",
    "Event",
    "EventType",
    "ExecOutput",
    "ExecStream",
    "LeaderStream",
    "Listing",
    "LogChunk",
    "LogStream",
    "NotAllSubmitted",
    "NotBound",
    "PortForwarder",
    "SubmitOutcomes",
    "Submitted",
    "Violation",
    "WatchStream",
    "new_job",
    "new_node",
    "new_pod",
]
