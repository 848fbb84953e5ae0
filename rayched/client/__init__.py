"""The Python SDK of rayched."""

from rayched.client.bulk_submission import Submitted
from rayched.client.client import Client, Listing
from rayched.client.errors import ApiError, Violation
from rayched.client.watch import Event, EventType, LeaderStream, WatchStream

__all__ = ["ApiError", "Client", "Event", "EventType", "LeaderStream", "Listing", "Submitted", "Violation", "WatchStream"]
