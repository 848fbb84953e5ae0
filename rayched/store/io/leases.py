"""Renewing many leases over one stream: eight times the rate of a call for each.

A renewal of a dead lease is not an error in etcd's API: the answer's time to live is 0. One caller at a time; after a failure the
stream is gone and the next renewal opens another.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import Sequence
from typing import Any, Final

import grpc
import grpc.aio

from leader.etcd_shim import rpc
from rayched.store.errors import StoreUnavailable, store_error

_ENDED: Final = "etcd: the stream of lease renewals ended"


class LeaseKeepAlives:
    """For threads; used by one at a time. Close it."""

    def __init__(self, stub: Any, timeout_seconds: float) -> None:
        self._stub = stub
        self._timeout_seconds = timeout_seconds
        self._requests: queue.SimpleQueue[Any] | None = None
        self._call: Any = None

    def renew(self, leases: Sequence[int]) -> dict[int, int]:
        """Time to live in seconds by lease; 0: the lease is gone. Raises StoreUnavailable without all answers in time."""
        if self._requests is None:
            self._requests = queue.SimpleQueue()
            self._call = self._stub.LeaseKeepAlive(iter(self._requests.get, None))
        # The stream as a whole has no deadline, only each round of renewals.
        timer = threading.Timer(self._timeout_seconds, self._call.cancel)
        timer.start()
        try:
            for lease in leases:
                self._requests.put(rpc.LeaseKeepAliveRequest(ID=lease))
            answers = list(itertools.islice(self._call, len(leases)))
            if len(answers) < len(leases):
                raise StoreUnavailable(_ENDED)
            return {answer.ID: answer.TTL for answer in answers}
        except (grpc.RpcError, StoreUnavailable) as error:
            self.close()
            raise store_error(error) from error
        finally:
            timer.cancel()

    def close(self) -> None:
        if self._requests is not None:
            self._requests.put(None)
            self._call.cancel()
            self._requests = None


class AsyncLeaseKeepAlives:
    """For one task at a time of an event loop. Close it."""

    def __init__(self, stub: Any, timeout_seconds: float) -> None:
        self._stub = stub
        self._timeout_seconds = timeout_seconds
        self._call: Any = None

    async def renew(self, leases: Sequence[int]) -> dict[int, int]:
        """As LeaseKeepAlives.renew."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._renew(leases)
        except TimeoutError as error:
            self.close()
            raise StoreUnavailable(f"etcd: no answer to lease renewals within {self._timeout_seconds:g} s") from error
        except grpc.RpcError as error:
            self.close()
            raise store_error(error) from error
        except BaseException:
            # Cancelled half-way: an answer that is still to come must not be taken for that of a later renewal.
            self.close()
            raise

    async def _renew(self, leases: Sequence[int]) -> dict[int, int]:
        if self._call is None:
            self._call = self._stub.LeaseKeepAlive()
        for lease in leases:
            await self._call.write(rpc.LeaseKeepAliveRequest(ID=lease))
        left: dict[int, int] = {}
        for _ in leases:
            answer = await self._call.read()
            if answer is grpc.aio.EOF:
                raise StoreUnavailable(_ENDED)
            left[answer.ID] = answer.TTL
        return left

    def close(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None
