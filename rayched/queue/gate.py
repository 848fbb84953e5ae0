"""PreEnqueue: who may enter activeQ and backoffQ.

The plugins of the pod's profile are asked in order until one refuses; that one gates the pod. The plugin that gated the pod
before is asked first, since it is the likeliest to refuse again. A plugin that raises refuses with Code.ERROR.

PreEnqueue and QueueSort are the only plugins that the queue calls.
Source: runPreEnqueuePlugins of kube-scheduler 1.34. Cost: that of the plugins; nothing for a profile without any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rayched.framework.plugin import PreEnqueuePlugin
from rayched.framework.raised import Raised
from rayched.framework.status import CODE_LABELS, SUCCESS, Status, error
from rayched.queue.durations import PreEnqueueDurations
from rayched.queue.queued_pod import QueuedPodInfo

PreEnqueuePlugins = Mapping[str, Sequence[PreEnqueuePlugin]]
"""By scheduler name, in the order of the profile."""

_NO_PLUGINS: Final[tuple[PreEnqueuePlugin, ...]] = ()


class EntryGate:
    """Asks the PreEnqueue plugins of a pod's profile."""

    __slots__ = ("_durations", "_plugins", "_raised")

    def __init__(
        self, plugins: PreEnqueuePlugins, durations: PreEnqueueDurations | None = None, raised: Raised | None = None
    ) -> None:
        """`durations`: where to note down how long it takes; None: nowhere. `raised`: where tracebacks go."""
        self._raised = Raised() if raised is None else raised
        self._plugins = {profile: tuple(of_profile) for profile, of_profile in plugins.items()}
        self._durations = durations

    def examine(self, pod: QueuedPodInfo) -> Status:
        """SUCCESS, or the refusal with its plugin's name. The pod is left as it is."""
        durations = self._durations
        if durations is None:
            return self._ask(pod, None)
        began = durations.stopwatch()
        status = self._ask(pod, durations if durations.is_sampled() else None)
        durations.extension_point.observe((CODE_LABELS[status.code], pod.scheduler_name), durations.stopwatch() - began)
        return status

    def _ask(self, pod: QueuedPodInfo, durations: PreEnqueueDurations | None) -> Status:
        plugins = self._plugins.get(pod.scheduler_name, _NO_PLUGINS)
        if pod.gating_plugin:
            plugins = tuple(sorted(plugins, key=lambda plugin: plugin.name != pod.gating_plugin))
        for plugin in plugins:
            began = durations.stopwatch() if durations is not None else 0.0
            try:
                status = plugin.pre_enqueue(pod.pod)
            except Exception as raised:
                # A plugin that fails on a pod keeps that pod, and no other, out of the queue.
                text = f'running PreEnqueue plugin "{plugin.name}": {type(raised).__name__}: {raised}'
                self._raised.note(text, raised)
                status = error(text)
            if durations is not None:
                durations.plugins.observe((plugin.name, CODE_LABELS[status.code]), durations.stopwatch() - began)
            if not status.ok:
                return status.by(plugin.name)
        return SUCCESS

    def __call__(self, pod: QueuedPodInfo) -> bool:
        """Examines the pod and writes the answer into it. True: it may enter."""
        status = self.examine(pod)
        if status.ok:
            pod.gating_plugin, pod.gating_reasons = "", ()
            return True
        pod.gating_plugin, pod.gating_reasons = status.plugin, status.reasons
        pod.unschedulable_plugins |= {status.plugin}
        return False
