"""Which sums of groups would be joined under promises of finite inputs (``join_groups.scalar`` has the pass)."""

from __future__ import annotations

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.operands.join_groups import fenced, joined
from nautilus.scalar.passes.simplify import Simplify

SPEC = """
dim M = 5, N = 6, G = 3, S = {length}
input A: f8e4m3[M, G, S], B: f8e4m3[N, G, S], s: f32[M, G]
output Y: f32[M, N]
Y[i, j] = sum[g](s[i, g] * sum[k](A[i, g, k] * B[j, g, k]))
"""


def test_a_sum_that_only_a_promise_would_join_is_named_with_its_inputs() -> None:
    short, long = (
        Factor().apply(Simplify().apply(Inline().apply(lower(load_text(SPEC.format(length=n)))))) for n in (32, 128)
    )
    (found,) = fenced(short, None)
    assert (found.name, found.inputs) == ("Y", ("s",)) and not joined(short, None)
    assert joined(long, None) == {"Y"} and fenced(long, None) == ()
    unfused = lower(load_text(SPEC.format(length=32).replace("s[i, g] * sum", "s[i, g] + sum")))
    assert fenced(Simplify().apply(Inline().apply(unfused)), None) == ()
