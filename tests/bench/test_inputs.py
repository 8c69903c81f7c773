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


def test_ends_of_segments_ascend() -> None:
    text = (
        "dim R = 500, N = 6000\ninput ptr: i32[2, R + 1], other: i32[R + 1], x: f32[N]\noutput Y: f32[2, R]\n"
        "Y[h, r] = sum[e: ptr[h, r] .. ptr[h, r + 1]](x[e]) + sum[e: other[r] .. other[0]](x[e])\n"
    )
    spec = compile_file(Request(Path("rows.naut"), text=text, until="spec")).modules["spec"]
    raw = random_inputs(spec, 0, {})
    assert (np.diff(raw["ptr"], axis=1) >= 0).all() and raw["ptr"][0, -1] > 5900
    assert not (np.diff(raw["other"]) >= 0).all()
