"""The pods of one job, sorted by what is to be done about them, and kept so as they change: a look costs what has changed.

| pod | in |
|---|---|
| has ended, with the finalizer, and is named or of no index that counts | `release` |
| has succeeded, the first of an index that the status does not have | `fresh`, by its index |
| has ended otherwise, with the finalizer | `unnamed`, by how |
| active, of an Indexed job, without an index of it | `_homeless` |
| active, one of several of an index, or of an index that is done | found by `_crowded` and `_needless` |

Ended is also who was asked to end, where the job replaces such pods at once. A pod is sorted by the rules of the job and by what
its status says: who is named, which indexes are completed. A change of the rules, and a status that the leader did not expect,
have everything sorted anew; what the leader itself wrote moves those pods alone that it says something new of.

Pure. Owner: the JobMemory, fed by a PodSet. Cost: a few microseconds a change of a pod; of what is asked, as much as it gives
out. Indexes that are free are found once each, and looked at again when a pod of theirs goes.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rayched.controllers.workloads.index_set import IndexSet
from rayched.controllers.workloads.owned_pods import OwnedPod, PodSet

_Pods = dict[bytes, OwnedPod]


class TallyRules(NamedTuple):
    """What of a job's spec decides where a pod belongs."""

    indexed: bool
    completions: int
    """0 where the job does not say."""
    only_failed: bool
    """A pod that was asked to end counts, and is replaced, not before it has ended."""


class JobTally:
    """See the module. `follow` first, at each look."""

    def __init__(self) -> None:
        self._pods: PodSet | None = None
        self._rules = TallyRules(False, 0, False)
        self._named: frozenset[str] = frozenset()
        self._recorded = IndexSet()
        self._expected: tuple[IndexSet, Collection[int]] = IndexSet(), ()
        """The completed indexes that the leader wants said, and which of them are new."""
        self._seen: set[str] = set()
        """uids of those that had ended at the last look."""
        self._touched: set[str] = set()
        """Of those that may be others since."""
        self._clear()

    def _clear(self) -> None:
        self.release: _Pods = {}
        self.unnamed: dict[str, _Pods] = {"Succeeded": {}, "Failed": {}}
        self.fresh: defaultdict[int, _Pods] = defaultdict(dict)
        self._place: dict[bytes, _Pods] = {}
        """By key of a pod that has ended: in which of them it is."""
        self._ended: defaultdict[str, _Pods] = defaultdict(dict)
        """By uid. It is the server's to give, but this relies on no more than that it is a text."""
        self._held: Counter[str] = Counter()
        """How many pods of a uid the finalizer holds."""
        self._homeless: _Pods = {}
        self._active_at: defaultdict[int, _Pods] = defaultdict(dict)
        self._crowded: set[int] = set()
        self._needless: set[int] = set()
        self._taken: Counter[int] = Counter()
        """How many pods have an index, so that no other is made for it."""
        self._unlooked = 0
        """Indexes from here on were never looked at."""
        self._free: list[int] = []
        """A heap of indexes below that; one that is not free any more is dropped when it comes up."""
        self._on_heap: set[int] = set()

    # -------------------------------------------------------------------------------------------------------- following

    def follow(self, pods: PodSet, rules: TallyRules, named: frozenset[str], recorded: IndexSet) -> None:
        """Makes it the tally of these pods, by these rules, with what the stored status says."""
        if pods is not self._pods or rules != self._rules:
            self._recount(pods, rules, named, recorded)
            return
        if recorded != self._recorded:
            expected, added = self._expected
            if recorded != expected:
                self._recount(pods, rules, named, recorded)
                return
            self._recorded, self._expected = recorded, (recorded, ())
            for index in added:
                self._now_recorded(index)
        changed, self._named = self._named ^ named, named
        for uid in changed:
            for pod in list(self._ended.get(uid, _NONE).values()):
                self._unsort(pod)
                self._sort(pod)

    def _recount(self, pods: PodSet, rules: TallyRules, named: frozenset[str], recorded: IndexSet) -> None:
        if self._pods is not None:
            self._pods.listener = None
        self._touched.update(self._ended)
        self._clear()
        self._pods, self._rules, self._named, self._recorded = pods, rules, named, recorded
        self._expected = recorded, ()
        pods.listener = self._changed
        for pod in pods.every.values():
            self._came(pod)

    def _now_recorded(self, index: int) -> None:
        for pod in self.fresh.pop(index, _NONE).values():
            self._place[pod.key] = self.release
            self.release[pod.key] = pod
        self._reindex(index)

    def _changed(self, old: OwnedPod | None, new: OwnedPod | None) -> None:
        if old is not None:
            self._went(old)
        if new is not None:
            self._came(new)

    # ------------------------------------------------------------------------------------------------------------- pods

    def _has_ended(self, pod: OwnedPod) -> bool:
        return pod.tracked and (pod.ended or (pod.deleting and not self._rules.only_failed))

    def _takes_index(self, pod: OwnedPod) -> bool:
        return self._rules.indexed and not pod.ended and (not pod.deleting or self._rules.only_failed)

    def _has_valid_index(self, pod: OwnedPod) -> bool:
        return pod.index is not None and pod.index < self._rules.completions

    def _came(self, pod: OwnedPod) -> None:
        if pod.tracked:
            self._held[pod.uid] += 1
        if self._has_ended(pod):
            self._ended[pod.uid][pod.key] = pod
            self._touched.add(pod.uid)
            self._sort(pod)
        if self._takes_index(pod):
            self._place_index(pod, 1)

    def _went(self, pod: OwnedPod) -> None:
        if pod.tracked:
            self._held[pod.uid] -= 1
            if not self._held[pod.uid]:
                del self._held[pod.uid]
        if self._has_ended(pod):
            alike = self._ended[pod.uid]
            del alike[pod.key]
            if not alike:
                del self._ended[pod.uid]
            self._touched.add(pod.uid)
            self._unsort(pod)
        if self._takes_index(pod):
            self._place_index(pod, -1)

    def _sort(self, pod: OwnedPod) -> None:
        """One that has ended."""
        outcome = "Succeeded" if pod.phase == "Succeeded" else "Failed"
        index = pod.index
        if pod.uid in self._named or (self._rules.indexed and not self._has_valid_index(pod)):
            place = self.release
        elif not self._rules.indexed or outcome == "Failed" or index is None:
            place = self.unnamed[outcome]
        elif index in self._recorded:
            place = self.release
        else:
            is_first = index not in self.fresh
            place = self.fresh[index]
            if is_first:
                self._reindex(index)
        self._place[pod.key] = place
        place[pod.key] = pod

    def _unsort(self, pod: OwnedPod) -> None:
        place = self._place.pop(pod.key)
        del place[pod.key]
        index = pod.index
        if not place and index is not None and self.fresh.get(index) is place:
            del self.fresh[index]
            self._reindex(index)

    # ---------------------------------------------------------------------------------------------------------- indexes

    def _place_index(self, pod: OwnedPod, by: int) -> None:
        """One that keeps others from its index comes, or goes."""
        index, is_active = pod.index, not pod.deleting
        if index is None or not self._has_valid_index(pod):
            if is_active and by > 0:
                self._homeless[pod.key] = pod
            elif is_active:
                del self._homeless[pod.key]
            return
        self._taken[index] += by
        if not self._taken[index]:
            del self._taken[index]
        if is_active:
            there = self._active_at[index]
            if by > 0:
                there[pod.key] = pod
            else:
                del there[pod.key]
            if not there:
                del self._active_at[index]
        self._reindex(index)

    def _is_done(self, index: int) -> bool:
        return index in self.fresh or index in self._recorded

    def _is_free(self, index: int) -> bool:
        return index not in self._taken and not self._is_done(index)

    def _reindex(self, index: int) -> None:
        """What is so of the index by now."""
        n_active = len(self._active_at.get(index, _NONE))
        for holds, table in ((n_active > 1, self._crowded), (n_active > 0 and self._is_done(index), self._needless)):
            if holds:
                table.add(index)
            else:
                table.discard(index)
        if index < self._unlooked and index not in self._on_heap and self._is_free(index):
            self._on_heap.add(index)
            heapq.heappush(self._free, index)

    # ------------------------------------------------------------------------------------------------------------ asked

    @property
    def held(self) -> Mapping[str, int]:
        """By uid, those that the finalizer holds."""
        return self._held

    def news(self) -> list[OwnedPod]:
        """Those that have ended since they were asked for last, in any order."""
        found: list[OwnedPod] = []
        for uid in self._touched:
            pods = self._ended.get(uid)
            if pods is None:
                self._seen.discard(uid)
            elif uid not in self._seen:
                self._seen.add(uid)
                found.extend(pods.values())
        self._touched.clear()
        return found

    def done(self) -> IndexSet:
        """The completed indexes: those that the status has, and those that have come."""
        if not self.fresh:
            return self._recorded
        added = sorted(self.fresh)
        self._expected = self._recorded.with_indexes(added), added
        return self._expected[0]

    def out_of_place(self) -> _Pods:
        """Active pods without an index of the job, or with one that is done or that another one has; by key."""
        found = list(self._homeless.values())
        for index in self._crowded | self._needless:
            pods = sorted(self._active_at[index].values(), key=_precedence)
            found += pods if index in self._needless else pods[1:]
        return {pod.key: pod for pod in sorted(found, key=_precedence)}

    def free_indexes(self, count: int) -> list[int]:
        """The lowest that are neither done nor taken, so many at most."""
        found: list[int] = []
        while self._free and len(found) < count:
            index = heapq.heappop(self._free)
            if self._is_free(index):
                found.append(index)
            else:
                self._on_heap.discard(index)
        while len(found) < count:
            index = self._recorded.next_missing(self._unlooked)
            if index >= self._rules.completions:
                break
            self._unlooked = index + 1
            if self._is_free(index):
                self._on_heap.add(index)
                found.append(index)
        # They are free until a pod of theirs is seen.
        for index in found:
            heapq.heappush(self._free, index)
        return found


_NONE: _Pods = {}


def _precedence(pod: OwnedPod) -> tuple[bool, float, str, bytes]:
    """Of several of one index the first stays."""
    return not pod.node_name, pod.created_at, pod.uid, pod.key
