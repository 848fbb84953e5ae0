"""Values keep their numbers until they are numbered anew; images keep their size until the last node lets them go."""

from __future__ import annotations

from random import Random

import pytest

from rayched.snapshot.images import ImageCensus, reported_images
from rayched.snapshot.interning import Interner
from rayched.v1.core_pb2 import Node


@pytest.mark.parametrize("seed", range(3))
def test_equal_values_have_one_number_and_keep_it(seed: int) -> None:
    random = Random(seed)
    interner: Interner[str, list[str]] = Interner()
    expected: list[str] = []
    for _ in range(300):
        key = f"value-{random.randrange(40)}"
        if random.random() < 0.02:
            kept = random.sample(range(len(expected)), len(expected) // 2)
            renumbered = interner.keep(kept)
            assert renumbered == {old: new for new, old in enumerate(sorted(kept))}
            expected = [expected[old] for old in sorted(kept)]
        else:
            assert interner.find(key) == (expected.index(key) if key in expected else None)
            number = interner.intern(key, [key])
            if key not in expected:
                expected.append(key)
            assert number == expected.index(key)
        assert len(interner) == len(expected) and interner.values == [[key] for key in expected]
        start = random.randrange(len(expected) + 1)
        assert interner.keys_from(start) == expected[start:]


@pytest.mark.parametrize("seed", range(3))
def test_an_image_has_the_size_that_its_first_node_reported(seed: int) -> None:
    random = Random(seed)
    states: dict[str, tuple[int, int]] = {}
    census = ImageCensus(states)
    nodes: dict[int, tuple[tuple[str, int], ...]] = {}
    sizes: dict[str, int] = {}
    for _ in range(300):
        number = random.randrange(5)
        if number in nodes:
            census.remove(nodes.pop(number))
        else:
            nodes[number] = tuple((name, random.randint(1, 9)) for name in random.sample("abcd", random.randint(0, 3)))
            census.add(nodes[number])
        having = {name: sum(name in dict(images) for images in nodes.values()) for name in "abcd"}
        sizes = {name: sizes[name] if name in sizes else dict(nodes[number])[name] for name in "abcd" if having[name]}
        assert states == {name: (sizes[name], having[name]) for name in sizes}


def test_a_name_that_is_reported_twice_counts_with_its_first_size() -> None:
    node = Node()
    node.status.images.add(names=["a", "a:1"], size_bytes=5)
    node.status.images.add(names=["b", "a"], size_bytes=7)
    assert reported_images(node) == (("a", 5), ("a:1", 5), ("b", 7))
