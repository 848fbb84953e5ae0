"""set: images, resources and variables of containers, of pods and of what makes pods. kubectl's verbs of that name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import grpc
import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.api.manifest import ManifestErrors
from rayched.cli.connection import acting
from rayched.cli.context_option import with_context_option
from rayched.cli.objects.dry_runs import would_change
from rayched.cli.options import All, DryRunBy, DryRunOption, Namespace, Selector, Server, Words, pairs_of
from rayched.cli.printing import out, shown, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, NamedObject, Reference, named_and_changes, references, some, targets
from rayched.cli.short_options import KubectlCommand, KubectlGroup
from rayched.client.client import Client
from rayched.client.edits import patch_edit
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Container, Pod, PodSpec, ReplicationController
from rayched.v1.services_pb2 import ApplyResponse
from rayched.v1.workloads_pb2 import Job, ReplicaSet, StatefulSet

set_fields = typer.Typer(
    cls=KubectlGroup, help="Set images, resources or variables of containers.", no_args_is_help=True, rich_markup_mode=None
)

_EVERY: Final = "*"
_LISTS: Final = ("initContainers", "containers")
_MAKERS: Final = (ReplicaSet, StatefulSet, ReplicationController, Job)

Containers = Annotated[
    str, typer.Option("--containers", "-c", metavar="NAME", help="Only containers of this name; * stands for any letters.")
]
Changes = Annotated[list[str], typer.Argument(metavar="OBJECT|CHANGE", hidden=True)]
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """What is set, in words, and which fields of a container that makes; none: the container stays as it is."""

    what: str
    fields: Callable[[Container], Fields]
    names: tuple[str, ...] = ()
    """Patterns, each of which has to fit some container of the object."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The objects that a command line chooses."""

    wanted: Sequence[Reference]
    namespace: str
    selector: str
    every: bool


@set_fields.command("image", cls=KubectlCommand)
@with_context_option
def image(
    words: Changes,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    selector: Selector = "",
    every: All = False,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Set images of containers.

    \b
      rayched set image rs/web main=nginx:1.29
      rayched set image pods -l app=web '*=nginx:1.29'

    What makes pods gives the image to pods that it makes from then on.
    """
    wanted, texts = named_and_changes(words)
    images = dict(map(_image, texts))
    if not images:
        wrong("name at least one image: CONTAINER=IMAGE, or '*=IMAGE' for all containers")

    def fields(container: Container) -> Fields:
        found = next((text for name, text in images.items() if fnmatchcase(container.name, name)), None)
        return {} if found is None else {"image": found}

    change = ContainerChange("image", fields, tuple(images))
    _set(server, Chosen(wanted, namespace, selector, every), change, dry_run)


def _image(text: str) -> tuple[str, str]:
    name, equals, found = text.partition("=")
    if not (name and equals and found):
        wrong(f"{text!r}: want CONTAINER=IMAGE, as in main=nginx:1.29")
    return name, found


@set_fields.command("resources", cls=KubectlCommand)
@with_context_option
def resources(
    words: Words,
    requests: Annotated[
        str, typer.Option(metavar="RESOURCE=AMOUNT,...", help="Requested resources, as in cpu=500m,memory=1Gi.")
    ] = "",
    limits: Annotated[str, typer.Option(metavar="RESOURCE=AMOUNT,...", help="Limits, as in cpu=1,memory=2Gi.")] = "",
    containers: Containers = _EVERY,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    selector: Selector = "",
    every: All = False,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Set what containers request, and their limits.

    \b
      rayched set resources rs/web --requests cpu=500m,memory=1Gi
      rayched set resources rs/web -c main --limits cpu=2

    Resources that are not named stay as they are. Pods that are there cannot be changed; what makes pods gives it to new ones.
    """
    asked = {"requests": pairs_of("--requests", requests), "limits": pairs_of("--limits", limits)}
    amounts = {field: found for field, found in asked.items() if found}
    if not amounts:
        wrong("name what to set: --requests, --limits, or both")

    def fields(container: Container) -> Fields:
        return {"resources": amounts} if fnmatchcase(container.name, containers) else {}

    change = ContainerChange("resource requirements", fields, (containers,))
    _set(server, Chosen(references(words), namespace, selector, every), change, dry_run)


@set_fields.command("env", cls=KubectlCommand)
@with_context_option
def env(
    words: Changes,
    containers: Containers = _EVERY,
    list_variables: Annotated[bool, typer.Option("--list", help="Print what is set.")] = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    selector: Selector = "",
    every: All = False,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Set and remove variables of the environment of containers.

    \b
      rayched set env rs/web LEVEL=debug OLD-
      rayched set env rs/web --list

    Pods that are there cannot be changed; what makes pods gives it to new ones.
    """
    wanted, texts = named_and_changes(words)
    chosen = Chosen(wanted, namespace, selector, every)
    if list_variables and not texts:
        _list(server, chosen, containers)
        return
    if not texts or list_variables:
        wrong("name variables, NAME=VALUE or NAME- to remove one, or --list alone")
    variables = [_variable(text) for text in texts]

    def fields(container: Container) -> Fields:
        known = {one.name for one in container.env}
        env = [one for one in variables if "$patch" not in one or one["name"] in known]
        return {"env": env} if env and fnmatchcase(container.name, containers) else {}

    _set(server, chosen, ContainerChange("env", fields, (containers,)), dry_run)


def _variable(text: str) -> dict[str, str | None]:
    name, equals, value = text.partition("=")
    if name and equals:
        # Where it was taken from a field of the pod, it is a value from now on.
        return {"name": name, "value": value, "valueFrom": None}
    if equals or not text.endswith("-") or text == "-":
        wrong(f"{text!r}: want NAME=VALUE, or NAME- to remove it")
    return {"name": text[:-1], "$patch": "delete"}


def _list(server: str | None, chosen: Chosen, containers: str) -> None:
    with acting(server) as (client, failures):
        for target in _targets(client, chosen):
            with failures.told():
                item = client.get(target.kind, target.name, target.namespace)
                for _, container in _containers(target, item):
                    if fnmatchcase(container.name, containers):
                        out(f"# {target}, container {shown(container.name)}")
                        for one in container.env:
                            source = f"# {one.name} is the field {one.value_from.field_ref.field_path} of the pod"
                            out(shown(source if one.HasField("value_from") else f"{one.name}={one.value}"))


def _targets(client: Client, chosen: Chosen) -> Iterator[NamedObject]:
    return some(targets(client, chosen.wanted, chosen.namespace, chosen.selector, chosen.every))


def _set(server: str | None, chosen: Chosen, change: ContainerChange, dry_run: DryRunBy) -> None:
    with acting(server) as (client, failures):
        for target in _targets(client, chosen):
            with failures.told():
                done = "updated" if _changed(client, target, change, dry_run) else "not changed"
                out(f"{target} {change.what} {done}{dry_run.suffix}")


def _changed(client: Client, target: NamedObject, change: ContainerChange, dry_run: DryRunBy) -> bool:
    """Whether anything is another now, or would be."""
    patch = _patch(target, client.get(target.kind, target.name, target.namespace), change)
    try:
        if dry_run is not DryRunBy.none:
            return would_change(client, target, patch_edit(patch, "strategic"), dry_run)
        answer = client.patch(target.kind, target.name, target.namespace, patch=patch)
    except ManifestErrors as errors:
        raise _refused(target, "; ".join(map(str, errors.errors))) from None
    except ValueError as error:
        raise _refused(target, str(error)) from None
    return answer.action == ApplyResponse.CONFIGURED


def _patch(target: NamedObject, item: AnyObject, change: ContainerChange) -> Fields:
    """A strategic merge patch, which knows containers and variables by their names."""
    found = _containers(target, item)
    names = [container.name for _, container in found]
    for pattern in change.names:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise _refused(target, f"no container has the name {pattern!r}; there are {', '.join(names)}")
    spec: Fields = {}
    for field, container in found:
        if fields := change.fields(container):
            spec.setdefault(field, []).append({"name": container.name, **fields})
    return {"spec": spec if target.kind is kinds.POD else {"template": {"spec": spec}}}


def _containers(target: NamedObject, item: AnyObject) -> list[tuple[str, Container]]:
    """Each with the field that it stands in."""
    if isinstance(item, Pod):
        spec: PodSpec = item.spec
    elif isinstance(item, _MAKERS):
        spec = item.spec.template.spec
    else:
        allowed = ", ".join(kind.plural for kind in (kinds.POD, *kinds.SCALED))
        raise _refused(target, f"has no containers; set is about {allowed}")
    lists = zip(_LISTS, (spec.init_containers, spec.containers), strict=True)
    return [(field, container) for field, found in lists for container in found]


def _refused(target: NamedObject, why: str) -> ApiError:
    return ApiError(grpc.StatusCode.FAILED_PRECONDITION, f"{target}: {why}")
