"""What a plugin's class must be, read from the protocols, and what is wrong with one that is not.

A form is a protocol of `plugin`, `accelerated` or `simple_plugin`, with the names that it adds to its bases. Nobody keeps a list
of methods beside the protocols: time budgets, the simple form and this table are derived from them.

A plugin is looked at once, when it is made from its configuration, before it is asked anything. Told is, with the class:

    a name of a form, and not all that the form has      `normalize` without `score`, `reasons` without `filter`
    two forms that exclude each other                    `stack` beside `count`, `filter_node` beside `key`
    what is there and cannot be used                     a method that takes other arguments, `reads` that is no Log
    a name that is nearly one of the contract's          `normalise`, `preFilter`, kube-scheduler's `less`
    an acceleration that a base class says of other rules    `filter` of its own, `needs` of NodeResourcesFit
    no extension point at all

Every other public name is the plugin's own business, and every private one. A stub that a class inherits from a protocol which it
names among its bases counts as missing; None in place of a method takes back what a base class can.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final, Protocol, get_type_hints

from rayched.framework import accelerated as accelerated_forms
from rayched.framework import plugin as plugin_forms
from rayched.framework import simple_plugin as simple_forms
from rayched.framework.accelerated import ResourcePlugin, StackingPlugin
from rayched.framework.extension_points import PROTOCOLS
from rayched.framework.plugin import (
    ColumnPlugin,
    CountingPlugin,
    CountingScorePlugin,
    FilterPlugin,
    NormalizingPlugin,
    Plugin,
    PodPart,
    ScorePlugin,
)
from rayched.framework.simple_plugin import SimplePlugin

NEAR: Final = 0.8
"""Names that are so much alike are one misspelt: a letter in five. Suggestions begin at 0.6, where `state` is like `stack`."""
ELSEWHERE: Final[Mapping[str, str]] = {
    "pre_filter": "narrow",
    "pre_score": "prepare",
    "queue_sort": "sort_key",
    "less": "sort_key",
    "normalize_score": "normalize",
    "events_to_register": "registrations",
    "sign_pod": "key",
}
"""Extension points and methods of kube-scheduler that have another name here."""

RETIRED: Final[Mapping[str, PodPart]] = {
    "reads_mentioned_labels_alone": PodPart.LABELS_BY_SELECTOR,
    "reads_tolerations_of_known_taints_alone": PodPart.TOLERATIONS_OF_TAINTS,
}
"""Flags that `reads_pod` has taken the place of. In this version they are read still, and a warning says what to write."""
GONE: Final = ("filter_plain", "score_plain", "reads_no_containers")
"""What nobody asks for any more; a plugin says the same without it."""


@dataclass(frozen=True, slots=True)
class Form:
    protocol: type
    own: tuple[str, ...]
    """Names that it adds to its bases', in its order."""
    members: tuple[str, ...]
    """All names, its bases' first."""


def _forms(*modules: ModuleType) -> Iterator[Form]:
    """The forms of these modules, bases before those that extend them."""
    for module in modules:
        for found in vars(module).values():
            if isinstance(found, type) and found.__module__ == module.__name__ and Protocol in found.__bases__:
                bases = [base for base in reversed(found.__mro__) if Plugin in base.__mro__ or SimplePlugin in base.__mro__]
                names = [name for base in bases for name in _names(base)]
                if bases:
                    yield Form(found, _names(found), tuple(dict.fromkeys(names)))


def _names(protocol: type) -> tuple[str, ...]:
    return tuple(name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_"))


FORMS: Final = tuple(_forms(plugin_forms, accelerated_forms, simple_forms))
_FORM_OF: Final[Mapping[str, Form]] = {name: form for form in reversed(FORMS) for name in form.own}
"""By name; of those that add it the first."""


_MEMBERS: Final[Mapping[type, tuple[str, ...]]] = {form.protocol: form.members for form in FORMS}


def _declared(name: str) -> Any:
    """What the protocol has under its name: a function, a property; of an annotated name None."""
    return vars(_FORM_OF[name].protocol).get(name)


def methods_of(kind: type) -> frozenset[str]:
    """The methods of all forms that extend this one."""
    forms = [form for form in FORMS if kind in form.protocol.__mro__]
    return frozenset(name for form in forms for name in form.own if inspect.isfunction(_declared(name)))


METHODS: Final = methods_of(object)
SIMPLE_METHODS: Final = methods_of(SimplePlugin)
COLUMN_METHODS: Final = methods_of(ColumnPlugin)

_APART: Final[tuple[tuple[type, type, str], ...]] = (
    (StackingPlugin, CountingPlugin, "no state stands for several of which each has counts of its own"),
    (StackingPlugin, NormalizingPlugin, "of many keys at once there are no bounds of raw scores"),
    (ResourcePlugin, CountingPlugin, "needs are met by what is free on the row alone"),
    (NormalizingPlugin, CountingPlugin, "scores of a counting plugin are normalised by normalize_rows"),
)
"""Forms that no plugin has both of, and why."""
_TOGETHER: Final[tuple[tuple[type, type, type], ...]] = ((CountingPlugin, ScorePlugin, CountingScorePlugin),)
"""Who has the first two has to have the third."""


def is_simple(plugin: object) -> bool:
    return any(hasattr(plugin, name) for name in SIMPLE_METHODS)


def has_form(plugin: object, protocol: type) -> bool:
    """Whether the plugin has all that the form has. None in place of a method takes back what a base class can.

    It says what isinstance says where nothing is taken back, in a tenth of the time.
    """
    return all(getattr(plugin, name, None) is not None for name in _MEMBERS[protocol])


def faults(plugin: object) -> list[str]:
    """What is wrong with a plugin, in words that name its class; nothing where it is as it should be."""
    of, has = type(plugin), frozenset(name for name in _FORM_OF if getattr(plugin, name, None) is not None)
    found = [*_misspelt(of), *_unfinished(plugin), *_outdated(of, has)]
    if is_simple(plugin):
        found += [*_unusable(plugin, has & _OF_SIMPLE_PLUGINS), *_mixed(plugin, has)]
    else:
        found += [*_unusable(plugin, has), *_incomplete(has), *_excluded(has)]
        if not found and not has & _EXTENSION_POINTS:
            found.append(
                f"takes part in no extension point, for want of any of {_listed(sorted(_EXTENSION_POINTS | SIMPLE_METHODS))}"
            )
    return [f"class {of.__module__}.{of.__qualname__}: {one}" for one in found]


def advice(plugin: object) -> list[str]:
    """What a plugin may have for the last time, in words that name its class."""
    of = type(plugin)
    found = [
        f"{flag} is read for the last time in this version, write reads_pod = PodPart.{part.name}"
        for flag, part in RETIRED.items()
        if hasattr(plugin, flag)
    ]
    found += [f"{name} is no longer asked for, leave it out" for name in GONE if hasattr(plugin, name)]
    return [f"class {of.__module__}.{of.__qualname__}: {one}" for one in found]


def reads_pod(plugin: object) -> PodPart:
    """What the plugin says of how it reads a pod, also by flags of before; these may take back what a base class says."""
    found: PodPart = getattr(plugin, "reads_pod", PodPart(0))
    for flag, part in RETIRED.items():
        if hasattr(plugin, flag):
            found = found | part if getattr(plugin, flag) else found & ~part
    return found


def _unfinished(plugin: object) -> Iterator[str]:
    """What comes from a protocol among its bases is a stub, which answers nothing."""
    for form in FORMS:
        if form.protocol in type(plugin).__mro__:
            stubs = [name for name in form.own if not hasattr(plugin, name) or _is_stub(plugin, name)]
            if stubs:
                yield f"is a {form.protocol.__name__} by its bases, and has no {_listed(stubs)} of its own"


def _outdated(of: type, has: Collection[str]) -> Iterator[str]:
    """What a base class says once more, faster, is not what its subclass says with a rule of its own."""
    for form in FORMS:
        if form.protocol.__module__ != accelerated_forms.__name__:
            continue
        said_again = [name for name in form.members if name in _RULES] or _RULES
        for name in form.own:
            newer = [rule for rule in said_again if name in has and rule in has and _place(of, rule) < _place(of, name)]
            if newer:
                base, rules = of.__mro__[_place(of, name)].__name__, ", ".join(newer)
                yield (
                    f"{rules} is its own, and {name} that of {base}, which says the same as {base}'s {rules}; "
                    f"allowed is {_shown(name)} of its own, or {name} = None"
                )


def _place(of: type, name: str) -> int:
    """Of the class that has it, among the bases."""
    return next((place for place, base in enumerate(of.__mro__) if name in vars(base)), 0)


def _is_stub(plugin: object, name: str) -> bool:
    declared = _declared(name)
    return declared is not None and inspect.getattr_static(plugin, name) is declared


def _misspelt(of: type) -> Iterator[str]:
    for name in dir(of):
        if name.startswith("_") or name in _FORM_OF:
            continue
        if near := difflib.get_close_matches(_squeezed(name), _MEANT, 1, NEAR):
            allowed = _shown(_MEANT[near[0]])
            yield f"nobody asks for {name}, allowed is {allowed}; what is the plugin's own has another name, or is _{name}"


def _unusable(plugin: object, has: Collection[str]) -> Iterator[str]:
    for name in _FORM_OF:
        if name not in has:
            continue
        value = getattr(plugin, name)
        if name not in METHODS:
            expected = _type_of(name)
            if not isinstance(value, expected):
                yield f"{name} is of type {type(value).__name__}, allowed is {expected.__name__}"
        elif not callable(value):
            yield f"{name} is of type {type(value).__name__}, allowed is a method {_shown(name)}"
        elif inspect.iscoroutinefunction(value):
            yield f"{name} is async, allowed is a method {_shown(name)} that answers at once"
        elif not _takes(value, len(_parameters(name))):
            yield f"{name}{inspect.signature(value)} does not take what it is given, allowed is {_shown(name)}"


@cache
def _type_of(name: str) -> type:
    declared = _declared(name)
    of = _FORM_OF[name].protocol if declared is None else declared.fget
    found: type = get_type_hints(of)[name if declared is None else "return"]
    return found


def _takes(method: Callable[..., Any], n_arguments: int) -> bool:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return True  # One that is not written in Python does not tell.
    try:
        signature.bind(*range(n_arguments))
    except TypeError:
        return False
    return True


def _mixed(plugin: object, has: frozenset[str]) -> Iterator[str]:
    """The simple form stands alone. What such a plugin keeps under other names, and is no method, is nobody's business."""
    others = [name for name in METHODS - SIMPLE_METHODS if name in has and callable(getattr(plugin, name))]
    if others:
        beside = _listed(sorted(SIMPLE_METHODS & has), " and ")
        yield f"{', '.join(sorted(others))} would not be called beside {beside}: make it a plugin of its own"


def _incomplete(has: frozenset[str]) -> Iterator[str]:
    told: set[str] = set()
    for form in FORMS:
        lacking = [name for name in form.members if name not in has and name not in told]
        if lacking and not has.isdisjoint(form.own):
            told.update(lacking)
            yield (
                f"{', '.join(name for name in form.own if name in has)} is of no use without {_listed(lacking)}; "
                f"a {form.protocol.__name__} has {_listed(form.members)}"
            )


def _excluded(has: frozenset[str]) -> Iterator[str]:
    for one, other, both in _TOGETHER:
        if has.issuperset((*_MEMBERS[one], *_MEMBERS[other])) and (lacking := [name for name in _names(both) if name not in has]):
            yield f"{_listed(_names(one))} beside {_listed(_names(other))} is of no use without {_listed(lacking)}"
    for one, other, why in _APART:
        if has.issuperset((*_MEMBERS[one], *_MEMBERS[other])):
            yield f"{_listed(_names(one))} and {_listed(_names(other))} exclude each other, allowed is one of them: {why}"


def _squeezed(name: str) -> str:
    """The same for normalizeScore, NormalizeScore and normalize_score."""
    return name.replace("_", "").lower()


@cache
def _parameters(name: str) -> list[str]:
    return list(inspect.signature(_declared(name)).parameters)[1:]


def _shown(name: str) -> str:
    return f"{name}({', '.join(_parameters(name))})" if name in METHODS else name


def _listed(names: Iterable[str], between: str = ", ") -> str:
    return between.join(map(_shown, names))


_MEANT: Final = {_squeezed(name): meant for name, meant in (*ELSEWHERE.items(), *zip(_FORM_OF, _FORM_OF, strict=True))}
_RULES: Final = tuple(name for form in (FilterPlugin, ScorePlugin, CountingScorePlugin) for name in _names(form))
"""What accelerations say once more."""
_OF_SIMPLE_PLUGINS: Final = SIMPLE_METHODS | {"reads"}
_EXTENSION_POINTS: Final = METHODS.intersection(name for protocol in PROTOCOLS.values() for name in _names(protocol))
"""Methods of which a plugin has one at least."""
