"""The part of a total that every binding changes: filters and final scores of plugins that read usage or ports, added up.

Kept as one narrow column for each combination of keys (`UsageSum`); what single plugins say is not kept.

Plugins that read nothing but usage answer the same for rows that are in the same state (`UsageStates`). Clusters are full of
equal nodes that fill up with equal pods, so what a sum comes to on each state is remembered, one array over states for each sum
(`UsageValues`):

    known state    nobody is asked
    unknown state  the sum asks its plugins when its turn comes: of many changed rows about one in each such state
    new state      where more than FEW sums take turns, plugins that can stand for many keys at once (`StackingPlugin`) are
                   asked about it on behalf of all of them
    a new sum      all rows are evaluated, wherever that is best done; where more than FEW sums take turns, one row of each state

Invariants:

* A value that is known is what its sum comes to on a row in that state, whenever that may be. A state for which some score is
  outside 0..100 has no value, so each row in it is asked about.
* There is one value at most for each state and sum. States are bounded by the rows, and what the values take counts as the sums'
  columns do, which the engine bounds.

Cost: a turn with one changed row in a known state 3 µs, each further row half a microsecond; an unknown state one call of each
plugin and 5 µs; a new state on behalf of 1,000 sums 30 µs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from rayched.engine.cached_columns import BuildColumns, CachedColumn, selection_of
from rayched.engine.plugin_calls import call_filter, call_score, call_stack
from rayched.engine.plugin_facts import PluginFacts
from rayched.engine.prepared import FILTER_HALF, Answer, ColumnKey
from rayched.engine.scale import Scale, TotalColumn
from rayched.framework.accelerated import StackingPlugin
from rayched.framework.plugin import MAX_NODE_SCORE, FilterPlugin, ScorePlugin
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.change_log import FEW
from rayched.snapshot.columns import Log, RowIndex
from rayched.snapshot.rows import Rows, Selection
from rayched.snapshot.table import NodeTable
from rayched.snapshot.usage_states import STATES_MIN, UsageStates

TURNS_MIN: Final = 256
"""A sum that was not asked for in so many turns leaves, or in four times as many as there are sums."""
UNSTACKED_SHARE: Final = 16
"""One sum in so many need not be among those on whose behalf plugins are asked: that takes a call with all of them."""


class UsageSum(CachedColumn):
    """Filters and final scores that change with bindings, as one column."""

    __slots__ = ("column", "memory", "n_installed", "outside", "reads_usage_alone", "scale", "weights")

    def __init__(
        self,
        key: Hashable,
        table: NodeTable,
        scale: Scale,
        filters: Sequence[ColumnKey],
        scores: Sequence[tuple[ColumnKey, int]],
    ) -> None:
        super().__init__(key, table, (*filters, *(question for question, _ in scores)), Log.USAGE)
        self.scale = scale
        self.column: TotalColumn = np.zeros(table.capacity, scale.dtype)
        """Shape (capacity,)."""
        self.outside: set[int] = set()
        """Rows to which some plugin gives a score outside 0..100."""
        self.n_installed = 0
        """How often all rows were evaluated anew."""
        self.weights = [0] * len(filters) + [weight for _, weight in scores]
        """Of each question; 0 of filters."""
        self.reads_usage_alone = bool(self.questions) and self.follower.logs == table.logs_of(Log.USAGE)
        self.memory: UsageValues | None = None
        """Its values by state, where it reads usage alone."""

    @property
    def n_bytes(self) -> int:
        # With values of as many states as there mostly are at most, as nobody counts again while they come.
        n_states = 0 if self.memory is None else STATES_MIN + 5 * len(self.column) // 4
        return self.column.nbytes + n_states * self.column.itemsize

    def refresh(self, build: BuildColumns) -> list[int] | None:
        if self.memory is None:
            return super().refresh(build)
        rows = self.follower.few_since(self.follower.mark)
        if (rows is None or rows) and not self.memory.bring(self, rows):
            build((self,))
        return rows

    def bring_along(self) -> bool:
        """Bring up to date where values of other sums tell how few states there are; False: it has to be evaluated."""
        return self.memory is not None and (not self.follower.is_behind() or self.memory.bring_along(self))

    def refresh_rows(self, rows: list[int], build: BuildColumns) -> None:  # noqa: ARG002
        # What answers nothing adds nothing: that needs no look at other rows.
        self.ask(rows)

    def ask(self, rows: list[int]) -> None:
        """Ask all plugins about these rows as they are now. Raises PluginError."""
        selection = selection_of(rows)
        asked = Rows(self.table, selection)
        self.write(selection, [question.ask(asked) for question in self.questions])

    def write(self, selection: Selection, answers: Sequence[Answer]) -> None:
        if isinstance(selection, slice) and selection.stop - selection.start == 1:
            self.column[selection.start] = self._one(selection.start, answers)
            return
        n = self.table.n_rows if isinstance(selection, slice) else len(selection)
        values, outside = self.added_up(answers, n)
        rows: NDArray[np.intp] = (
            np.arange(selection.start, selection.stop, dtype=np.intp) if isinstance(selection, slice) else selection
        )
        self.column[selection] = values
        if outside is not None or self.outside:
            self.outside.difference_update(rows.tolist())
            if outside is not None:
                self.outside.update(rows[outside].tolist())

    def write_all(self, answers: Sequence[Answer]) -> None:
        self.n_installed += 1
        self.write(slice(0, self.table.n_rows), answers)

    def _one(self, row: int, answers: Sequence[Answer]) -> int:
        """The sum of one row; in plain integers a quarter of the time that arrays take."""
        total = 0
        rejected = is_outside = False
        for question, weight, answer in zip(self.questions, self.weights, answers, strict=True):
            if answer is None:
                continue
            value = answer.item(0)
            if question.part is FILTER_HALF:
                rejected = rejected or value != 0
            elif 0 <= value <= MAX_NODE_SCORE:
                total += weight * value
            else:
                is_outside = True
        if is_outside:
            self.outside.add(row)
        else:
            self.outside.discard(row)
        return self.scale.infeasible if rejected else total

    def added_up(self, answers: Sequence[Answer], n: int) -> tuple[TotalColumn, NDArray[np.bool_] | None]:
        """The sums, and where a score is outside 0..100; None: nowhere. Such a score counts as 0. Shapes (n,)."""
        total = np.zeros(n, np.int64)
        rejected: NDArray[np.bool_] | None = None
        outside: NDArray[np.bool_] | None = None
        for question, weight, answer in zip(self.questions, self.weights, answers, strict=True):
            if answer is None:
                continue
            if question.part is FILTER_HALF:
                if np.count_nonzero(answer):
                    rejects: NDArray[np.bool_] = answer != 0
                    rejected = rejects if rejected is None else rejected | rejects
            elif n and int(answer.view(np.uint64).max()) > MAX_NODE_SCORE:
                # Without its sign a negative score is a huge one.
                beyond: NDArray[np.bool_] = (answer < 0) | (answer > MAX_NODE_SCORE)
                outside = beyond if outside is None else outside | beyond
                total += np.where(beyond, 0, answer) * weight
            else:
                total += answer if weight == 1 else answer * weight
        if rejected is not None:
            total[rejected] = self.scale.infeasible
        return total.astype(self.scale.dtype), outside


class UsageValues:
    """What sums of the same plugins, with the same weights, come to on a row of each state."""

    __slots__ = (
        "_asked",
        "_generation",
        "_last",
        "_n_seen",
        "_n_stacked",
        "_places",
        "_stacked",
        "_stacks",
        "_states",
        "_turns_left",
        "_unknown",
        "_values",
    )

    def __init__(self, states: UsageStates, scale: Scale, *, stacks: bool) -> None:
        """`stacks`: the plugins can stand for many keys at once, those of all sums among them."""
        self._states = states
        self._stacks = stacks
        self._unknown = int(np.iinfo(scale.dtype).min)
        """In place of a value that nobody knows; less than any sum."""
        self._values: TotalColumn = np.zeros((0, 0), scale.dtype)
        """Shape (sums or more, states or more)."""
        self._places: dict[UsageSum, int] = {}
        """Of each sum among the values, ascending."""
        self._asked: set[UsageSum] = set()
        """Those that were asked for since others were let go of."""
        self._turns_left = TURNS_MIN
        """Until the next time."""
        self._last: UsageSum | None = None
        """Whose turn it is: it has its place."""
        self._generation = 0
        """Of the states, as they are numbered here."""
        self._n_seen = 0
        """Of how many states it was decided whether to ask on behalf of all sums."""
        self._stacked: list[Any] = []
        """For each question the state that stands for the first `_n_stacked` sums."""
        self._n_stacked = 0

    def __len__(self) -> int:
        """Sums that take turns."""
        return len(self._places)

    def bring(self, sum_: UsageSum, few: list[int] | None) -> bool:
        """Bring the sum up to date. False: all rows have to be evaluated. Raises PluginError.

        `few`: the rows that changed since, with repetitions, where these are few.
        """
        states = self._states
        states.advance()
        if sum_ is not self._last:
            self._turn_to(sum_)
        if few is None:
            return self._bring_many(sum_)
        place, outside, unknown = self._places[sum_], sum_.outside, dict[int, int]()
        for row in few:
            number = states.of(row)
            if states.n_states != self._n_seen or states.generation != self._generation:
                self._keep_up()
            value = self._values.item(place, number)
            if value == self._unknown:
                unknown[row] = number
            else:
                sum_.column[row] = value
                if outside:
                    outside.discard(row)
        if unknown:
            sum_.ask(sorted(unknown))
            for row, number in unknown.items():
                if row not in outside:
                    self._values[place, number] = sum_.column.item(row)
        sum_.follower.catch_up()
        return True

    def bring_along(self, sum_: UsageSum) -> bool:
        """As `bring`, where so many sums take turns that all rows never have to be evaluated. False: that cannot be done."""
        if len(self._places) <= FEW:
            return False
        try:
            return self.bring(sum_, None)
        except PluginError:
            return False

    def _bring_many(self, sum_: UsageSum) -> bool:
        states, follower, column, n_rows = self._states, sum_.follower, sum_.column, sum_.table.n_rows
        rows = states.changed_since(follower.position) if follower.has_started else None
        if rows is None or 2 * len(rows) > n_rows:
            if len(self._places) <= FEW:
                return False
            rows = None
        numbers = states.numbers(rows)
        self._keep_up()
        values: TotalColumn = self._values[self._places[sum_]]
        found: TotalColumn = values[numbers]
        if sum_.outside:
            sum_.outside.difference_update(range(n_rows) if rows is None else rows.tolist())
        unknown = (found == self._unknown).nonzero()[0]
        if len(unknown):
            row_in: RowIndex = np.full(states.n_states, -1, np.intp)
            row_in[numbers[unknown]] = unknown if rows is None else rows[unknown]
            new = (row_in >= 0).nonzero()[0]
            sum_.ask(row_in[new].tolist())
            if sum_.outside:
                new = new[[row not in sum_.outside for row in row_in[new].tolist()]]
            values[new] = column[row_in[new]]
            found = values[numbers]
            alone = (found == self._unknown).nonzero()[0]
            if len(alone):
                asked = alone if rows is None else rows[alone]
                sum_.ask(asked.tolist())
                found[alone] = column[asked]
        if rows is None:
            sum_.n_installed += 1
            column[:n_rows] = found
        else:
            column[rows] = found
        follower.catch_up()
        return True

    # ---------------------------------------------------------------------------------------------- sums and their turns

    def _turn_to(self, sum_: UsageSum) -> None:
        """The sum has its place from now on, at least until it is another one's turn."""
        self._turns_left -= 1
        if self._turns_left < 0:
            self._let_go()
        self._asked.add(sum_)
        self._last = sum_
        if sum_ not in self._places:
            place = self._places[sum_] = len(self._places)
            if place == len(self._values):
                more = np.zeros((1 + place // 2, self._values.shape[1]), self._values.dtype)
                self._values = np.concatenate((self._values, more))
            self._values[place] = self._unknown

    def _let_go(self) -> None:
        """Let go of sums that were not asked for lately, or that no plan holds any more."""
        staying = [one for one in self._places if one in self._asked and one.users]
        if len(staying) < len(self._places):
            self._values = self._values[[self._places[one] for one in staying]]
            self._places = {one: place for place, one in enumerate(staying)}
            self._n_stacked = 0
        self._asked.clear()
        self._turns_left = max(TURNS_MIN, 4 * len(self._places))

    def _keep_up(self) -> None:
        """Have a place for the value of each state, and ask on behalf of all sums about those that are new."""
        states = self._states
        n_states, renumbered = states.n_states, states.generation - self._generation
        if renumbered or n_states > self._values.shape[1]:
            values = self._values
            if renumbered == 1:
                values = values[:, states.staying[states.staying < values.shape[1]]]
                self._n_seen = int(np.searchsorted(states.staying, self._n_seen))
            elif renumbered:
                values = values[:, :0]
                self._n_seen = 0
            self._values = np.full((len(values), max(states.room, n_states)), self._unknown, values.dtype)
            self._values[:, : values.shape[1]] = values
            self._generation = states.generation
        first, self._n_seen = self._n_seen, n_states
        if first < n_states <= first + FEW and self._stacks and len(self._places) > FEW and self._can_ask_for_all():
            for number in range(first, n_states):
                row = states.row_in(number)
                if row is not None:
                    self._ask_for_all(number, row)

    # ------------------------------------------------------------------------------------------------ on behalf of all sums

    def _can_ask_for_all(self) -> bool:
        """Put the sums' states together, unless that was done for nearly all of them. False: that cannot be done."""
        n_sums = len(self._places)
        if n_sums - self._n_stacked <= n_sums // UNSTACKED_SHARE:
            return True
        sums = list(self._places)
        by_plugin: dict[str, Any] = {}
        for place, question in enumerate(sums[0].questions):
            plugin = cast(StackingPlugin, question.asked.plugin)
            if plugin.name not in by_plugin:
                try:
                    by_plugin[plugin.name] = call_stack(plugin, [one.questions[place].asked.state for one in sums])
                except PluginError:
                    return False
                if by_plugin[plugin.name] is None:
                    return False
        self._stacked = [by_plugin[question.asked.plugin.name] for question in sums[0].questions]
        self._n_stacked = n_sums
        return True

    def _ask_for_all(self, number: int, row: int) -> None:
        """Note what the stacked sums come to on this row, which is in the state of this number."""
        n_sums, one = self._n_stacked, next(iter(self._places))
        rows = Rows(one.table, slice(row, row + 1))
        answers: list[Answer] = []
        try:
            for question, state in zip(one.questions, self._stacked, strict=True):
                plugin = question.asked.plugin
                if question.part is FILTER_HALF:
                    answers.append(call_filter(cast(FilterPlugin, plugin), state, rows, n_sums))
                else:
                    answers.append(call_score(cast(ScorePlugin, plugin), state, rows, n_sums))
        except PluginError:
            # Each sum asks for itself then, and whose pod it is hears of it.
            return
        values, outside = one.added_up(answers, n_sums)
        if outside is not None:
            values[outside] = self._unknown
        self._values[:n_sums, number] = values


def memory_key(sum_: UsageSum, facts: Mapping[str, PluginFacts]) -> tuple[bool, Hashable]:
    """Whether the sum's plugins can stand for many keys, its own among them, and all that sums of one UsageValues have in common.

    Raises PluginError.
    """
    stacks = all(
        facts[asked.plugin.name].stacks and call_stack(cast(StackingPlugin, asked.plugin), [asked.state]) is not None
        for asked in dict.fromkeys(question.asked for question in sum_.questions)
    )
    questions = tuple((question.asked.plugin.name, question.part) for question in sum_.questions)
    return stacks, (stacks, questions, tuple(sum_.weights))
