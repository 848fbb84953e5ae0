"""Amounts of pods by number: what the table says of each template, whatever came in between."""

from __future__ import annotations

from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.template_amounts import TemplateAmounts
from rayched.snapshot.templates import PodTemplate, TemplateTable
from tests.snapshot.objects import a_pod


def some_templates(n: int) -> list[PodTemplate]:
    """Every tenth asks for a resource of its own."""
    table = TemplateTable()
    own = [{f"example.com/r{number}": "3"} if not number % 10 else {} for number in range(n)]
    return [table.intern(a_pod({"cpu": f"{number + 1}m", **more})) for number, more in enumerate(own)]


def test_each_template_has_the_amounts_that_the_table_gives_it() -> None:
    snapshot, templates = Snapshot(), some_templates(45)
    amounts = snapshot.template_amounts
    numbers = amounts.numbers(templates)
    assert numbers == list(range(45)) and amounts.numbers(reversed(templates)) == numbers[::-1]
    for template, number in zip(templates, numbers, strict=True):
        said = [int(amounts.amounts(place)[number]) for place in snapshot.resources.values()]
        assert said == snapshot.vectors_of(template)[0].tolist()
    unknown = snapshot.resource_place("example.com/nobody-has")
    assert not amounts.amounts(unknown).any() and len(amounts.amounts(unknown)) > max(numbers)


def test_numbers_begin_anew_where_there_are_too_many() -> None:
    snapshot, templates = Snapshot(), some_templates(12)
    amounts = TemplateAmounts(lambda template: snapshot.vectors_of(template)[0], limit=5)
    amounts.numbers(templates[:5])
    before = amounts.generation
    amounts.make_room()
    assert amounts.generation == before + 1 and len(amounts) == 0
    # A template with fewer resources takes the place of one with more.
    numbers = amounts.numbers(templates[10:] + templates[:1])
    for template, number in zip(templates[10:] + templates[:1], numbers, strict=True):
        said = [int(amounts.amounts(place)[number]) for place in snapshot.resources.values()]
        assert said == snapshot.vectors_of(template)[0].tolist()
    amounts.make_room()
    assert amounts.generation == before + 1, "there is room"
