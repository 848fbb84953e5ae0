"""apply --prune: what was applied once and is in the manifests no more is deleted, as kubectl does it.

Only what `apply` made is looked at, which carries its note; so nothing that a controller or `create` made goes. Looked at are the
namespaces of what was applied now, and the kinds of `all`; others, and those of the cluster, only where --prune-allowlist names
them. Nothing is deleted where anything was refused before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rayched.api import kinds
from rayched.api.kinds import AnyObject, Kind, UnknownKind
from rayched.api.manifest import ReadResult
from rayched.api.names import LAST_APPLIED
from rayched.api.selectors import Requirements, SelectorError, parse_label_selector
from rayched.cli.connection import ObjectFailures
from rayched.cli.options import DryRunBy
from rayched.cli.printing import out, wrong
from rayched.cli.references import ALL_KINDS, DEFAULT_NAMESPACE, label_of
from rayched.client.client import Client

_FORM: Final = "want GROUP/VERSION/KIND, as in core/v1/Pod or apps/v1/ReplicaSet"


@dataclass(frozen=True, slots=True)
class Pruning:
    """What may go."""

    selector: str
    """Labels; empty: whatever was applied."""
    kinds: tuple[Kind, ...]

    def prune(self, client: Client, applied: Sequence[ReadResult], dry_run: DryRunBy, failures: ObjectFailures) -> None:
        """Deletes what is not among these, and tells of each."""
        kept = {_key(kinds.unwrap(result.object)) for result in applied}
        namespaces = sorted({namespace for _, namespace, _ in kept if namespace})
        for kind in self.kinds:
            for namespace in namespaces if kind.namespaced else ("",):
                with failures.told():
                    for item in list(self._found(client, kind, namespace)):
                        if _key(item) not in kept:
                            _delete(client, item, dry_run, failures)

    def _found(self, client: Client, kind: Kind, namespace: str) -> Iterator[AnyObject]:
        for item in client.list(kind, namespace=namespace, label_selector=self.selector):
            if LAST_APPLIED in item.metadata.annotations and not item.metadata.HasField("deletion_timestamp"):
                yield item


def pruning(prune: bool, selector: str, everything: bool, allowlist: Iterable[str]) -> Pruning | None:
    """None: nothing is pruned. Ends the command where the options do not go together."""
    named = tuple(dict.fromkeys(map(_kind, allowlist)))
    if not prune:
        if everything or named:
            wrong("--all and --prune-allowlist say what --prune may delete; name that too")
        return None
    if bool(selector) == everything:
        wrong("--prune deletes what was applied and is in the manifests no more: choose among it with -l, or name --all")
    return Pruning(selector, named or ALL_KINDS)


def selected(results: Sequence[ReadResult], selector: str) -> list[ReadResult]:
    """Those whose labels fit."""
    try:
        wanted: Requirements = parse_label_selector(selector)
    except SelectorError as error:
        wrong(f"--selector: {error}")
    return [result for result in results if wanted.matches(kinds.unwrap(result.object).metadata.labels)]


def _key(item: AnyObject) -> tuple[Kind, str, str]:
    kind = kinds.of_message(item)
    return kind, (item.metadata.namespace or DEFAULT_NAMESPACE) if kind.namespaced else "", item.metadata.name


def _delete(client: Client, item: AnyObject, dry_run: DryRunBy, failures: ObjectFailures) -> None:
    kind, metadata = kinds.of_message(item), item.metadata
    with failures.told():
        if dry_run is DryRunBy.none:
            client.delete(kind, metadata.name, metadata.namespace, uid=metadata.uid)
        out(f"{label_of(kind, metadata.name)} pruned{dry_run.suffix}")


def _kind(text: str) -> Kind:
    group, _, rest = text.partition("/")
    version, _, name = rest.rpartition("/")
    try:
        kind = kinds.by_name(name)
    except UnknownKind as error:
        wrong(f"--prune-allowlist {text!r}: {_FORM if not version else error}")
    if (f"{group}/{version}" if group not in ("", "core") else version) != kind.api_version:
        wrong(f"--prune-allowlist {text!r}: {kind.name} is of {kind.api_version}; {_FORM}")
    return kind
