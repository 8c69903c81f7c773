"""All passes in order: the module computes what it did, and nothing is left to do."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.ir import ForOp, LoadOp
from nautilus.vr_tile.passes.cse import Cse
from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.passes.div_to_rcp import DivToRcp
from nautilus.vr_tile.passes.exp_to_exp2 import ExpToExp2
from nautilus.vr_tile.passes.fold_scale import FoldScale
from nautilus.vr_tile.passes.hoist import Hoist
from nautilus.vr_tile.passes.simplify_masks import SimplifyMasks
from tests.vr_tile import programs
from tests.vr_tile.support import check_pass, lowered, random_inputs

#: The order for the pipeline: rewrites first, so that one ``hoist`` and one ``cse`` see everything.
ALL = (SimplifyMasks(), ExpToExp2(), DivToRcp(), FoldScale(), Hoist(), Cse(), Dce())
STRICT = (
    SimplifyMasks(), ExpToExp2("strict"), DivToRcp("strict"), FoldScale("strict"), Hoist(), Cse(), Dce(),
)  # fmt: skip


@pytest.mark.parametrize("name", ["ATTENTION", "ROWWISE"])
def test_pipeline(name: str) -> None:
    m = check_pass(lowered(getattr(programs, name)), *ALL)
    again = m
    for p in ALL:
        again = p.apply(again)
    assert again == m


@pytest.mark.parametrize("name", ["ATTENTION", "ROWWISE"])
def test_strict_changes_no_bit(name: str) -> None:
    m = lowered(getattr(programs, name))
    data = random_inputs(m.buffers)
    want = run_module(m, data, mode="typed")
    got = run_module(check_pass(m, *STRICT), data, mode="typed")
    for k, v in want.items():
        np.testing.assert_array_equal(got[k], v, err_msg=k)


def test_one_fma_and_one_exponential_an_element() -> None:
    """The loop that no mask touches: scores, their raw maximum, fma, exp2, sums, products."""
    shown = text.format(check_pass(lowered(programs.ATTENTION), *ALL))
    loop = shown[shown.index("for j0 in 0..") : shown.index("for j0 in i0 * 2")]
    full = [line.split()[2] for line in loop.splitlines() if line.endswith("f32[i: 16, j: 8]")]
    assert full == ["dot", "fma", "exp2"]


def test_a_loop_of_one_iteration_stays_like_its_chain() -> None:
    """Its variable is a known number, but its loads must not look invariant: they are copies to stage."""
    m = check_pass(lowered(programs.CHAIN), *ALL)
    first, second = (op for op in m.kernels[0].body if isinstance(op, ForOp))
    assert first.chain == second.chain is not None
    assert [type(op) for op in first.body] == [type(op) for op in second.body]
    for a, b in zip(first.body, second.body, strict=True):
        if isinstance(a, LoadOp) and isinstance(b, LoadOp):
            assert (a.buffer, a.index, a.mask) == (b.buffer, b.index, None) and b.mask is not None
