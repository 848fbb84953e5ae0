"""What the fields of a kustomization do to the objects that it names. Pure.

In kustomize's order: strategic patches and `patches`, namespace, prefix and suffix, labels, annotations, `patchesJson6902`,
replicas, images. So patches name objects as their files do.

Source: kustomize 5.7, its built-in transformers and the fields that they change.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rayched.api import kinds
from rayched.api.errors import bounded_line
from rayched.api.manifest import Document
from rayched.api.patches import PatchFault, json_patch
from rayched.api.selectors import SelectorError, parse_label_selector
from rayched.api.strategic_patches import strategic_patch

_TEMPLATED: Final = frozenset(kind.name for kind in kinds.SCALED)
_CLUSTER_WIDE: Final = frozenset(kind.name for kind in kinds.KINDS if not kind.namespaced)
_NAMESPACE: Final = kinds.NAMESPACE.name
_SELECTING: Final = frozenset({"Service", "ReplicationController", "ReplicaSet", "StatefulSet", "Job", "PodDisruptionBudget"})
_IMAGE: Final = re.compile(r"(?P<name>[^@]*?)(?P<tag>:[^:/@]+)?(?P<digest>@.*)?")
_LISTED_MAX: Final = 10
_TARGET_FIELDS: Final = frozenset({"group", "version", "kind", "name", "namespace", "labelSelector", "annotationSelector"})


class KustomizeFault(ValueError):
    """A kustomization that cannot be built; one line."""

    def __init__(self, text: str) -> None:
        super().__init__(bounded_line(text))


@dataclass(slots=True)
class KustomizedObject:
    """An object on its way, and the names it has had."""

    document: Document
    names: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, document: Document) -> KustomizedObject:
        found = cls(copy.deepcopy(document))
        if not isinstance(found.metadata.get("name"), str):
            raise KustomizeFault(f"{found.kind or 'an object'}: metadata.name: is required")
        found.names.add(found.name)
        return found

    @property
    def kind(self) -> str:
        return str(self.document.get("kind", ""))

    @property
    def metadata(self) -> Document:
        return _object(self.document, "metadata")

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    def rename(self, name: str) -> None:
        self.names.add(name)
        self.metadata["name"] = name

    def template(self) -> Document | None:
        """Of pods that it makes."""
        return _object(self.document, "spec", "template") if self.kind in _TEMPLATED else None

    def pod_spec(self) -> Document | None:
        template = self.template()
        if template is not None:
            return _object(template, "spec")
        return _object(self.document, "spec") if self.kind == kinds.POD.name else None


def kustomized(resources: Sequence[KustomizedObject], plan: Document) -> list[KustomizedObject]:
    """`plan`: its patches are documents already. Raises KustomizeFault."""
    found = list(resources)
    for patch in plan.get("patchesStrategicMerge") or []:
        found = _patched(found, {"patch": [patch]}, "patchesStrategicMerge")
    for entry in plan.get("patches") or []:
        found = _patched(found, entry, "patches")
    _set_namespace(found, _text(plan, "namespace"))
    _rename(found, _text(plan, "namePrefix"), _text(plan, "nameSuffix"))
    _label(found, _texts(plan, "commonLabels"), selectors=True, templates=True)
    for entry in _entries(plan, "labels"):
        selectors = entry.get("includeSelectors") is True
        templates = selectors or entry.get("includeTemplates") is True
        _label(found, _texts(entry, "pairs"), selectors=selectors, templates=templates)
    _annotate(found, _texts(plan, "commonAnnotations"))
    for entry in plan.get("patchesJson6902") or []:
        found = _patched(found, entry, "patchesJson6902")
    for entry in _entries(plan, "replicas"):
        _scale(found, entry)
    for entry in _entries(plan, "images"):
        _set_image(found, entry)
    _unique(found)
    return found


# --------------------------------------------------------------------------------------------------------------- patches


def _patched(resources: Sequence[KustomizedObject], entry: Document, where: str) -> list[KustomizedObject]:
    """Those that are left: a patch can take an object out."""
    target = entry.get("target")
    if target is not None and (not isinstance(target, dict) or not set(target) <= _TARGET_FIELDS):
        raise KustomizeFault(f"{where}: target: want an object with {', '.join(sorted(_TARGET_FIELDS))}")
    found = list(resources)
    for patch in entry["patch"]:
        is_json = isinstance(patch, list)
        if target is None and (is_json or not isinstance(patch, dict)):
            raise KustomizeFault(f"{where}: a JSON patch needs a target")
        fits = _fits_target(target, where) if target is not None else _fits_name(patch, where)
        chosen = [resource for resource in found if fits(resource)]
        if not chosen:
            named = target or {"kind": patch.get("kind"), **(patch.get("metadata") or {})}
            said = " ".join(str(named[key]) for key in ("kind", "name", "labelSelector") if named.get(key))
            raise KustomizeFault(f"{where}: no object is {said or 'meant'}; there are {_listed(found)}")
        for resource in chosen:
            if not _patch(resource, patch, where):
                found.remove(resource)
    return found


def _patch(resource: KustomizedObject, patch: Any, where: str) -> bool:
    """Whether the object is still there."""
    kind, metadata = resource.kind, copy.deepcopy(resource.metadata)
    try:
        if isinstance(patch, list):
            changed = json_patch(resource.document, patch)
        else:
            changed = strategic_patch(resource.document, patch, kind)
    except PatchFault as fault:
        raise KustomizeFault(f"{where}: {kind} {resource.name}: {fault}") from None
    if not changed:
        return False
    if not isinstance(changed, dict):
        raise KustomizeFault(f"{where}: {kind} {resource.name}: is no object any more")
    resource.document = changed
    if not isinstance(patch, list):
        # Whose patch it is, it is not the patch's to change.
        changed["kind"] = kind
        _object(changed, "metadata").update({key: metadata[key] for key in ("name", "namespace") if key in metadata})
    return True


def _fits_name(patch: Document, where: str) -> Callable[[KustomizedObject], bool]:
    metadata = patch.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = patch.get("kind")
    if not isinstance(name, str) or not isinstance(kind, str):
        raise KustomizeFault(f"{where}: a patch without a target needs kind and metadata.name of what it changes")
    return lambda resource: resource.kind == kind and name in resource.names


def _fits_target(target: Document, where: str) -> Callable[[KustomizedObject], bool]:
    try:
        kind, name, namespace = (re.compile(str(target.get(key) or ".*")) for key in ("kind", "name", "namespace"))
        labels = parse_label_selector(str(target.get("labelSelector") or ""))
        annotations = parse_label_selector(str(target.get("annotationSelector") or ""))
    except (re.error, SelectorError) as error:
        raise KustomizeFault(f"{where}: target: {error}") from None
    group, version = target.get("group"), target.get("version")

    def fits(resource: KustomizedObject) -> bool:
        own_group, _, own_version = str(resource.document.get("apiVersion", "")).rpartition("/")
        return (
            group in (None, "", own_group)
            and version in (None, "", own_version)
            and bool(kind.fullmatch(resource.kind))
            and any(map(name.fullmatch, resource.names))
            and bool(namespace.fullmatch(str(resource.metadata.get("namespace", ""))))
            and labels.matches(_strings(resource.metadata.get("labels")))
            and annotations.matches(_strings(resource.metadata.get("annotations")))
        )

    return fits


# --------------------------------------------------------------------------------------------------- names and namespaces


def _set_namespace(resources: Iterable[KustomizedObject], namespace: str) -> None:
    for resource in resources if namespace else ():
        if resource.kind == _NAMESPACE:
            resource.rename(namespace)
        elif resource.kind not in _CLUSTER_WIDE:
            resource.metadata["namespace"] = namespace


def _rename(resources: Sequence[KustomizedObject], prefix: str, suffix: str) -> None:
    """With what names these objects. Namespaces keep their names, as in kustomize."""
    if not prefix and not suffix:
        return
    renamed: dict[tuple[str, str], str] = {}
    for resource in resources:
        if resource.kind != _NAMESPACE:
            before = resource.name
            resource.rename(f"{prefix}{before}{suffix}")
            renamed[resource.kind, before] = resource.name
    for resource in resources:
        spec = resource.pod_spec()
        places = [(spec, "priorityClassName", "PriorityClass"), (spec, "runtimeClassName", "RuntimeClass")]
        if resource.kind == kinds.STATEFUL_SET.name:
            places.append((_object(resource.document, "spec"), "serviceName", "Service"))
        for holder, key, kind in places:
            if holder is not None and (new := renamed.get((kind, str(holder.get(key, ""))))):
                holder[key] = new


def _unique(resources: Iterable[KustomizedObject]) -> None:
    seen = set()
    for resource in resources:
        key = (resource.kind, resource.metadata.get("namespace"), resource.name)
        if key in seen:
            raise KustomizeFault(f"{resource.kind} {resource.name}: occurs twice")
        seen.add(key)


# ---------------------------------------------------------------------------------------------------- labels, annotations


def _label(resources: Iterable[KustomizedObject], labels: dict[str, str], *, selectors: bool, templates: bool) -> None:
    for resource in resources if labels else ():
        _object(resource.metadata, "labels").update(labels)
        template = resource.template()
        if template is not None and templates:
            _object(template, "metadata", "labels").update(labels)
        if selectors:
            for selector in _selectors(resource):
                selector.update(labels)


def _selectors(resource: KustomizedObject) -> Iterator[Document]:
    """Maps of labels by which an object finds its pods, where it has them to have."""
    spec = _object(resource.document, "spec") if resource.kind in _SELECTING else {}
    if resource.kind in ("Service", "ReplicationController"):
        if spec.get("selector") or resource.kind == "ReplicationController":
            yield _object(spec, "selector")
    elif resource.kind in ("ReplicaSet", "StatefulSet") or (resource.kind in _SELECTING and spec.get("selector")):
        yield _object(spec, "selector", "matchLabels")


def _annotate(resources: Iterable[KustomizedObject], annotations: dict[str, str]) -> None:
    for resource in resources if annotations else ():
        _object(resource.metadata, "annotations").update(annotations)
        template = resource.template()
        if template is not None:
            _object(template, "metadata", "annotations").update(annotations)


# ------------------------------------------------------------------------------------------------------ replicas, images


def _scale(resources: Sequence[KustomizedObject], entry: Document) -> None:
    name, count = entry.get("name"), entry.get("count")
    if not isinstance(name, str) or not isinstance(count, int) or isinstance(count, bool):
        raise KustomizeFault("replicas: want name and count in each")
    chosen = [one for one in resources if name in one.names and one.kind in _TEMPLATED and one.kind != kinds.JOB.name]
    if not chosen:
        raise KustomizeFault(f"replicas: {name}: nothing of this name has replicas; there are {_listed(resources)}")
    for resource in chosen:
        _object(resource.document, "spec")["replicas"] = count


def _set_image(resources: Iterable[KustomizedObject], entry: Document) -> None:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise KustomizeFault("images: want a name in each, and newName, newTag or digest")
    new_name, new_tag, digest = (_text(entry, key) for key in ("newName", "newTag", "digest"))
    for resource in resources:
        spec = resource.pod_spec() or {}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            found = _IMAGE.fullmatch(str(container.get("image", ""))) if isinstance(container, dict) else None
            if found and found["name"] == name:
                rest = f"@{digest}" if digest else f":{new_tag}" if new_tag else f"{found['tag'] or ''}{found['digest'] or ''}"
                container["image"] = f"{new_name or name}{rest}"


# --------------------------------------------------------------------------------------------------------------- helpers


def _object(owner: Document, *path: str) -> Document:
    """The object at this path, made where it is not there."""
    for key in path:
        found = owner.get(key)
        if found is None:
            found = owner[key] = {}
        if not isinstance(found, dict):
            raise KustomizeFault(f"{key}: want an object, found {found!r:.60}")
        owner = found
    return owner


def _entries(plan: Document, key: str) -> list[Document]:
    found = plan.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise KustomizeFault(f"{key}: want a list of objects")
    return found


def _text(plan: Document, key: str) -> str:
    found = plan.get(key)
    if found is not None and (isinstance(found, bool) or not isinstance(found, str | int | float)):
        raise KustomizeFault(f"{key}: want a text, found {found!r:.60}")
    return "" if found is None else str(found)


def _texts(plan: Document, key: str) -> dict[str, str]:
    found = plan.get(key)
    if found is not None and (not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values())):
        raise KustomizeFault(f"{key}: want texts by name; numbers and truth values stand in quotes")
    return dict(found or {})


def _strings(found: Any) -> dict[str, str]:
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _listed(resources: Iterable[KustomizedObject]) -> str:
    found = [f"{resource.kind} {resource.name}" for resource in resources]
    more = f", and {len(found) - _LISTED_MAX} more" if len(found) > _LISTED_MAX else ""
    return f"{', '.join(found[:_LISTED_MAX])}{more}" if found else "none"
