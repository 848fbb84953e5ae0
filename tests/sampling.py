"""How many examples a property is tried with: a part of them in a whole run of the tests, all of them in `make test-long`.

    @pytest.mark.sampled
    @settings(max_examples=part_of(120), derandomize=True)

The marker is how `make test-long` finds them.
"""

from __future__ import annotations

import os
from typing import Final

ALL_EXAMPLES: Final = "RAYCHED_ALL_EXAMPLES"
"""A variable; set to anything where all of them are to be tried."""
PART: Final = 4


def part_of(count: int) -> int:
    """A quarter of them, or all; one at least."""
    return count if os.environ.get(ALL_EXAMPLES) else max(1, count // PART)
