"""The printed text of vectors that lie between two aligned ones, by numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.driver import Request
from tests.simulation.compared import differences, prepare
from tests.simulation.simulate import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")


@pytest.mark.parametrize("dtype", ["u8", "i8", "f16", "f32", "i32"])
@pytest.mark.parametrize("by", [-17, -9, -3, -1, 1, 2, 7])
def test_neighbours(dtype: str, by: int, tmp_path: Path) -> None:
    text = f"dim H = 5, W = 512\ninput X: {dtype}[H, W]\noutput Y: f32[H, W]\n"
    text += f"Y[y, x: W] = f32(X[y, x + {by}]) if 0 <= x + {by} and x + {by} < W else 0\n"
    case = prepare(Request(Path("given.naut"), "sm_90a", text=text), integers=True)
    assert (" low = " in case.text) is (by != 2)  # pairs are aligned
    x = case.given.arrays["X"].astype(np.float64)
    want = np.zeros_like(x)
    want[:, max(0, -by) : 512 - max(0, by)] = x[:, max(0, by) : 512 - max(0, -by)]
    np.testing.assert_array_equal(case.want["Y"], want)
    found = differences(case, (0, 3), tmp_path)
    assert not found, "\n".join(found)
