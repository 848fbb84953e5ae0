"""DefaultBinder: hand the binding to the store, for every pod that no other Bind plugin took.

Bind: always SUCCESS. The write itself, guarded by epoch, pod and node, is the scheduler's: plugins do no I/O.

Source: kube-scheduler 1.34, where the plugin writes the Binding object.
Cost: none.
"""

from __future__ import annotations

from typing import Final

from rayched.framework import names
from rayched.framework.cycle_state import CycleState
from rayched.framework.plugin import BindPlugin
from rayched.framework.status import SUCCESS, Status
from rayched.v1.core_pb2 import Pod


class DefaultBinder(BindPlugin):
    name: Final = names.DEFAULT_BINDER
    takes_every_pod: Final = True
    """So that it need not be asked."""

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:  # noqa: ARG002 - takes whatever comes
        return SUCCESS
