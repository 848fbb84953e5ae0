"""What a command waits for before it does anything."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import rayched.cli.main
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules} & {"cryptography", "cffi", "_cffi_backend"})))
"""


def test_no_command_waits_for_cryptography_to_be_imported() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.split() == []
