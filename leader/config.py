"""What an election is told: durations, identity and the checks that client-go makes, in its order and with its texts.

The three durations, in seconds:

    retry_period   between two renewals of a leader, and the base of a follower's jittered retries
    renew_deadline how long after sending its last successful renewal a leader may believe that it leads
    lease_duration how long a follower waits after the last change it saw before it takes over

lease_duration / renew_deadline is the difference in clock rate that is tolerated (1.5 in both profiles); a difference in
clock readings does not matter at all.

Source: client-go 0.34 leaderelection (NewLeaderElector), kube-scheduler's options --leader-elect-*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from leader.clock import seconds_to_ns

JITTER_FACTOR: Final = 1.2
"""A follower's retry is drawn from [1, 1 + this) times the retry period."""

LOCK_KIND: Final = "leases"
_REMOVED_LOCK_KINDS: Final = frozenset({"endpoints", "configmaps", "endpointsleases", "configmapsleases"})

_LEASE_DURATION_MAX_SECONDS: Final = 86_400.0
_CALL_NS_MIN: Final = seconds_to_ns(1.1)


class ElectionConfigError(ValueError):
    """A configuration that cannot elect anybody safely."""


@dataclass(frozen=True, slots=True)
class TimingProfile:
    """Durations that belong together."""

    lease_duration: float
    renew_deadline: float
    retry_period: float
    store_ttl_seconds: int
    """Time to live of the etcd lease that the record is bound to. At least the lease duration: it collects garbage and is a
    second trigger, it must not end a leader's term before the followers would."""


FAST: Final = TimingProfile(lease_duration=2.0, renew_deadline=1.3, retry_period=0.4, store_ttl_seconds=3)
"""A dead leader is replaced within about two seconds; needs an etcd that answers within a second."""

KUBE: Final = TimingProfile(lease_duration=15.0, renew_deadline=10.0, retry_period=2.0, store_ttl_seconds=15)
"""kube-scheduler's defaults."""

PROFILES: Final[Mapping[str, TimingProfile]] = {"fast": FAST, "kube": KUBE}


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionConfig:
    """One candidate's part in one election. Durations in seconds."""

    identity: str
    """Unique among the candidates: two processes of one host need two identities."""
    lease_duration: float = KUBE.lease_duration
    renew_deadline: float = KUBE.renew_deadline
    retry_period: float = KUBE.retry_period
    store_ttl_seconds: int = KUBE.store_ttl_seconds
    name: str = "leader"
    """Of the election; appears in the health check and the metrics."""
    lock_kind: str = LOCK_KIND
    release_on_cancel: bool = True
    """Give the lease back at a stop, after the work has stopped."""
    suspend: bool = True
    """After the renew deadline keep trying to renew under the same epoch until no answer came for the lease duration; where that
    succeeds nobody led in between, and leading goes on under the same epoch."""
    rejoin: bool = True
    """After a lost term become a follower again. Without it the run ends, as client-go's does."""
    progress_limit: float | None = None
    """How old the last sign of progress may be for a renewal to be sent. None: the renew deadline. Another candidate leads at
    most progress_limit + lease_duration after the work hung. Without a source of progress it has no effect."""
    address: str = ""
    """Where this candidate is reached; travels in the record."""
    version: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the record, by name: set at each renewal; those of others that the record has are kept, but for one
    that is set while a renewal is under way: that guards the epoch, so that nobody who writes labels can end a term."""

    @classmethod
    def of(cls, profile: TimingProfile, *, identity: str, **rest: object) -> ElectionConfig:
        """The configuration of a profile; `rest` are further fields by name."""
        durations: dict[str, object] = {
            "lease_duration": profile.lease_duration,
            "renew_deadline": profile.renew_deadline,
            "retry_period": profile.retry_period,
            "store_ttl_seconds": profile.store_ttl_seconds,
        }
        return cls(identity=identity, **{**durations, **rest})  # type: ignore[arg-type]

    @property
    def lease_duration_ns(self) -> int:
        return seconds_to_ns(self.lease_duration)

    @property
    def lease_ms(self) -> int:
        """As written into the record: rounded up, so that nobody waits for less than the holder counts on."""
        return math.ceil(self.lease_duration * 1000)

    @property
    def renew_deadline_ns(self) -> int:
        return seconds_to_ns(self.renew_deadline)

    @property
    def retry_period_ns(self) -> int:
        return seconds_to_ns(self.retry_period)

    @property
    def grace_ns(self) -> int:
        """How long the work may take to stop: the time between the end of belief and the earliest takeover."""
        return self.lease_duration_ns - self.renew_deadline_ns

    @property
    def progress_limit_ns(self) -> int:
        return self.renew_deadline_ns if self.progress_limit is None else seconds_to_ns(self.progress_limit)

    @property
    def call_timeout_ns(self) -> int:
        """How long a call to the store is waited for: a third of the time between two ends of belief, and above a second where
        belief lasts that long, so that an etcd that answers within a second is heard."""
        return max(self.retry_period_ns, self.renew_deadline_ns // 3, min(_CALL_NS_MIN, self.renew_deadline_ns))

    @property
    def renewal_patience_ns(self) -> int:
        """How long a renewal is waited for before the next one is sent beside it. The first is heard all the same, so belief does
        not end while answers take less than the renew deadline without this."""
        return min(self.retry_period_ns, self.renew_deadline_ns // 10)

    @property
    def renewal_timeout_ns(self) -> int:
        """How late the answer to a renewal may be to be of any use."""
        return self.lease_duration_ns


def check_config(config: ElectionConfig, *, on_started_leading: object, on_stopped_leading: object, lock: object) -> None:
    """Raise ElectionConfigError at the first fault: client-go's nine checks in its order, then those of this package.

    Comparisons are written so that a NaN is refused.
    """
    if not config.lease_duration > config.renew_deadline:
        raise ElectionConfigError("leaseDuration must be greater than renewDeadline")
    if not config.renew_deadline > JITTER_FACTOR * config.retry_period:
        raise ElectionConfigError("renewDeadline must be greater than retryPeriod*JitterFactor")
    for text, seconds in (
        ("leaseDuration", config.lease_duration),
        ("renewDeadline", config.renew_deadline),
        ("retryPeriod", config.retry_period),
    ):
        if not seconds >= 1e-9:
            raise ElectionConfigError(f"{text} must be greater than zero")
    if on_started_leading is None:
        raise ElectionConfigError("OnStartedLeading callback must not be nil")
    if on_stopped_leading is None:
        raise ElectionConfigError("OnStoppedLeading callback must not be nil")
    if lock is None:
        raise ElectionConfigError("Lock must not be nil.")
    if not config.identity:
        raise ElectionConfigError("Lock identity is empty")
    _check_own_rules(config)


def _check_own_rules(config: ElectionConfig) -> None:
    check_lock_kind(config.lock_kind)
    if config.lease_duration > _LEASE_DURATION_MAX_SECONDS:
        raise ElectionConfigError(f"leaseDuration {config.lease_duration} s: at most {_LEASE_DURATION_MAX_SECONDS:.0f} s")
    if config.store_ttl_seconds < config.lease_duration:
        raise ElectionConfigError(
            f"store_ttl_seconds {config.store_ttl_seconds} must not be less than leaseDuration {config.lease_duration} s"
        )
    if config.progress_limit is not None and not 0 < config.progress_limit <= _LEASE_DURATION_MAX_SECONDS:
        raise ElectionConfigError(
            f"progress_limit {config.progress_limit} s: must be greater than zero, at most {_LEASE_DURATION_MAX_SECONDS:.0f} s"
        )


def check_lock_kind(kind: str) -> None:
    """Raise ElectionConfigError unless `kind` is the one kind of lock there is."""
    if kind in _REMOVED_LOCK_KINDS:
        raise ElectionConfigError(f"lock-type {kind} is no longer supported, use {LOCK_KIND}")
    if kind != LOCK_KIND:
        raise ElectionConfigError(f"Invalid lock-type {kind}")
