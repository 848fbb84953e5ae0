"""Tests of the command. A package, so that the cluster of conftest.py ends with the last of them."""
