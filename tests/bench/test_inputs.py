"""Random inputs of benchmarks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nautilus.bench.inputs import random_inputs
from nautilus.core.numerics import from_storage
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file

TEXT = """dim N = 5000
input v: f32[N], h: f16[N], x: f32[N]
assume 0 <= v[i] and abs(h[i]) <= 1
output Y: f32[N]
Y[i] = sqrt(v[i]) * h[i] + x[i]
"""


def test_floats_keep_the_facts_of_the_spec() -> None:
    spec = compile_file(Request(Path("facts.naut"), text=TEXT, until="spec")).modules["spec"]
    raw = random_inputs(spec, 0, {})
    assert raw["v"].min() >= 0 and np.abs(from_storage(raw["h"], DType.F16)).max() <= 1
    assert raw["x"].min() < -2  # no fact is about it
    assert len(np.unique(raw["v"])) > 1000
