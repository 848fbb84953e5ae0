"""Tests on one cluster. A package, so that it ends with the last of them."""
