"""Waiting pods by what a hint asks about them, so that an event asks few questions and each of them once.

Pods lie under their question: those that ask the same are asked together. A question lies under one handle of each way by which
a change may help it, the one with the fewest others; so a change is held against those questions alone that have a handle in
common with it. Under each handle it is known up to which question a change that looks the same was answered with SKIP: the same
change again asks those alone that came since. For that no answer may depend on anything but question and look, and all pods of a
question that is answered otherwise must leave.

Owner: UnschedulablePods. Cost: about 10 µs to put a pod in; 1 µs a handle of a change, then what the questions take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final

from rayched.framework.queueing_hints import Handle, Hint, HintQuestion, Look, PreparedHint, ReadsNoLabels
from rayched.queue.queued_pod import QueuedPodInfo

QUESTIONS_MAX: Final = 16_384
"""Compiled questions that are remembered by template."""
LOOKS_MAX: Final = 16_384
"""Looks of changes that an index remembers."""
REMEMBERED_MIN: Final = 4
"""Under a handle with fewer questions it is as quick to ask."""


class UnreadableHint(ReadsNoLabels):
    """The question of a pod that its hint failed to read: it fails at each change."""

    __slots__ = ("_problem",)

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    def __call__(self, look: Look) -> Hint:  # noqa: ARG002
        raise self._problem


class TemplateHints:
    """Compiled once a template."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, PreparedHint], HintQuestion] = {}

    def of(self, pod: QueuedPodInfo, hint: PreparedHint) -> HintQuestion:
        if pod.template is None:
            return _compiled(pod, hint)
        key = pod.template, hint
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= QUESTIONS_MAX:
                self._known.clear()
            found = self._known[key] = _compiled(pod, hint)
        return found


def _compiled(pod: QueuedPodInfo, hint: PreparedHint) -> HintQuestion:
    try:
        return hint.question(pod.pod)
    except Exception as problem:
        return UnreadableHint(problem)


class HintEntry:
    """A question and the pods that ask it, by name."""

    __slots__ = ("handles", "number", "pods", "question")

    def __init__(self, number: int, question: HintQuestion, handles: tuple[Handle, ...]) -> None:
        self.number = number
        self.question = question
        self.handles = handles
        self.pods: dict[str, QueuedPodInfo] = {}


class _QuestionBucket:
    """Questions under one handle, in the order in which they came."""

    __slots__ = ("askings", "skipped")

    def __init__(self) -> None:
        self.askings: dict[int, HintEntry] = {}
        self.skipped: dict[Hashable, int] = {}
        """The number of the last question that a look was answered for."""


class HintIndex:
    """The pods of a class by what one prepared hint asks about them."""

    __slots__ = ("_askings", "_buckets", "_keys", "_last", "_remembered")

    def __init__(self) -> None:
        self._askings: dict[HintQuestion, HintEntry] = {}
        self._buckets: dict[Handle, _QuestionBucket] = {}
        self._keys: Counter[str] = Counter()
        self._last = 0
        self._remembered = 0

    def add(self, pod: QueuedPodInfo, question: HintQuestion) -> HintEntry:
        asking = self._askings.get(question)
        if asking is None:
            self._last += 1
            asking = self._askings[question] = HintEntry(self._last, question, self._handles(question))
            for handle in asking.handles:
                bucket = self._buckets.get(handle)
                if bucket is None:
                    bucket = self._buckets[handle] = _QuestionBucket()
                bucket.askings[asking.number] = asking
            self._keys.update(question.keys)
        asking.pods[pod.key] = pod
        return asking

    def remove(self, pod: QueuedPodInfo, asking: HintEntry) -> None:
        del asking.pods[pod.key]
        if asking.pods:
            return
        del self._askings[asking.question]
        for handle in asking.handles:
            bucket = self._buckets[handle]
            del bucket.askings[asking.number]
            if not bucket.askings:
                self._remembered -= len(bucket.skipped)
                del self._buckets[handle]
        for key in asking.question.keys:
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]

    def holds(self, pod: QueuedPodInfo, asking: HintEntry) -> bool:
        return self._askings.get(asking.question) is asking and asking.pods.get(pod.key) is pod

    def askings(self) -> Iterator[HintEntry]:
        return iter(self._askings.values())

    def concerned(self, look: Look, *, anew: bool) -> Iterator[list[HintEntry]]:
        """Questions that the change may help and that have not answered it. `anew`: whatever was answered before.

        Whoever goes through all of them, and takes out the pods of those that do not answer SKIP, need not ask them again.
        """
        seen = None if anew else look.seen_by(self._keys)
        for handle in dict.fromkeys(look.handles()):
            bucket = self._buckets.get(handle)
            if bucket is None:
                continue
            if anew or len(bucket.askings) < REMEMBERED_MIN:
                yield list(bucket.askings.values())
                continue
            through = bucket.skipped.get(seen, 0)
            fresh: list[HintEntry] = []
            for asking in reversed(bucket.askings.values()):
                if asking.number <= through:
                    break
                fresh.append(asking)
            if fresh:
                yield fresh[::-1]
                self._remember(bucket, seen, fresh[0].number)

    def _remember(self, bucket: _QuestionBucket, seen: Hashable, through: int) -> None:
        if self._remembered >= LOOKS_MAX:
            for one in self._buckets.values():
                one.skipped.clear()
            self._remembered = 0
        self._remembered += seen not in bucket.skipped
        bucket.skipped[seen] = through

    def _handles(self, question: HintQuestion) -> tuple[Handle, ...]:
        """For each way the handles that fewest others have."""
        found: dict[Handle, None] = {}
        for way in question.ways:
            found |= dict.fromkeys(
                min(way, key=lambda handles: (sum(map(self._crowd, handles)), -max(map(len, handles), default=0)))
            )
        return tuple(found)

    def _crowd(self, handle: Handle) -> int:
        bucket = self._buckets.get(handle)
        return 0 if bucket is None else len(bucket.askings)


Indexes = dict[PreparedHint, HintIndex]
"""Of a class, by the hints of its plugins."""
