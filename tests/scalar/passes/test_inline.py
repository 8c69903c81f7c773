"""``inline``: the default rule, the bound on the size, certificates. What the pass does: ``inline.scalar``."""

from __future__ import annotations

import pytest

from nautilus.frontend.spec import Spec
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.inline import Inline, default_inline
from tests.scalar.expect import sound
from tests.scalar.programs.specs import LANGUAGE, SHIPPED, agree, language, small


def spec_named(stem: str) -> Spec:
    return small(next(s for s in SHIPPED if s.stem == stem))


def test_default_rule_and_order() -> None:
    assert default_inline(lower(spec_named("causal_prefill"))) == ("S", "P")
    assert default_inline(lower(spec_named("f16"))) == ()


def test_size_is_bounded() -> None:
    lines = ["dim N = 4", "input X: f32[N]", "output Y: f32[N]", "A0[i] = X[i]"]
    lines += [f"A{k + 1}[i] = sin(A{k}[i]) * A{k}[(i + {k}) % N] + A{k}[i // 2]" for k in range(12)]
    from nautilus.frontend.semantics.check import load_text

    spec = load_text("\n".join([*lines, "Y[i] = A12[i]"]) + "\n")
    p = lower(spec)
    names = default_inline(p)
    assert 0 < len(names) < 13
    q = Dead().apply(Inline().apply(p))
    sound(q)
    agree(spec, q)


def test_a_temp_of_many_tensors_that_is_read_in_windows_stays_in_memory() -> None:
    from nautilus.frontend.semantics.check import load_text

    text = """dim Y = 6, X = 8
input A: f32[Y, X], B: f32[Y, X], C: f32[Y, X], D: f32[Y, X]
output O: f32[Y, X]
P[y, x] = A[y, x] + B[y, x] * C[y, x] {rest}
Q[y, x] = A[y, x] * 2
O[y, x] = {reader} * Q[y, x]
"""
    window = "sum[u: 3 | 0 <= y + u - 1 < Y](P[y + u - 1, x])"
    for rest, reader, names in (
        ("- D[y, x]", window, ("Q",)),
        ("- D[y, x]", "P[y, x] * P[y, x] - P[Y - 1 - y, x]", ("P", "Q")),
        ("", window, ("P", "Q")),
    ):
        spec = load_text(text.format(rest=rest, reader=reader))
        p = lower(spec)
        assert default_inline(p) == names
        agree(spec, Dead().apply(Inline().apply(p)))


def test_repeated_squares_do_not_explode() -> None:
    from nautilus.frontend.semantics.check import load_text

    lines = ["dim N = 4", "input X: f32[N]", "output Y: f32[N]", "A0[i] = X[i] * 0.9"]
    lines += [f"A{k + 1}[i] = A{k}[i] * A{k}[i]" for k in range(40)]
    spec = load_text("\n".join([*lines, "Y[i] = A40[i]"]) + "\n")
    p = Dead().apply(Inline().apply(lower(spec)))
    sound(p)
    assert len(p.kernels) < 10


def test_certificates() -> None:
    _, certificates = Inline().derive(lower(spec_named("softmax")))
    assert certificates == ()
    _, certificates = Inline().derive(lower(spec_named("causal_prefill")))
    assert {c.subject for c in certificates} == {"P_max", "P_sum", "P", "O_acc"}
    assert all(c.rule == "inline" and c.before != c.after and c.bindings for c in certificates)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(name: str) -> None:
    spec = language(name)
    p = Dead().apply(Inline().apply(lower(spec)))
    sound(p)
    agree(spec, p)
