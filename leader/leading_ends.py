"""How leading ends: suspended, resumed, lost, given up, finished. The last rows of the table in election.py.

The work is told to stop once in each time of leading. Nothing here sends a request: what is released is sent when the work has
drained.
"""

from __future__ import annotations

from typing import ClassVar

from leader import effects as fx
from leader.clock import BOOT_NS
from leader.election_state import ElectionState, NewTerm, State

_PROGRESS_HOLD_OFF_LEASES = 5
"""A candidate whose work hung leads again when the work shows life, or after so many lease durations: the hung work of a lone
candidate may have been replaced by one that shows life only when it leads."""


class LeadingEnds(ElectionState):
    """The steps of ElectionState by which a candidate stops leading."""

    RULE_ANOTHER_HOLDER_ENDS_LEADING: ClassVar[bool] = True
    """Broken by tests alone."""

    def _suspend(self) -> None:
        if not self._progress.alive(self._at.boot_ns):
            self._hung_until_ns = self._at.boot_ns + _PROGRESS_HOLD_OFF_LEASES * self._config.lease_duration_ns
        if not self._config.suspend:
            self._note("lost the lease: not renewed until the renew deadline")
            self._give_up(self._config.release_on_cancel)
            return
        self._out.append(fx.WithdrawBelief())
        self._announce("suspended leading")
        self._state = State.SUSPENDED
        self._stop_work(may_release=True)

    def _resume(self) -> None:
        self._state, self._hung_until_ns = State.LEADING, BOOT_NS
        self._progress.restart(self._at.boot_ns)
        self._out.append(fx.PublishBelief(self._epoch, self._valid_until_ns))
        self._announce("resumed leading")
        self._out.append(fx.StartLeading(self._epoch))

    def _lose(self, reason: str) -> None:
        """Another candidate has the epoch, or means to: there is nothing to release."""
        if not self.RULE_ANOTHER_HOLDER_ENDS_LEADING:
            return
        self._note(f"lost the lease: {reason}")
        self._give_up(release=False)

    def _give_up(self, release: bool) -> None:
        was_suspended = self._state is State.SUSPENDED
        self._out.append(fx.WithdrawBelief())
        self._drop_flights()
        if self._new_term is not NewTerm.NONE:
            self._new_term = NewTerm.NONE
            self._out.append(fx.TermFailed("the lease is lost or given up"))
        self._announce("stopped leading")
        self._state = State.STOPPING
        if was_suspended:
            self._drain.may_release &= release  # the work was told to stop when leading was suspended
        else:
            self._stop_work(release)

    def _stop_work(self, may_release: bool) -> None:
        self._drain.begin(self._at.boot_ns, self._config.grace_ns, may_release)
        self._out.append(fx.StopLeading())

    def _finish(self) -> None:
        self._epoch = 0
        if self._stop_wanted or not self._config.rejoin:
            self._state = State.STOPPED
            self._out.append(fx.Ended())
        else:
            self._state, self._read_back, self._next_try_ns = State.FOLLOWER, True, self._at.boot_ns
