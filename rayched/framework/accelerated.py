"""Accelerations: what a column plugin may say once more, in a form that is faster to ask. No rule is stated here alone.

Each is optional. Without it the engine asks `filter`, `score` and what goes with them, and decides the same, bit by bit; with it
the answers have to be the same. So a plugin is written without, and gets one where a measurement shows that it is worth it.

    needs      a filter as amounts that have to be free        single rows are compared, no column is made
    stack      many keys asked about one row at once           a binding concerns all pods, and costs one call
    refusals   a counting filter as domains that are refused   a binding concerns the domains that it changed
    groups     a counting score by groups of rows              a score for each group in place of one for each row

How much each gains is in docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from rayched.framework.plugin import ColumnPlugin, CountingPlugin, CountingScorePlugin, FilterPlugin
from rayched.framework.resource_needs import ResourceNeeds
from rayched.snapshot.columns import BoolColumn
from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.row_groups import RowGroups


@runtime_checkable
class ResourcePlugin(FilterPlugin, Protocol):
    """A filter that rejects a row where one of a few amounts is not free there, and for nothing else.

    Needs say the same as `filter` and `reasons`, faster where single rows are looked at. It reads usage and nothing else.
    """

    def needs(self, state: Any) -> ResourceNeeds | None:
        """With one need at least. A rejected row has the reason of each need that is not met there. None: there is more to it."""


@runtime_checkable
class StackingPlugin(ColumnPlugin, Protocol):
    """A plugin that can be asked about one row on behalf of many keys: what was bound there concerns all of them.

    It reads usage and nothing else, and does not normalise.
    """

    def stack(self, states: Sequence[Any]) -> Any:
        """A state that stands for these, of which there is one at least. None: for some of them that cannot be done.

        `filter` and `score`, asked with it about exactly one row, answer for each of the states in turn what they would say with
        that state alone. Shape (states,) instead of (1,).
        """


@runtime_checkable
class DomainFilterPlugin(CountingPlugin, FilterPlugin, Protocol):
    """A counting plugin whose filter rejects a row for the domains that it is in, and for nothing else.

    Refusals say the same as `filter` of rows as they are, faster: of a binding only the domains are looked at that it changed.
    """

    def refusals(self, state: Any) -> Sequence[BlockedDomains]:
        """For what `count` gave: a row is rejected where any of these refuses its domain.

        The same objects for as long as they follow their domains; their topologies are refreshed already.
        """


@runtime_checkable
class GroupingScorePlugin(CountingScorePlugin, Protocol):
    """A counting plugin whose score of a row depends on nothing but the row's group and on which groups have a feasible row.

    Groups say the same as `score` and `normalize_rows`, faster: a row's score is that of its group.
    """

    def groups(self, state: Any) -> RowGroups | None:
        """The groups, for what `count` gave; the same object for as long as the groups keep their numbers.

        None: rows are to be scored one by one.
        """

    def score_groups(self, state: Any, groups: RowGroups, present: Sequence[int], feasible: BoolColumn) -> Sequence[int] | None:
        """Scores 0..100 of the groups that have a feasible row, which are `present`, ascending and at least one; in their order.

        None, whatever the rows: the plugin adds nothing. `feasible` has the shape (n_rows,). What it raises ends the attempt, as
        of `score`: rows are not asked about in its place.
        """
