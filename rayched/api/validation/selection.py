"""Rules for what a controller selects, and for the template that it makes pods of.

Source: the validation packages of apps and batch, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Sequence

from rayched.api.selectors import LabelSelectorMatcher, SelectorError
from rayched.api.validation.faults import Faults
from rayched.api.validation.metadata import check_label_selector
from rayched.api.validation.pods import check_template
from rayched.v1.core_pb2 import PodTemplateSpec
from rayched.v1.meta_pb2 import LabelSelector


def check_selector(
    selector: LabelSelector | None,
    template: PodTemplateSpec | None,
    faults: Faults,
    restart_policies: Sequence[str] = ("Always",),
) -> None:
    """A controller's selector: it selects something, and what its template makes."""
    before = len(faults.errors)
    if selector is None or not (selector.match_labels or selector.match_expressions):
        faults.add("spec.selector", "is required, and must not be empty")
    else:
        check_label_selector(selector, "spec.selector", faults)
    sound = len(faults.errors) == before
    if template is not None:
        check_template(template, "spec.template", faults, restart_policies)
        try:
            matches = not sound or LabelSelectorMatcher(selector).matches(template.metadata.labels)
        except SelectorError as error:
            faults.add("spec.selector", str(error))
        else:
            if not matches:
                faults.add("spec.template.metadata.labels", "must match spec.selector")
