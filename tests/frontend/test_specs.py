"""The shipped specs: each one is valid at its own sizes, and agrees with a reference written in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core.numerics import round_to
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec
from nautilus.frontend.spec import Spec
from tests import shipped
from tests.frontend.references import SPECS
from tests.shapes import static

FOLDER = Path(__file__).parents[2] / "specs"


def random_inputs(spec: Spec, seed: int) -> dict[str, Any]:
    """Random inputs already rounded to their types; integers are valid positions where they gather."""
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for t in spec.inputs:
        if t.dtype is DType.I32:
            out[t.name] = rng.integers(0, 130, static(t.shape))
        elif t.dtype.is_int:
            out[t.name] = rng.integers(-128, 128, static(t.shape))
        else:
            out[t.name] = round_to(rng.standard_normal(static(t.shape)), t.dtype)
    return out


def test_every_shipped_spec_has_a_reference() -> None:
    assert {str(p.relative_to(FOLDER).with_suffix("")) for p in shipped.SPECS} == set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_valid_without_warnings_and_commented(name: str) -> None:
    path = FOLDER / f"{name}.naut"
    assert load_spec(path).warnings == ()
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("name", SPECS)
def test_against_numpy(name: str) -> None:
    dims, reference = SPECS[name]
    spec = load_spec(FOLDER / f"{name}.naut", dims=dims)
    inputs = random_inputs(spec, 7)
    scalars = {s.name: s.default for s in spec.scalars}
    want = reference({**inputs, **scalars})
    got = run_spec(spec, inputs)
    assert set(got) == set(want)
    for key, value in got.items():
        np.testing.assert_allclose(value, want[key], rtol=1e-9, atol=1e-12)
