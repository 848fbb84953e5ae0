"""The parts of the core that its other parts are made of."""

from __future__ import annotations

from dataclasses import dataclass

from rayched.core.cache.cache import Cache
from rayched.core.exchange.queue_events import QueueFeed
from rayched.core.ports import Ports
from rayched.core.writes.bindings import Bindings
from rayched.core.writes.preemptions import Preemptions
from rayched.core.writes.statuses import StatusWrites
from rayched.core.writes.window import WriteWindow
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.store.event_writes import EventWrites


@dataclass(frozen=True, slots=True)
class CoreParts:
    """One of each, made by the SchedulerCore, which owns them."""

    ports: Ports
    snapshot: Snapshot
    cache: Cache
    scheduler: Scheduler
    feed: QueueFeed
    window: WriteWindow
    statuses: StatusWrites
    events: EventWrites
    bindings: Bindings
    preemptions: Preemptions
