"""Which etcd lease a holder's record is written under: one at a time, and never a second one while the first may be alive.

A lease is used for a third of its time to live from the sending of whatever last prolonged it: what is written under it then
stands for as long as its writer may believe in it. Later it has to be kept alive first. Another one is granted only when etcd
says that the present one is gone, because a renewal that was sent under the old lease and arrives late would tie the record to
it again, and the record would vanish with it under the feet of a living leader. Under a lease that is gone etcd refuses to
write.

No I/O. Times are seconds of any clock that does not step back.
"""

from __future__ import annotations


class LeaseUse:
    """Owned by one lock."""

    __slots__ = ("_fresh_until", "_ttl_seconds", "lease_id")

    def __init__(self, ttl_seconds: int) -> None:
        self._ttl_seconds = ttl_seconds
        self.lease_id = 0
        """The present lease; 0: there is none, and one has to be granted."""
        self._fresh_until = 0.0

    def usable(self, now: float) -> int:
        """The lease to write under; 0: it has to be kept alive or granted first."""
        return self.lease_id if now < self._fresh_until else 0

    def granted(self, lease_id: int, sent: float) -> None:
        self.lease_id, self._fresh_until = lease_id, sent + self._ttl_seconds / 3

    def kept(self, lease_id: int, ttl_seconds: int, sent: float) -> None:
        """etcd's answer to a keepalive: the time that the lease has; 0 is its way to say that it is gone."""
        if ttl_seconds <= 0:
            self.gone(lease_id)
        elif lease_id == self.lease_id:
            self._fresh_until = max(self._fresh_until, sent + self._ttl_seconds / 3)

    def gone(self, lease_id: int) -> None:
        """etcd does not know this lease."""
        if lease_id == self.lease_id:
            self.lease_id, self._fresh_until = 0, 0.0
