"""Verdicts as code columns.

Cost: one numpy call a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from rayched.framework.status import Code
from rayched.snapshot.columns import BoolColumn, CodeColumn

_FACTORS: Final[Mapping[Code, np.uint8]] = {code: np.uint8(code) for code in Code}
"""Made once: an enumeration's member is slow to turn into a number of numpy's."""


def coded(rejected: BoolColumn, code: Code) -> CodeColumn:
    """The code where a row is rejected, SUCCESS elsewhere. Shape (rows,), uint8."""
    codes: CodeColumn = np.multiply(rejected.view(np.uint8), _FACTORS[code])
    return codes
