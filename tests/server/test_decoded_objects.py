"""The objects that a server has decoded last: shared by all who read the same change, and no more bytes than it can bear."""

from __future__ import annotations

from random import Random

from rayched.api.kinds import POD, wrap
from rayched.api.validation.limits import POD_BYTES
from rayched.server.watching.changes import DECODED_KEPT, LARGE_BYTES, LARGE_DECODED_KEPT, EventEncoder
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod


def an_entry(number: int, size: int) -> Entry:
    pod = Pod()
    pod.metadata.name, pod.metadata.annotations["long"] = f"pod-{number}", "x" * size
    return Entry(Keys().object_key(POD, "default", pod.metadata.name), encode(wrap(pod)), number, number)


def test_the_same_change_is_decoded_once_whatever_its_size() -> None:
    encoder = EventEncoder()
    for number, size in enumerate((1, LARGE_BYTES - 1_000, LARGE_BYTES, POD_BYTES)):
        entry = an_entry(number, size)
        assert encoder.decode(entry) is encoder.decode(entry)


def test_objects_of_any_sizes_are_kept_up_to_a_weight() -> None:
    encoder, random = EventEncoder(), Random(1)
    seen = []
    for number in range(3 * LARGE_DECODED_KEPT):
        entry = an_entry(number, random.choice([100, LARGE_BYTES, 4 * LARGE_BYTES]))
        seen.append((entry, encoder.decode(entry)))
    kept: list[int] = []
    # From the newest on: the first that is decoded anew is older than all that are kept.
    for entry, item in reversed(seen):
        if len(entry.value) <= LARGE_BYTES:
            assert encoder.decode(entry) is item, "large ones drive no small ones out"
        elif encoder.decode(entry) is item:
            kept.append(entry.mod_revision)
    large = [entry.mod_revision for entry, _ in seen if len(entry.value) > LARGE_BYTES]
    assert kept == large[: -LARGE_DECODED_KEPT - 1 : -1]
    assert LARGE_DECODED_KEPT * 2 * POD_BYTES <= 64 << 20 and DECODED_KEPT * LARGE_BYTES <= 64 << 20
