"""What a command line names: `pods`, `pods web-0 web-1`, `pod/web-0 node/node-001`, `pods,nodes`, or what a selector finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rayched.api import kinds
from rayched.api.kinds import Kind, UnknownKind, by_word
from rayched.cli.printing import fail, nothing_found, wrong
from rayched.client.client import Client

DEFAULT_NAMESPACE = "default"
ALL_KINDS = (kinds.POD, kinds.REPLICATION_CONTROLLER, kinds.SERVICE, kinds.REPLICA_SET, kinds.STATEFUL_SET, kinds.JOB)
"""What `all` stands for, in kubectl's order."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Objects of one kind; without a name all of them."""

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        return label_of(self.kind, self.name) if self.name else self.kind.plural


@dataclass(frozen=True, slots=True)
class NamedObject:
    """One object; the namespace is empty where its kind has none."""

    kind: Kind
    namespace: str
    name: str
    uid: str = field(default="", compare=False)
    """Of the object that a selector found; empty: whichever has the name."""

    def __str__(self) -> str:
        return label_of(self.kind, self.name)


def label_of(kind: Kind, name: str) -> str:
    """kubectl's way to name an object: pod/web, replicaset.apps/web."""
    return f"{type_of(kind)}/{name}"


def type_of(kind: Kind) -> str:
    """The kind with its API group, where it has one: pod, replicaset.apps."""
    return f"{kind.singular}.{kind.group}" if kind.group else kind.singular


class NoReference(Exception):
    """A word is not what an object is named by; `str()` tells what was found and what is allowed."""


def references(words: Sequence[str]) -> list[Reference]:
    """kubectl's forms: TYPE[,TYPE], TYPE NAME..., TYPE/NAME...; they cannot be mixed. Ends the command where they are wrong."""
    try:
        return _references(words)
    except NoReference as error:
        fail(str(error))


def named(word: str) -> Reference:
    """The object that TYPE/NAME names. Raises NoReference."""
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise NoReference(f"{word!r} is not TYPE/NAME; types with and without names cannot be mixed")
    return Reference(_kind(kind), name)


def _references(words: Sequence[str]) -> list[Reference]:
    if any("/" in word for word in words):
        return [named(word) for word in words]
    is_alone = len(words) == 1 and "," not in words[0]
    kinds_named = [
        kind for word in words[0].split(",") if word for kind in (ALL_KINDS if word == "all" else (_kind(word, is_alone),))
    ]
    names = words[1:]
    if not kinds_named:
        raise NoReference(f"{words[0]!r} names no type of object")
    if names:
        return [Reference(kind, name) for kind in kinds_named for name in names]
    return [Reference(kind) for kind in dict.fromkeys(kinds_named)]


def targets(
    client: Client,
    wanted: Sequence[Reference],
    namespace: str,
    selector: str,
    everything: bool,
    field_selector: str = "",
) -> Iterator[NamedObject]:
    """The objects themselves: those named, or those that a selector or --all finds."""
    if everything and selector:
        wrong("--all cannot be combined with a selector")
    for reference in wanted:
        if reference.name:
            if selector or everything or field_selector:
                wrong(f"{reference}: a name cannot be combined with a selector or --all")
            yield NamedObject(reference.kind, namespace if reference.kind.namespaced else "", reference.name)
        elif not selector and not everything and not field_selector:
            wrong(f"{reference}: name the objects, or choose them with -l, or --all")
        else:
            for item in client.list(reference.kind, namespace=namespace, label_selector=selector, field_selector=field_selector):
                yield NamedObject(reference.kind, item.metadata.namespace, item.metadata.name, item.metadata.uid)


def some(found: Iterable[NamedObject]) -> Iterator[NamedObject]:
    """The targets, and a word where there are none."""
    target = None
    for target in found:
        yield target
    if target is None:
        nothing_found("")


def named_and_changes(words: Sequence[str], *, named_elsewhere: bool = False) -> tuple[list[Reference], list[str]]:
    """`nodes a b key=value key-`, `node/a key-`: what comes before the first change names the objects.

    `named_elsewhere`: manifests name them, so all words are changes.
    """
    first = next((index for index, word in enumerate(words) if _is_change(word)), len(words))
    names, changes = words[:first], list(words[first:])
    if names and named_elsewhere:
        wrong(f"{names[0]!r}: objects are named either here or by -f")
    if not names and not named_elsewhere:
        wrong(f"{words[0]!r} comes before any object; name one as TYPE NAME or TYPE/NAME")
    for word in changes:
        if not _is_change(word):
            wrong(f"{word!r} is neither KEY=VALUE nor KEY-; objects are named first")
    return references(names) if names else [], changes


def _is_change(word: str) -> bool:
    """No name of an object has such a character, nor ends so."""
    return "=" in word or ":" in word or word.endswith("-")


def kind_named(word: str) -> Kind:
    """Ends the command where there is no such type."""
    try:
        return _kind(word)
    except NoReference as error:
        fail(str(error))


def _kind(word: str, is_alone: bool = False) -> Kind:
    """`is_alone`: nothing else is named, so the word may be meant as the name of an object, or of a file."""
    try:
        return by_word(word)
    except UnknownKind as error:
        hint = ""
        if is_alone and not error.is_advised:
            hint = f"; a file is named with -f {word}" if is_manifest(word) else f"; a name alone is no object: pod {word}"
        raise NoReference(f"{error}{hint}") from None


def is_manifest(word: str) -> bool:
    """Whether it looks like the name of a file."""
    return word.lower().endswith((".yaml", ".yml", ".json"))
