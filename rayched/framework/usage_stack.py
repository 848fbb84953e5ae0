"""Usage sums of many templates, brought up to date together: a row that a binding changed is asked about once for all of them.

Where pods of many templates come in turn each sum would find, whenever its turn comes, as many changed rows as there are sums.
What takes time is the number of numpy calls, not the length of their arrays; so plugins that can stand for many keys at once
(`StackingPlugin`) are asked about the one row that has changed, on behalf of all sums in the stack. Their values are noted in the
order of the log of usage, and a sum takes over its own when its turn comes.

What the sums come to on a row of a state that was there before is remembered, as `UsageSum` does for one: where most nodes hold
few pods of few shapes no plugin is asked.

A sum joins when it was asked for lately, as others were, and leaves when it was not; then it follows the log by itself, as it
does whenever the stack cannot tell.

Invariant: entry i of what is noted says what each sum of the stack comes to on the row of the log's entry at `_start` + i, as of
a time after that entry. So whoever takes over all entries from its own position on is up to date.

Owner: the Planner; one for each set of plugins. Memory: 6 MB at most. Cost: 30 µs a changed row, 2 in a known state.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from rayched.framework.payoff import Payoff
from rayched.framework.plugin import MAX_NODE_SCORE, FilterPlugin, ScorePlugin, StackingPlugin
from rayched.framework.plugin_calls import PluginError, call_filter, call_score, call_stack
from rayched.framework.questions import Part
from rayched.framework.usage_sum import Scale, UsageSum, state_of
from rayched.snapshot.rows import Rows
from rayched.snapshot.table import NodeTable

SUMS_MIN: Final = 8
"""With fewer sums in turn each one finds so few changed rows that it knows most of their states."""
SUMS_MAX: Final = 1_024
"""With more of them arrays are long, and it is their length that counts."""
TURNS_NOTED: Final = 8
"""So many changed rows are noted for each sum, as turns come irregularly; who comes later looks at its rows by itself."""
ROWS_MIN: Final = 256
"""Changed rows that can be noted at least."""
NOTED_BYTES_MAX: Final = 4 << 20
"""What may be noted, beyond ROWS_MIN rows."""
STATES_MAX: Final = 512
"""States remembered; when there are more the stack starts over."""
TURNS_MIN: Final = 256
"""A sum that was not asked for in so many turns leaves, or in four times as many as there are sums."""


class UsageStack:
    """Sums that the same plugins are asked for, with the same weights."""

    __slots__ = (
        "_by_state",
        "_end",
        "_known_from",
        "_log",
        "_members",
        "_n_joining",
        "_next_look",
        "_noted",
        "_payoff",
        "_places",
        "_rows",
        "_scale",
        "_start",
        "_states",
        "_table",
        "_turn",
        "_turns",
    )

    def __init__(self, table: NodeTable, scale: Scale) -> None:
        self._table = table
        self._scale = scale
        self._log = table.usage_log
        self._turn = 0
        self._next_look = TURNS_MIN
        """The turn at which it is to be decided again which sums belong to the stack."""
        self._turns: dict[UsageSum, int] = {}
        """When each sum was asked for last: those of the stack, and those that may join."""
        self._n_joining = 0
        """How many were asked for since, and were not known before."""
        self._members: list[UsageSum] = []
        self._places: dict[UsageSum, int] = {}
        self._known_from: list[int] = []
        """For each of them the position in the log from which on it was of the stack."""
        self._states: list[tuple[Any, int]] = []
        """For each question the state that stands for all sums, and its weight."""
        self._noted: NDArray[np.signedinteger[Any]] = np.zeros((0, 0), scale.dtype)
        """What the sums come to. Shape (rows that can be noted, sums)."""
        self._rows: NDArray[np.intp] = np.zeros(0, np.intp)
        """On which rows. Shape (rows that can be noted,)."""
        self._start = self._end = 0
        """Positions in the log of the first noted row and after the last one."""
        self._by_state: dict[bytes, NDArray[np.signedinteger[Any]]] = {}
        """What the sums come to on rows of a state. Shapes (sums,)."""
        self._payoff = Payoff()

    def __len__(self) -> int:
        """Sums of the stack."""
        return len(self._members)

    def bring(self, sum_: UsageSum) -> bool:
        """Bring the sum up to date, and what is noted for the others; False: it has to look at its changed rows by itself."""
        self._turn += 1
        turns = self._turns
        self._n_joining += sum_ not in turns
        turns[sum_] = self._turn
        enough = max(1 if self._members else SUMS_MIN, len(turns) // 8)
        if self._n_joining >= enough or self._turn >= self._next_look:
            self._look()
        place = self._places.get(sum_)
        if place is None or sum_.outside or not self._advance():
            return False
        position = sum_.follower.position
        if position < max(self._start, self._known_from[place]):
            return False
        first, n = position - self._start, self._end - self._start
        if n - first == 1:
            sum_.column[self._rows.item(first)] = self._noted.item(first, place)
        else:
            # Of entries for the same row the last one counts, and stays.
            sum_.column[self._rows[first:n]] = self._noted[first:n, place]
        sum_.follower.catch_up()
        return True

    # ----------------------------------------------------------------------------------------------------- who is in it

    def _look(self) -> None:
        """Decide anew which sums belong to the stack: those that were asked for lately and that some plan still holds."""
        window = max(TURNS_MIN, 4 * len(self._turns))
        since, self._next_look = self._turn - window, self._turn + window
        turns = self._turns = {one: turn for one, turn in self._turns.items() if turn > since and one.users}
        self._n_joining = 0
        staying = [place for place, one in enumerate(self._members) if one in turns]
        members = [self._members[place] for place in staying]
        members += [one for one in turns if one not in self._places]
        if not SUMS_MIN <= len(members) <= SUMS_MAX:
            members, staying = [], []
        elif members == self._members:
            return
        self._take_in(members, staying)

    def _take_in(self, members: list[UsageSum], staying: list[int]) -> None:
        """`staying` are the places of those that were in it before, who come first."""
        n_rows = _rows_to_note(len(members), self._scale.dtype.itemsize)
        noted = np.zeros((n_rows, len(members)), self._scale.dtype)
        rows = np.zeros(n_rows, np.intp)
        n = self._end - self._start
        if not staying or n > n_rows:
            self._start, n = self._end, 0
        noted[:n, : len(staying)] = self._noted[:n, staying]
        rows[:n] = self._rows[:n]
        self._known_from = [self._known_from[place] for place in staying] + [self._end] * (len(members) - len(staying))
        self._noted, self._rows = noted, rows
        self._members = members
        self._places = {one: place for place, one in enumerate(members)}
        self._by_state.clear()
        self._states = []
        by_plugin: dict[str, Any] = {}
        for place, weight in enumerate(members[0].weights if members else ()):
            plugin = cast(StackingPlugin, members[0].questions[place].asked.plugin)
            if plugin.name not in by_plugin:
                by_plugin[plugin.name] = call_stack(plugin, [one.questions[place].asked.state for one in members])
            self._states.append((by_plugin[plugin.name], weight))

    # ---------------------------------------------------------------------------------------------------- what it notes

    def _advance(self) -> bool:
        """Note what changed. False: that is not known, or is more than it is worth."""
        end = self._log.end
        if self._end == end:
            return True
        n_members = len(self._members)
        changed = self._log.since(self._end) if end - self._end <= max(SUMS_MIN, n_members // 2) else None
        if changed is None:
            self._start = self._end = end
            return False
        n = self._end - self._start
        if n + len(changed) > len(self._rows):
            # The older half goes. A sum that has not taken it over yet follows the log once by itself.
            going = n // 2
            self._noted[: n - going] = self._noted[going:n].copy()
            self._rows[: n - going] = self._rows[going:n].copy()
            self._start += going
            n -= going
        known: dict[int, int] = {}
        for row in changed:
            if row in known:
                self._noted[n] = self._noted[known[row]]
            elif self._recall(n, row):
                known[row] = n
            else:
                self._start = self._end = end
                return False
            self._rows[n] = row
            n += 1
        self._end = end
        return True

    def _recall(self, n: int, row: int) -> bool:
        """Note one row from what is remembered of its state, else by asking. False: the plugins cannot say it."""
        if self._payoff.is_pausing():
            return self._note(n, row)
        state = state_of(self._table, row)
        found = self._by_state.get(state)
        self._payoff.count(1, found is not None)
        if found is not None:
            self._noted[n] = found
            return True
        if not self._note(n, row):
            return False
        if len(self._by_state) >= STATES_MAX:
            self._by_state.clear()
        self._by_state[state] = self._noted[n].copy()
        if self._payoff.is_poor():
            self._by_state.clear()
        return True

    def _note(self, n: int, row: int) -> bool:
        """Ask about one row on behalf of all. False: the plugins cannot say it so."""
        rows = Rows(self._table, slice(row, row + 1))
        n_states = len(self._members)
        total: NDArray[np.int64] | None = None
        rejected: NDArray[np.bool_] | None = None
        try:
            for question, (state, weight) in zip(self._members[0].questions, self._states, strict=True):
                plugin = question.asked.plugin
                if question.part is Part.FILTER:
                    codes = call_filter(cast(FilterPlugin, plugin), state, rows, n_states)
                    if codes is None:
                        return False
                    if np.count_nonzero(codes):
                        rejects: NDArray[np.bool_] = codes != 0
                        rejected = rejects if rejected is None else rejected | rejects
                else:
                    scores = call_score(cast(ScorePlugin, plugin), state, rows, n_states)
                    # Without its sign a negative score is a huge one.
                    if scores is None or np.count_nonzero(scores.view(np.uint64) > MAX_NODE_SCORE):
                        return False
                    part = scores if weight == 1 else scores * weight
                    total = part if total is None else total + part
        except PluginError:
            # Each sum asks for itself then, and whose pod it is hears of it.
            return False
        noted = self._noted[n]
        noted[:] = 0 if total is None else total
        if rejected is not None:
            noted[rejected] = self._scale.infeasible
        return True


def _rows_to_note(n_sums: int, bytes_each: int) -> int:
    """None without sums."""
    return max(ROWS_MIN, min(TURNS_NOTED * n_sums, NOTED_BYTES_MAX // (n_sums * bytes_each))) if n_sums else 0


def stack_key(sum_: UsageSum) -> Hashable:
    """What sums of one stack have in common."""
    return tuple((question.asked.plugin.name, question.part) for question in sum_.questions), tuple(sum_.weights)


def can_be_stacked(sum_: UsageSum, stacking: Collection[str]) -> bool:
    """Whether the sum's plugins, of which these are stacking ones, can stand for many keys, its own among them.

    Raises PluginError.
    """
    if not sum_.reads_usage_alone or not sum_.questions:
        return False
    for asked in {question.asked for question in sum_.questions}:
        if asked.plugin.name not in stacking or call_stack(cast(StackingPlugin, asked.plugin), [asked.state]) is None:
            return False
    return True
