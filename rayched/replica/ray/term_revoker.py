"""How a guardian ends the term of a replica that is gone: it revokes exactly the lease under which that had published itself.

The replica's followers see its record vanish and acquire at once, in place of waiting until its lease has run out. That is safe
at any time, as every write is guarded by the epoch (leader/revocation.py).

What speaks gRPC costs 25 MB and a fifth of a second to load. So a guardian loads it only when its replica leads, a little later,
when the takeover is over that made it a leader; or when it is needed before.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

from rayched.replica.ray.published_term import PublishedTerm

PREPARE_AFTER_SECONDS: Final = 2.0
_TIMEOUT_SECONDS: Final = 1.0
_ATTEMPTS: Final = 3
_PAUSE_SECONDS: Final = 0.1
_END_SECONDS_MAX: Final = 4.0

log = logging.getLogger("rayched.guardian")


class TermRevoker:
    """Owned by one guardian, whose main thread calls it."""

    def __init__(self) -> None:
        self._term: PublishedTerm | None = None
        self._unfinished = b""
        self._channel: Any = None
        self._prepare_at: float | None = None
        self._thread: threading.Thread | None = None

    def hear(self, said: bytes) -> None:
        """What came through the pipe: lines, and parts of lines."""
        *lines, self._unfinished = (self._unfinished + said).split(b"\n")
        if lines:
            self._term = PublishedTerm.from_line(lines[-1])
            if self._term is not None and self._channel is None:
                self._prepare_at = time.monotonic() + PREPARE_AFTER_SECONDS

    def wait_seconds(self) -> float | None:
        """Until `prepare` has something to do; None: it has not."""
        return None if self._prepare_at is None else max(0.0, self._prepare_at - time.monotonic())

    def prepare(self) -> None:
        """Loads and connects where it is time to."""
        if self.wait_seconds() == 0.0 and self._term is not None:
            self._open(self._term)

    def revoke(self, detail: str) -> None:
        """Begins to end the term that was published last. `detail`: how the replica's end was seen."""
        if self._term is not None:
            self._thread = threading.Thread(target=self._revoke, args=(self._term, detail), name="revocation", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Returns when that is done, or has taken too long: then the lease runs out."""
        if self._thread is not None:
            self._thread.join(_END_SECONDS_MAX)
        if self._channel is not None:
            self._channel.close()

    def _open(self, term: PublishedTerm) -> None:
        self._prepare_at = None
        if self._channel is None:
            import leader.revocation  # noqa: F401
            from leader.channel import open_channel

            self._channel = open_channel(term.endpoints)
            self._channel.subscribe(lambda _: None, try_to_connect=True)

    def _revoke(self, term: PublishedTerm, detail: str) -> None:
        began = time.monotonic()
        self._open(term)
        import grpc

        from leader.etcd_requests import LockKeys
        from leader.revocation import Evidence, HeldTerm, RevocationNote, revoke

        keys = LockKeys(term.record.encode(), term.epoch_key.encode(), term.note.encode())
        held = HeldTerm(term.lease_id, term.epoch)
        note = RevocationNote(term.epoch, Evidence.DEAD, f"guardian of {term.identity}", detail)
        what = f"epoch {term.epoch} of {term.identity}, {detail}"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                is_ended = revoke(self._channel, keys, held, note, _TIMEOUT_SECONDS)
            except grpc.RpcError as error:
                log.warning("%s: its lease is not revoked, attempt %d of %d: %s", what, attempt, _ATTEMPTS, error.code().name)
                time.sleep(_PAUSE_SECONDS)
                continue
            if is_ended:
                log.warning("%s: its lease is revoked, after %.3f s", what, time.monotonic() - began)
            else:
                log.info("%s: nothing to revoke, the term has ended", what)
            return
