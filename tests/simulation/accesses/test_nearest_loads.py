"""The printed text of vectors at the nearest position of a row, by numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.driver import Request
from tests.simulation.compared import differences, prepare
from tests.simulation.simulate import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")


@pytest.mark.parametrize("dtype", ["u8", "bf16", "f32"])
def test_sums_of_neighbours(dtype: str, tmp_path: Path) -> None:
    text = f"dim H = 3, W = 128\ninput part: {dtype}[H, W]\noutput word: f32[H, W]\n"
    text += "word[y: H, x: W] = f32(sum[r: 5](part[y, clamp(x + r - 2, 0, W - 1)]))\n"
    case = prepare(Request(Path("given.naut"), "sm_90a", text=text), integers=True)
    assert "const bool low = " in case.text
    x = np.pad(case.given.arrays["part"].astype(np.float64), ((0, 0), (2, 2)), "edge")
    np.testing.assert_array_equal(case.want["word"], sum(x[:, r : r + 128] for r in range(5)))
    found = differences(case, (0,), tmp_path)
    assert not found, "\n".join(found)
