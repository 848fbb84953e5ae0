"""What a replica tells its guardian of the term that it holds: one line of JSON through the pipe between them.

The guardian keeps the last line. Light to import, as the guardian is: what speaks to etcd is loaded when there is a term.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leader.revocation import HeldTerm
    from rayched.replica.settings import ReplicaSettings

LINE_BYTES_MAX: Final = 4096
"""So much the kernel writes into a pipe as a whole, or not at all."""


@dataclass(frozen=True, slots=True)
class PublishedTerm:
    """A term, and all that is needed to end it."""

    identity: str
    endpoints: tuple[str, ...]
    record: str
    epoch_key: str
    note: str
    """Keys in etcd."""
    lease_id: int
    epoch: int

    def to_line(self) -> bytes:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        if tls := getattr(self.endpoints, "tls", None):
            found["tls"] = asdict(tls)
        return json.dumps(found, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> PublishedTerm | None:
        """None: the replica holds none any more."""
        if not line.strip():
            return None
        found = json.loads(line)
        tls, endpoints = found.pop("tls", None), tuple(found.pop("endpoints"))
        if tls is not None:
            # Not at the top: a guardian waits for gRPC only where it has a term to end.
            from leader.channel import SecureEndpoints
            from leader.tls_channel import EtcdTls

            endpoints = SecureEndpoints(endpoints, EtcdTls(**tls))
        return cls(endpoints=endpoints, **found)


def term_line(settings: ReplicaSettings, endpoints: tuple[str, ...], held: HeldTerm | None) -> bytes:
    """For the guardian of this replica. Empty where it holds no term, and where a takeover waits for the lease in any case."""
    if held is None or not settings.takes_evidence:
        return b"\n"
    from rayched.store.keys import Keys

    keys = Keys(settings.root)
    record, epoch, note = (key.decode() for key in (keys.record, keys.epoch, keys.revocation))
    return PublishedTerm(settings.identity, endpoints, record, epoch, note, held.lease_id, held.epoch).to_line()
