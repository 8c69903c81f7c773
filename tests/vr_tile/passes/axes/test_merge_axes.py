"""``merge-axes``: which products are the same computations with merged axes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.vr_tile.ir import DotOp
from nautilus.vr_tile.passes.axes.merge_axes import _keeps
from tests.ir_files import cases_in, input_of

CASES = cases_in(Path(__file__).parent / "merge_axes.vr")


@pytest.mark.parametrize(("group", "kept"), [("yx", True), ("xk", False), ("xc", False), ("kc", False), ("y", True)])
def test_products_that_stay_the_same(group: str, kept: bool) -> None:
    (op,) = (op for op in input_of(CASES["rows over two axes of an image"]).kernels[0].body if isinstance(op, DotOp))
    assert _keeps(op, set(group)) == kept
