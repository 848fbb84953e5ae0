"""What tests of pod groups share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.core.grouped import audited
from tests.core.leading import a_replica
from tests.core.replica import Replica


@pytest.fixture
def leader() -> Iterator[Replica]:
    """A leader over two nodes of 4 CPUs; an auditor that has read the history in the end finds nothing."""
    replica = a_replica("n1", "n2")
    yield replica
    findings = audited(replica.store).findings
    assert findings.total == 0, findings.first
