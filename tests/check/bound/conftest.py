"""Tests of the bound compute it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nautilus.check.bound.stated import keep_bounds


@pytest.fixture(autouse=True)
def computed_bounds() -> Iterator[None]:
    """No bound is taken from another test."""
    old = keep_bounds(None)
    yield
    keep_bounds(old)
