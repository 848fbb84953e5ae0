"""The services that write objects, over a hub and a model of etcd in this process, called by whoever the matrix knows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rayched.access.authorizing import Authorizer
from rayched.access.binding_table import BindingTable
from rayched.api.kinds import AnyObject, wrap
from rayched.server.admission.deletion import Deleter
from rayched.server.call_guard import CallGuard
from rayched.server.edge.caller import Caller
from rayched.server.edge.edge import Edge, EdgePorts
from rayched.server.edge.limits import EdgeLimits
from rayched.server.edge.method_traits import traits_of
from rayched.server.edge.passage import Passage
from rayched.server.rpc import Call
from rayched.server.services.access_service import AccessService
from rayched.server.services.admin_service import AdminService
from rayched.server.services.submission_service import SubmissionService
from rayched.v1 import services_pb2
from tests.access.matrix import bindings, identity, table_of
from tests.server.api_over_model import ApiOverModel
from tests.server.objects import a_namespace, a_priority_class


class ServicesOverModel:
    """Namespaces team-a and team-b, and the classes low, high and usual, which is the default."""

    def __init__(self, table: BindingTable | None = None) -> None:
        classes = (a_priority_class("low", -10), a_priority_class("high", 1000), a_priority_class("usual", 100, is_default=True))
        system = a_priority_class("system-node-critical", 2_000_001_000)
        self.api = api = ApiOverModel(a_namespace("team-a"), a_namespace("team-b"), a_namespace("kube-system"), *classes, system)
        self.guard = CallGuard(Authorizer(table or table_of(*bindings())))
        # All comes at once, however slow the host is.
        self._edge = Edge(EdgeLimits(), EdgePorts(self.guard.identify, self.guard.authorize, clock=lambda: 0.0))
        deleter = Deleter(api.objects)
        self.submission = SubmissionService(api.objects, api.admission, api.creator, deleter, self.guard)
        self.admin = AdminService(api.objects, api.admission, self.guard)
        self.access = AccessService(api.objects, self.guard.authorizer, self.guard.tokens, self.guard.revoked)

    @property
    def revision(self) -> int:
        return self.api.store.model.revision

    def call(self, column: str, name: str) -> Call:
        caller = Caller(identity(column))
        passage = Passage(self._edge, None, name, traits_of(name), caller, self._edge.limits.identity, unary=True)
        return Call(None, name, bytes, passage)

    def do(self, column: str, name: str, request: Any) -> Any:
        """As the edge does it: judged, then done. Raises ApiFailure."""
        call = self.call(column, name)
        self.guard.judge(call.caller, name, request)
        service, _, method = name.partition(".")
        function = getattr(getattr(self, service.lower()), "".join(f"_{c.lower()}" if c.isupper() else c for c in method)[1:])
        return self.run(function(request, call))

    def submit(self, column: str, message: AnyObject, dry_run: bool = False) -> Any:
        return self.do(column, "Submission.Submit", services_pb2.SubmitRequest(object=wrap(message), dry_run=dry_run))

    def apply(self, column: str, message: AnyObject, dry_run: bool = False) -> Any:
        return self.do(column, "Submission.Apply", services_pb2.ApplyRequest(object=wrap(message), dry_run=dry_run))

    def submit_many(self, column: str, *messages: AnyObject) -> Any:
        """Its request is read by the service itself, entry by entry."""
        request = services_pb2.SubmitManyRequest(objects=[wrap(message) for message in messages])
        return self.run(self.submission.submit_many(request.SerializeToString(), self.call(column, "Submission.SubmitMany")))

    def show(self) -> None:
        """To the hub: all that is stored."""
        self.api.hub.listed(list(self.api.store.model.now.values()), self.revision)

    @staticmethod
    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)
