"""Specs that are not shipped: every level agrees with the Spec in float64, and the CUDA text compiles."""

from __future__ import annotations

import pytest

from nautilus.core.errors import UnsupportedError
from tests.endtoend.collection import attention, networks, numbers, tensors
from tests.endtoend.support import check, travel

SPECS = {
    f"{module.__name__.rsplit('.', 1)[-1]}: {name}": text
    for module in (numbers, tensors, networks, attention)
    for name, text in module.SPECS.items()
}


@pytest.mark.parametrize("name", SPECS)
def test_every_level_agrees(name: str) -> None:
    assert "// error   " in check(SPECS[name], "sm_80").result.cuda  # every spec has a stated error


@pytest.mark.parametrize("name", list(SPECS)[::8])
def test_another_target(name: str) -> None:
    check(SPECS[name], "sm_90")


UNSUPPORTED = {
    "8-bit": """
        dim N = 40
        input X: f8e4m3[N]
        output Y: f32[N]
        Y[i] = X[i] * 2""",
}


@pytest.mark.parametrize("feature", UNSUPPORTED)
def test_what_is_not_supported_is_named(feature: str) -> None:
    """A spec compiles, or the error names the feature. The Scalar level always runs."""
    travel(UNSUPPORTED[feature], until="scalar")
    try:
        travel(UNSUPPORTED[feature])
    except UnsupportedError as error:
        assert feature in str(error) and "X" in str(error)
