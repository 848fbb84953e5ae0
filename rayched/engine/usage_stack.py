"""Usage sums of many templates, brought up to date together: what a state of a row comes to is worked out once for all.

Where pods of many templates come in turn each sum would find, whenever its turn comes, as many changed rows as there are sums,
and a template that is new would have to look at every row. What takes time is the number of numpy calls, not the length of their
arrays. So the stack keeps what each sum comes to on a row of each state (`UsageStates`), and a sum takes over its own values:

    new states     plugins that can stand for many keys at once (`StackingPlugin`) are asked about each, on behalf of all sums
    a new sum      its plugins are asked about all states at once, and it joins; also one that has missed many new states
    a known state  nobody is asked

A sum leaves when it was not asked for lately. It follows the log by itself while there are few, and wherever the stack cannot
tell: a plugin raises, or answers what the stack has no values for.

Invariant: the first `_filled` values of a sum are what it comes to on a row of the state with that number, whenever that may be.

With no more than FEW sums in turn each finds so few changed rows that it knows most of their states, so there is no stack.

Owner: the Planner; one for each set of plugins. Memory: BYTES_MAX for values, and what `UsageStates` takes.
Cost: 30 µs a new state; 30 a new sum; else 5 µs a turn, half a microsecond a changed row.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from rayched.engine.plugin_calls import call_filter, call_score, call_stack
from rayched.engine.plugin_facts import PluginFacts
from rayched.engine.prepared import PluginHalf
from rayched.engine.usage_values import Scale, TotalColumn, UsageSum
from rayched.framework.accelerated import StackingPlugin
from rayched.framework.plugin import MAX_NODE_SCORE, FilterPlugin, ScorePlugin
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.change_log import FEW
from rayched.snapshot.table import NodeTable
from rayched.snapshot.usage_states import UsageStates

SUMS_MAX: Final = 1_024
"""With more of them arrays are long, and it is their length that counts."""
STATES_MIN: Final = 512
"""States that values are kept of at least."""
BYTES_MAX: Final = 32 << 20
"""What values of more states may take: of 1,024 sums as narrow as by default those of 16,384 states."""
NEW_STATES_MAX: Final = 2
"""Of more new states at a time each sum asks for itself, of all of them at once, when its turn comes."""
UNSTACKED_SHARE: Final = 16
"""One sum in so many need not be among those on whose behalf plugins are asked: that takes a call with all of them."""
TURNS_MIN: Final = 256
"""A sum that was not asked for in so many turns leaves, or in four times as many as there are sums."""
REST_TURNS: Final = 4_096
"""For so many turns there is no stack where rows are in too many states."""


class UsageStack:
    """Sums that the same plugins are asked for, with the same weights."""

    __slots__ = (
        "_filled",
        "_members",
        "_n_new",
        "_n_seen",
        "_n_stacked",
        "_next_look",
        "_places",
        "_rest_until",
        "_scale",
        "_stacked",
        "_states",
        "_table",
        "_turn",
        "_turns",
        "_values",
    )

    def __init__(self, table: NodeTable, scale: Scale) -> None:
        self._table = table
        self._scale = scale
        self._turn = 0
        self._next_look = TURNS_MIN
        """The turn at which it is to be decided again which sums belong to the stack."""
        self._rest_until = 0
        self._turns: dict[UsageSum, int] = {}
        """When each sum was asked for last: those of the stack, and those that may join."""
        self._n_new = 0
        """How many of them came since the last look."""
        self._begin([])

    def __len__(self) -> int:
        """Sums of the stack."""
        return len(self._members)

    def bring(self, sum_: UsageSum) -> bool:
        """Bring the sum up to date; False: it has to look at its changed rows, or at all rows, by itself."""
        self._turn += 1
        turns = self._turns
        self._n_new += sum_ not in turns
        turns[sum_] = self._turn
        if self._turn >= self._next_look or (self._n_new > FEW and 2 * self._n_new >= len(turns)):
            self._look()
        place = self._places.get(sum_)
        if place is None:
            if not self._members or len(self._members) == SUMS_MAX:
                return False
            place = self._join(sum_)
        if place is None or sum_.outside:
            return False
        if self._states.is_void:
            self._begin(self._members)
        states, follower = self._states, sum_.follower
        states.advance()
        rows = states.changed_since(follower.position) if follower.has_started else None
        numbers = states.numbers(rows)
        if len(states) > self._values.shape[1]:
            if not self._make_room():
                return False
            numbers = states.numbers(rows)
            if len(states) > self._values.shape[1]:
                # Rows are numbered so many at a time; the next turn makes room for those that came to it now.
                return False
        self._note_new()
        if numbers is None or not self._fill(place, sum_):
            return False
        values: TotalColumn = self._values[place][numbers]
        if rows is None:
            sum_.take_over(values)
        else:
            sum_.column[rows] = values
            follower.catch_up()
        return True

    # ----------------------------------------------------------------------------------------------------- who is in it

    def _look(self) -> None:
        """Decide anew which sums belong to the stack: those that were asked for lately and that some plan still holds."""
        window = max(TURNS_MIN, 4 * len(self._turns))
        since, self._next_look = self._turn - window, self._turn + window
        self._turns = {one: turn for one, turn in self._turns.items() if turn > since and one.users}
        self._n_new = 0
        if not FEW < len(self._turns) <= SUMS_MAX or self._turn < self._rest_until:
            if self._members:
                self._begin([])
        elif not self._members:
            self._begin(list(self._turns))
        else:
            staying = [place for place, one in enumerate(self._members) if one in self._turns]
            if len(staying) < len(self._members):
                self._keep(staying)

    def _begin(self, members: list[UsageSum]) -> None:
        """These sums, of which no value is known yet."""
        self._members = members
        self._places = {one: place for place, one in enumerate(members)}
        self._states = UsageStates(self._table)
        self._values = np.zeros((len(members), STATES_MIN if members else 0), self._scale.dtype)
        """What the sums come to. Shape (sums or more, states or more)."""
        self._filled: NDArray[np.intp] = np.zeros(len(members), np.intp)
        """Of how many states that is known of each sum. Shape (sums or more,)."""
        self._n_seen = 0
        """Of how many states it was decided whether to note them for all."""
        self._stacked: list[tuple[Any, int]] = []
        """For each question the state that stands for the first `_n_stacked` sums, and its weight."""
        self._n_stacked = 0

    def _keep(self, staying: list[int]) -> None:
        """Those at these places, in their order."""
        self._members = [self._members[place] for place in staying]
        self._places = {one: place for place, one in enumerate(self._members)}
        self._values, self._filled = self._values[staying], self._filled[staying]
        self._n_stacked = 0

    def _join(self, sum_: UsageSum) -> int | None:
        """The sum's place; None: there are too many values."""
        place = len(self._members)
        if place == len(self._filled):
            more, n_states = max(FEW, place // 2), self._values.shape[1]
            if not self._is_allowed(place + more, n_states):
                return None
            self._values = np.concatenate((self._values, np.zeros((more, n_states), self._scale.dtype)))
            self._filled = np.concatenate((self._filled, np.zeros(more, np.intp)))
        self._members.append(sum_)
        self._places[sum_] = place
        self._filled[place] = 0
        return place

    def _make_room(self) -> bool:
        """For values of more states, at least as many as there are. False: there are too many, and the stack rests."""
        n_sums, n_states = self._values.shape
        staying = self._states.keep_used()
        wanted = max(n_states, len(staying) + max(STATES_MIN, len(staying) // 4))
        if not self._is_allowed(n_sums, wanted):
            return False
        values = np.zeros((n_sums, wanted), self._scale.dtype)
        known = staying[: np.searchsorted(staying, n_states)]
        values[:, : len(known)] = self._values[:, known]
        self._values = values
        self._filled = np.searchsorted(staying, self._filled)
        self._n_seen = int(np.searchsorted(staying, self._n_seen))
        return True

    def _is_allowed(self, n_sums: int, n_states: int) -> bool:
        """Whether there may be so many values. False: there may not, and the stack rests."""
        if n_states <= STATES_MIN or n_sums * n_states * self._scale.dtype.itemsize <= BYTES_MAX:
            return True
        self._rest_until = self._turn + REST_TURNS
        self._begin([])
        return False

    # ---------------------------------------------------------------------------------------------------- what it knows

    def _note_new(self) -> None:
        """Note states that came since, for all sums, where they are few."""
        first, end = self._n_seen, len(self._states)
        n_new, members = end - first, self._members
        if not n_new:
            return
        self._n_seen = end
        if n_new > NEW_STATES_MAX:
            return
        if self._n_stacked < len(members) - len(members) // UNSTACKED_SHARE and not self._stack():
            return
        n = self._n_stacked
        for number in range(first, end):
            values = self._for_all(number)
            if values is not None:
                self._values[:n, number] = values
                filled = self._filled[:n]
                filled[filled == number] = number + 1

    def _stack(self) -> bool:
        """Put the sums' states together. False: that cannot be done."""
        members = self._members
        self._stacked, self._n_stacked = [], 0
        by_plugin: dict[str, Any] = {}
        for place, weight in enumerate(members[0].weights):
            plugin = cast(StackingPlugin, members[0].questions[place].asked.plugin)
            if plugin.name not in by_plugin:
                try:
                    state = call_stack(plugin, [one.questions[place].asked.state for one in members])
                except PluginError:
                    return False
                if state is None:
                    return False
                by_plugin[plugin.name] = state
            self._stacked.append((by_plugin[plugin.name], weight))
        self._n_stacked = len(members)
        return True

    def _for_all(self, number: int) -> TotalColumn | None:
        """What the stacked sums come to on a row in this state. Shape (sums,). None: the plugins cannot say it so."""
        n_sums = self._n_stacked
        row = self._states.rows(number, number + 1)
        total: NDArray[np.int64] | None = None
        rejected: NDArray[np.bool_] | None = None
        try:
            for question, (state, weight) in zip(self._members[0].questions, self._stacked, strict=True):
                plugin = question.asked.plugin
                if question.part is PluginHalf.FILTER:
                    codes = call_filter(cast(FilterPlugin, plugin), state, row, n_sums)
                    if codes is None:
                        return None
                    if np.count_nonzero(codes):
                        rejects: NDArray[np.bool_] = codes != 0
                        rejected = rejects if rejected is None else rejected | rejects
                else:
                    scores = call_score(cast(ScorePlugin, plugin), state, row, n_sums)
                    # Without its sign a negative score is a huge one.
                    if scores is None or np.count_nonzero(scores.view(np.uint64) > MAX_NODE_SCORE):
                        return None
                    part = scores if weight == 1 else scores * weight
                    total = part if total is None else total + part
        except PluginError:
            # Each sum asks for itself then, and whose pod it is hears of it.
            return None
        noted = np.zeros(n_sums, self._scale.dtype) if total is None else total.astype(self._scale.dtype)
        if rejected is not None:
            noted[rejected] = self._scale.infeasible
        return noted

    def _fill(self, place: int, sum_: UsageSum) -> bool:
        """Ask for one sum about the states that it does not know. False: its plugins cannot say it so."""
        first, end = self._filled.item(place), len(self._states)
        if first < end:
            try:
                values = sum_.values(self._states.rows(first, end))
            except PluginError:
                return False
            if values is None:
                return False
            self._values[place, first:end] = values
            self._filled[place] = end
        return True


def stack_key(sum_: UsageSum) -> Hashable:
    """What sums of one stack have in common."""
    return tuple((question.asked.plugin.name, question.part) for question in sum_.questions), tuple(sum_.weights)


def can_be_stacked(sum_: UsageSum, facts: Mapping[str, PluginFacts]) -> bool:
    """Whether the sum's plugins can stand for many keys, its own among them.

    Raises PluginError.
    """
    if not sum_.reads_usage_alone or not sum_.questions:
        return False
    for asked in {question.asked for question in sum_.questions}:
        if not facts[asked.plugin.name].stacks or call_stack(cast(StackingPlugin, asked.plugin), [asked.state]) is None:
            return False
    return True
