"""Specs that are not shipped: every level agrees with the Spec in float64, and the CUDA text compiles."""

from __future__ import annotations

import pytest

from nautilus.core.errors import UnsupportedError
from tests.cases import some
from tests.endtoend.collection import attention, networks, numbers, tensors
from tests.endtoend.support import check, travel

SPECS = {
    f"{module.__name__.rsplit('.', 1)[-1]}: {name}": text
    for module in (numbers, tensors, networks, attention)
    for name, text in module.SPECS.items()
}
ANOTHER = 8  # one of this many specs is compiled for a target with other limits
CUBINS = 3  # one of this many specs becomes a cubin, in a run of all cases each of them; the others become PTX
#: specs whose stated error is no recorded figure (tests/check/bound/test_figures.py); the header takes longer to find
#: than the rest of a text, so only that of these is asked for
STATED = (
    "numbers: rank 0", "numbers: reductions with conditions", "numbers: typed intermediates after reductions",
    "networks: adam step", "networks: group norm", "networks: mixed products",
    "networks: sparse blocks times a matrix, scaled",
)  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_every_level_agrees(name: str) -> None:
    number = list(SPECS).index(name)
    cubin = number % some(CUBINS, 1) == 0
    made = check(SPECS[name], "sm_90" if number % ANOTHER == 0 else "sm_80", cubin=cubin)
    assert name not in STATED or "// error   " in made.result.cuda


def test_the_specs_with_a_header_are_in_the_collection() -> None:
    assert {*STATED} <= SPECS.keys()


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
