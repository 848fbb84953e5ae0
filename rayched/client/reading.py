"""Calls that read objects; a part of Client. What they give has the type that the kind says.

    client.get(Pod, "web").spec.node_name    client.get("pod", "web").spec.node_name    for node in client.list("nodes"): ...

A kind in a variable gives any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Literal, TypeVar, overload

from rayched.api.kinds import AnyObject, Kind
from rayched.client import calls
from rayched.client.calls import Listing
from rayched.client.transport import Transport
from rayched.client.watch import ResumingStream
from rayched.client.watching import Event, EventType, cached_events
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.services_pb2 import ListResponse
from rayched.v1.workloads_pb2 import Job

T = TypeVar("T", bound=AnyObject)

PodWord = Literal["pod", "pods", "po", "Pod"]
NodeWord = Literal["node", "nodes", "no", "Node"]
JobWord = Literal["job", "jobs", "Job"]


class ReadingCalls:
    """See the module. `_transport` is the client's."""

    _transport: Transport

    @overload
    def get(self, kind: type[T], name: str, namespace: str = "default", *, timeout_seconds: float | None = None) -> T: ...

    @overload
    def get(self, kind: PodWord, name: str, namespace: str = "default", *, timeout_seconds: float | None = None) -> Pod: ...

    @overload
    def get(self, kind: NodeWord, name: str, namespace: str = "default", *, timeout_seconds: float | None = None) -> Node: ...

    @overload
    def get(self, kind: JobWord, name: str, namespace: str = "default", *, timeout_seconds: float | None = None) -> Job: ...

    @overload
    def get(
        self, kind: str | Kind, name: str, namespace: str = "default", *, timeout_seconds: float | None = None
    ) -> AnyObject: ...

    def get(
        self,
        kind: str | Kind | type[Any],
        name: str,
        namespace: str = "default",
        *,
        timeout_seconds: float | None = None,
    ) -> AnyObject:
        """The object as it is now."""
        return self._transport.do(calls.get(kind, name, namespace), timeout_seconds)

    @overload
    def list(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
    ) -> Iterator[T]: ...

    @overload
    def list(
        self,
        kind: PodWord,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
    ) -> Iterator[Pod]: ...

    @overload
    def list(
        self,
        kind: NodeWord,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
    ) -> Iterator[Node]: ...

    @overload
    def list(
        self,
        kind: JobWord,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
    ) -> Iterator[Job]: ...

    @overload
    def list(
        self,
        kind: str | Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
    ) -> Iterator[AnyObject]: ...

    def list(
        self,
        kind: str | Kind | type[Any],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
    ) -> Iterator[AnyObject]:
        """The objects, page by page; all pages show the same revision. No namespace: all of them."""
        for page in self.pages(
            kind,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_seconds=timeout_seconds,
        ):
            yield from calls.listing_of([page]).objects

    def list_all(
        self,
        kind: str | Kind | type[Any],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        revision: int = 0,
    ) -> Listing:
        """The objects and their revision, to go on with a watch; `revision`: as they were at that one."""
        pages = self.pages(
            kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector, revision=revision
        )
        return calls.listing_of(tuple(pages))

    def cached(
        self,
        kind: str | Kind | type[Any] | None,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Iterator[Event]:
        """The objects as a replica has them in memory: each as it was added, then a bookmark with the revision that they are of,
        which may be a moment ago. Kind None: all but events. A watch from the revision after it misses nothing.

        It costs etcd nothing, and a replica less than a list. Raises ApiError, also where the replica ends meanwhile: what was
        given out is then not all, and another replica begins anew.
        """
        request = calls.cached_request(kind, namespace, label_selector, field_selector)
        stream = ResumingStream(self._transport, "Watch.Watch", self._transport.patience.total_seconds, resumes=False)
        with closing(stream):
            for response in stream.responses(lambda: request):
                for event in cached_events(response):
                    yield event
                    if event.type is EventType.BOOKMARK:
                        return

    def pages(
        self,
        kind: str | Kind | type[Any],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        revision: int = 0,
        timeout_seconds: float | None = None,
    ) -> Iterator[ListResponse]:
        """The pages of a list; each call of the network has its own time."""
        request = calls.list_request(kind, namespace, label_selector, field_selector, limit, revision)
        while True:
            page: ListResponse = self._transport.call("Submission.List", request, total_seconds=timeout_seconds)
            yield page
            if not calls.has_next_page(request, page):
                return
