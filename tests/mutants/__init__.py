"""Seeded mutation testing: one change at a time is planted into the code, and a test is to fail. `python -m tests.mutants`."""
