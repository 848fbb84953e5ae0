"""What a plugin says of the events after which a pod that it rejected is worth another attempt.

A plugin registers for cluster events; for each it may give a hint function, which is asked whether this very occurrence can help
this very pod. Without one the answer is always QUEUE. A pod is woken only by plugins that hold it.

What a hint function may rely on:

* It is given the pending pod and the object before and after; None stands for the missing one of an addition or a deletion.
* It reads the pending pod's spec, labels and namespace only, so that one answer serves all pods of a template: name, uid and
  status may be missing, in the pods before and after as well.
* For an event of UNSCHEDULABLE_POD it is asked about that pod alone, with the pod before and after its update. A pod before or
  after that has no node is therefore the pending pod itself (`is_itself`).
* It depends on nothing else, and SKIP is a promise: this occurrence does not change the plugin's mind about this pod.

A plain hint function is asked for each template of waiting pods and each event. A `PreparedHint` is the same in two halves: what
is read of the pending pod (a `HintQuestion`, compiled once) and what is read of the change (a `Look`, made once an event). Then
pods that ask the same are asked together, whatever else differs between them; changes that look the same are asked about once;
and a question that names labels is not asked about a change that has none of them.

Source: fwk.QueueingHintFn, fwk.ClusterEventWithHint of kube-scheduler 1.34.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from rayched.api.selectors import Operator, Requirement
from rayched.framework.cluster_event import ClusterEvent
from rayched.v1.core_pb2 import Pod


class Hint(enum.Enum):
    """What a hint function answers."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


HintFunction = Callable[[Pod, Any, Any], Hint]
"""(pending pod, object before, object after)."""


Labels = Mapping[str, str]
Handle: TypeAlias = tuple[str | None, ...]
"""What a change has to have: (namespace,), (namespace, label) or (namespace, label, value); None for any namespace."""
Handles: TypeAlias = frozenset[Handle]
Way: TypeAlias = tuple[Handles, ...]
"""A way for a change to help: it has one handle of each of these sets."""

ANYTHING: Final[Handles] = frozenset({(None,)})
"""Every change has this handle."""
HANDLES_MAX: Final = 64
"""In one set; a wider condition is looked for by its label alone, or not at all."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a prepared hint reads of a change: the labels before and after, and the rest."""

    rest: Hashable = None
    """Whatever is read beside labels. Equal for changes that look the same but for labels."""
    before: Labels | None = None
    """None where there was no object."""
    after: Labels | None = None
    """None where there is none any more."""
    namespace: str = ""
    """Of an object that has one."""

    def seen_by(self, keys: Container[str]) -> Hashable:
        """Equal for changes that look the same to whoever reads no other labels than these."""
        return self.namespace, self.rest, _seen(self.before, keys), _seen(self.after, keys)

    def handles(self) -> Iterator[Handle]:
        """All that the change has, some perhaps twice."""
        for namespace in (None, self.namespace):
            yield (namespace,)
            for labels in (self.before, self.after):
                for key, value in (labels or {}).items():
                    yield namespace, key
                    yield namespace, key, value


class HintQuestion(Protocol):
    """What a prepared hint reads of a pending pod. Hashable; equal ones get equal answers."""

    @property
    def keys(self) -> Collection[str]:
        """The labels that it reads of a change."""

    @property
    def ways(self) -> tuple[Way, ...]:
        """A change that goes none of these ways is answered with SKIP. Without any way all are."""

    def __call__(self, look: Look) -> Hint: ...


class ReadsNoLabels:
    """What questions have in common that look at anything but labels."""

    __slots__ = ()

    @property
    def keys(self) -> Collection[str]:
        return ()

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((ANYTHING,),)


def _ask(question: HintQuestion, look: Look) -> Hint:
    return question(look)


@dataclass(frozen=True, slots=True)
class PreparedHint:
    """A hint function in two halves. Called as a plain one it goes through both."""

    question: Callable[[Pod], HintQuestion]
    look: Callable[[Any, Any], Look]
    """Of the object before and after."""
    ask: Callable[[HintQuestion, Look], Hint] = field(default=_ask, compare=False)

    def __call__(self, pod: Pod, old: Any, new: Any) -> Hint:
        return self.ask(self.question(pod), self.look(old, new))


def handles_of(conditions: Iterable[Requirement], namespaces: Collection[str] | None = None) -> Way:
    """What labels have to have that meet all of the conditions, in an object of one of these namespaces (None: of any)."""
    among: Collection[str | None] = (None,) if namespaces is None or len(namespaces) > HANDLES_MAX else namespaces
    found: list[Handles] = [frozenset((namespace,) for namespace in among)]
    for condition in conditions:
        if condition.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST):
            continue
        key, values = condition.key, condition.values
        if condition.operator is Operator.IN and len(values) * len(among) <= HANDLES_MAX:
            found.append(frozenset((namespace, key, value) for namespace in among for value in values))
        else:
            found.append(frozenset((namespace, key) for namespace in among))
    return tuple(found)


def _seen(labels: Labels | None, keys: Container[str]) -> Hashable:
    return None if labels is None else frozenset([(key, value) for key, value in labels.items() if key in keys])


@dataclass(frozen=True, slots=True)
class Registration:
    """Events that a plugin wants to know of; without a hint function each of them is worth an attempt."""

    event: ClusterEvent
    hint: HintFunction | None = None


def queue_if(helps: bool) -> Hint:
    return Hint.QUEUE if helps else Hint.SKIP


def is_itself(pod: Pod, other: Pod) -> bool:
    """Whether `other`, a pod before or after an event, is the pending pod that the hint is asked about."""
    return not other.spec.node_name and other.metadata.uid == pod.metadata.uid
