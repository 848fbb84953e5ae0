"""A binding that refuses itself: its own earlier sending was committed, and the answer was lost. Pure."""

from __future__ import annotations

from rayched.api import kinds
from rayched.scheduler.attempt import Attempt
from rayched.store import transactions
from rayched.store.codec import PoisonedObject, decode_entry
from rayched.store.entries import Entry
from rayched.v1.core_pb2 import Pod


def is_on(entry: Entry | None, attempt: Attempt) -> bool:
    """The pod that refused the binding is on the very node it was to be bound to."""
    if entry is None or not transactions.RULE_ATTEMPTS_ARE_RECOGNISED:
        return False
    try:
        pod = kinds.unwrap(decode_entry(entry))
    except PoisonedObject:
        return False
    return isinstance(pod, Pod) and pod.metadata.uid == attempt.uid and pod.spec.node_name == attempt.node_name
