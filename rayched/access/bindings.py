"""Role bindings: which identity has which role, where, what its pods may have, and how much it may. Pure.

A binding names its subject exactly. There are no patterns, no groups and no prefixes: whoever can choose a name shall not choose
a role with it. Ranges of nodes are the exception, and belong to an agent that answers for many; they match digits alone.

What lies in etcd was written by a server that judged it, and is judged again when it is read: a binding that would be refused
today, or whose id is not that of its content, gives nobody anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.access.binding_limits import NO_LIMITS, BindingLimits, limit_faults, read_limits
from rayched.access.identity import Identity, IdentityError, IdentityKind
from rayched.access.policy import AccessRole
from rayched.api.errors import FieldError, one_of, quoted
from rayched.api.names import label_fault, subdomain_fault
from rayched.v1 import access_pb2

ALL_NAMESPACES: Final = "*"
ENTRIES_MAX: Final = 100
"""Namespaces, classes, schedulers or nodes of one binding."""
SYSTEM_CLASSES: Final = "system-"
"""What the names of priority classes of the system begin with."""

_GRANTED: Final = (
    AccessRole.VIEWER,
    AccessRole.SUBMITTER,
    AccessRole.OPERATOR,
    AccessRole.ADMIN,
    AccessRole.MONITOR,
    AccessRole.NODE,
)
_NAMESPACED: Final = (AccessRole.VIEWER, AccessRole.SUBMITTER)
_PEOPLE: Final = (IdentityKind.USER, IdentityKind.WEB)
_RANGE: Final = re.compile(r"([a-z0-9][-.a-z0-9]*)\{([0-9]{1,9})\.\.([0-9]{1,9})\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RoleBinding:
    """One role of one identity; the fields are those of access.proto."""

    subject: Identity
    role: AccessRole
    namespaces: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] = ()
    scheduler_names: tuple[str, ...] = ()
    privileged: bool = False
    nodes: tuple[str, ...] = ()
    limits: BindingLimits = NO_LIMITS

    @property
    def id(self) -> str:
        """Of subject, role and namespaces: one binding for each."""
        text = "\n".join((self.subject.uri, self.role.value, *self.namespaces))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def is_everywhere(self) -> bool:
        """For all namespaces."""
        return self.role not in _NAMESPACED or self.namespaces == (ALL_NAMESPACES,)

    def covers(self, namespace: str) -> bool:
        """Whether a namespace is one of the binding's. Exactly; the empty text is none."""
        return bool(namespace) and (self.is_everywhere or namespace in self.namespaces)

    def has_node(self, name: str) -> bool:
        """Whether a node is one of those that the binding lists."""
        return any(name == entry or _is_in_range(name, entry) for entry in self.nodes)

    def to_message(self) -> access_pb2.RoleBinding:
        return access_pb2.RoleBinding(
            id=self.id,
            subject=self.subject.uri,
            role=self.role.value,
            namespaces=self.namespaces,
            priority_classes=self.priority_classes,
            scheduler_names=self.scheduler_names,
            privileged=self.privileged,
            nodes=self.nodes,
            limits=self.limits.to_message(),
        )

    def __str__(self) -> str:
        """ "submitter in team-a, team-b" """
        if self.role not in _NAMESPACED:
            return self.role.value
        return f"{self.role.value} in {'all namespaces' if self.is_everywhere else ', '.join(self.namespaces)}"


class BindingErrors(ValueError):
    """All that is wrong with a binding: never empty."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = tuple(errors)


def read_binding(message: access_pb2.RoleBinding) -> RoleBinding:
    """Raises BindingErrors. An id is not looked at; order and repetitions of entries do not count."""
    errors: list[FieldError] = []
    subject = _subject(message.subject, errors)
    role = next((role for role in _GRANTED if role.value == message.role), None)
    if role is None:
        allowed = one_of([role.value for role in _GRANTED])
        errors.append(FieldError("role", f"{quoted(message.role)} cannot be granted; allowed are {allowed}"))
    if subject is not None and role is not None:
        errors += _fit(subject, role)
    if role is not None:
        errors += _namespace_faults(role, message.namespaces)
        errors += _submitter_faults(role, message)
        errors += _node_faults(role, message.nodes)
        errors += limit_faults(role, message.limits)
    if errors or subject is None or role is None:
        raise BindingErrors(errors)
    return RoleBinding(
        subject,
        role,
        _sorted(message.namespaces),
        _sorted(message.priority_classes),
        _sorted(message.scheduler_names),
        message.privileged,
        _sorted(message.nodes),
        read_limits(message.limits),
    )


def _subject(uri: str, errors: list[FieldError]) -> Identity | None:
    try:
        return Identity.parse(uri)
    except IdentityError as error:
        errors.append(FieldError("subject", str(error)))
        return None


def _fit(subject: Identity, role: AccessRole) -> list[FieldError]:
    wanted = (IdentityKind.NODES,) if role is AccessRole.NODE else _PEOPLE
    if subject.kind in wanted:
        return []
    kinds = one_of([kind.value for kind in wanted])
    return [FieldError("subject", f"the role {role.value} is for an identity of the kind {kinds}, found {subject.uri}")]


def _namespace_faults(role: AccessRole, names: Sequence[str]) -> list[FieldError]:
    if role not in _NAMESPACED:
        return [FieldError("namespaces", f"the role {role.value} is one of the cluster; must be empty")] if names else []
    if not names:
        return [FieldError("namespaces", f'the role {role.value} needs the names of namespaces, or "{ALL_NAMESPACES}" for all')]
    if ALL_NAMESPACES in names:
        if set(names) == {ALL_NAMESPACES}:
            return []
        return [FieldError("namespaces", f'"{ALL_NAMESPACES}" stands for all of them, and must be the only one')]
    return _entry_faults("namespaces", names, label_fault)


def _submitter_faults(role: AccessRole, message: access_pb2.RoleBinding) -> list[FieldError]:
    if role is not AccessRole.SUBMITTER:
        given = [name for name in ("priority_classes", "scheduler_names", "privileged") if getattr(message, name)]
        return [FieldError(name, f"is for the role {AccessRole.SUBMITTER.value}, found with {role.value}") for name in given]
    faults = _entry_faults("priority_classes", message.priority_classes, _class_fault)
    return faults + _entry_faults("scheduler_names", message.scheduler_names, subdomain_fault)


def _class_fault(name: str) -> str | None:
    if name.startswith(SYSTEM_CLASSES):
        return f"{quoted(name)} is a class of the system, which administrators alone may use"
    return subdomain_fault(name)


def _node_faults(role: AccessRole, names: Sequence[str]) -> list[FieldError]:
    if role is not AccessRole.NODE:
        return [FieldError("nodes", f"is for the role {AccessRole.NODE.value}, found with {role.value}")] if names else []
    if not names:
        return [FieldError("nodes", "the role node needs the names of nodes, or ranges such as node-{000..199}")]
    return _entry_faults("nodes", names, _node_fault)


def _node_fault(entry: str) -> str | None:
    if "{" not in entry:
        return subdomain_fault(entry)
    match = _RANGE.fullmatch(entry)
    if match is None or len(match[2]) != len(match[3]) or int(match[2]) > int(match[3]):
        return f"{quoted(entry)} is no range; want one such as node-{{000..199}}, both ends with as many digits"
    return subdomain_fault(match[1] + match[3])


def _is_in_range(name: str, entry: str) -> bool:
    match = _RANGE.fullmatch(entry)
    if match is None or not name.startswith(match[1]):
        return False
    digits = name[len(match[1]) :]
    return len(digits) == len(match[2]) and digits.isascii() and digits.isdigit() and match[2] <= digits <= match[3]


def _entry_faults(field: str, entries: Sequence[str], fault_of: Callable[[str], str | None]) -> list[FieldError]:
    if len(entries) > ENTRIES_MAX:
        return [FieldError(field, f"found {len(entries)} entries; at most {ENTRIES_MAX} are allowed")]
    faults = ((index, fault_of(entry)) for index, entry in enumerate(entries))
    return [FieldError(f"{field}[{index}]", fault) for index, fault in faults if fault is not None]


def _sorted(entries: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(entries)))
