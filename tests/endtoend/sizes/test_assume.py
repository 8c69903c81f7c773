"""Facts of a spec: what the sizes take from them, what inputs keep, and what a launch refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.check.inputs import KINDS, generate
from nautilus.core.errors import DiagnosticError, InputError
from nautilus.core.expr.nodes import Param
from nautilus.driver import Request, compile_file
from nautilus.frontend.printer import format_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.passes.compilation import Result
from nautilus.runtime.execute import plan_of
from nautilus.vr_tile import text as vr_text

PACKED = """
dim B = 6, N = runtime <= 5000
assume N % 12 == 0 and 24 <= N < 4000
assume N % 8 == 0
input X: f32[N], start: i32[B + 1], len: i32[B], on: bool[B], w: f32[B]
assume start[b] <= start[b + 1]
assume 0 <= start[b] <= N
assume start[0] == 0 and start[B] == N
assume 0 < len[b] <= N and len[b] % 4 == 0
assume on[b]
assume 0 <= w[b] <= 1
output O: f32[B]
O[b] = sum[j | start[b + 0] <= j < start[b + 1]](X[j]) * w[b] if on[b] and len[b] > 0 else 0
"""


def spec_of(text: str = PACKED, **dims: int) -> Spec:
    return load_text(text, dims=dims, keep_runtime=True)


def compiled(text: str) -> Result:
    return compile_file(Request(Path("given.naut"), "sm_90a", text=text))


def test_facts_about_one_size_are_part_of_it() -> None:
    (size,) = spec_of().tensors["X"].shape
    assert isinstance(size, Param)
    assert (size.least, size.most, size.multiple) == (24, 3999, 24)


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_inputs_keep_promises(kind: str) -> None:
    for n in (24, 72, 3984):
        given = generate(spec_of(N=n), kind, 3).arrays
        start, length, w = given["start"], given["len"], given["w"]
        assert np.all(np.diff(start) >= 0) and start[0] == 0 and start[-1] == n
        assert np.all((length > 0) & (length <= n) & (length % 4 == 0))
        assert given["on"].all() and np.all((w >= 0) & (w <= 1))


def test_sorted_positions_stay_spread() -> None:
    start = generate(spec_of(N=3984), "random", 1).arrays["start"]
    assert len(np.unique(start)) > 4


#: facts between neighbours that name other tensors too, of starts ``s`` of N elements and lengths ``n``
NEIGHBOURS = (
    "s[g] + n[g] <= s[g + 1] and 0 <= n[g] and 0 <= s[g] and s[g] + n[g] <= N",
    "s[g] + n[g] < s[g + 1] - 1 and n[g] > 2 and 0 <= s[g] and s[g] + n[g] <= N",
    "s[g] <= n[g] and n[g] <= s[g + 1] and 0 <= s[g] and n[g] <= N",
    "0 <= s[g + 1] - s[g] <= 50 and s[0] == 0 and s[G - 1] == N and 0 <= n[g] < 4",
    "s[g + 1] == s[g] + n[g] and 0 <= n[g] <= 50 and s[0] == 0 and s[G - 1] <= N",
    "n[g] == s[g + 1] - s[g] and 0 <= n[g] <= 50 and s[0] == 0 and s[G - 1] <= N",
    "s[g] + 16 <= s[g + 1] and 0 <= s[g] <= N - n[0] and 0 <= n[g] < 5",
    "s[g] + 4 * n[g] <= s[g + 1] and 0 <= s[g] <= N and s[g] % 4 == 0 and 0 <= n[g]",
    "s[g] >= s[g + 1] + n[g + 1] and n[g] > 0 and 0 <= s[g] and s[g] + n[g] < N",
)


@pytest.mark.parametrize("fact", NEIGHBOURS)
@pytest.mark.parametrize("kind", ("random", "huge", "equal", "descending"))
def test_drawn_inputs_keep_facts_between_neighbours(fact: str, kind: str) -> None:
    facts = "\n".join(f"assume {part}" for part in fact.split(" and "))
    text = f"""
dim G = 24, N = 600
input X: f32[N], s: i32[G], n: i32[G]
{facts}
output O: f32[G]
O[g] = sum[j | s[g] <= j and j < s[g] + n[g]](X[j])
"""
    given = generate(load_text(text), kind, 3).arrays
    names = {"N": 600, "G": 24, "s": given["s"].tolist(), "n": given["n"].tolist()}
    for part in fact.split(" and "):
        assert all(eval(part, {**names, "g": g}) for g in range(23 if "g + 1" in part else 24)), part


def test_parts_of_a_fact_are_evaluated_over_their_own_axes() -> None:
    text = """
dim R = 70000, Z = 1000000
input p: i32[R], c: i32[Z], X: f32[Z]
assume 0 <= p[r] <= Z and 0 <= c[z] < Z
output O: f32[R]
O[r] = X[c[p[r]]] if p[r] < Z else 0
"""
    assert generate(load_text(text)).arrays["p"].max() <= 1000000


def test_promises_that_nothing_keeps_are_an_error() -> None:
    text = "dim B = 4\ninput n: i32[B]\nassume n[b] < n[b]\noutput O: f32[B]\nO[b] = n[b]\n"
    with pytest.raises(InputError, match=r"assume n\[b\] < n\[b\]"):
        generate(load_text(text))


def test_samples_satisfy_facts_about_several_sizes() -> None:
    text = "dim M = runtime, N = runtime\nassume {}\ninput X: f32[M, N]\noutput O: f32[M]\nO[i] = sum[j](X[i, j])\n"
    for default in (77, 1009, 4096):
        less, more = (load_text(text.format(f)).samples(default) for f in ("M < N", "M > N and M % 8 == 0"))
        assert less["M"] < less["N"]
        assert more["M"] > more["N"] and more["M"] % 8 == 0


def test_reads_are_searched_at_sizes_that_the_facts_allow() -> None:
    text = "dim M = runtime, N = runtime\n{}input X: f32[N]\noutput O: f32[M]\nO[i] = X[i + 1]\n"
    assert load_text(text.format("assume M < N\n")).outputs
    with pytest.raises(DiagnosticError, match="N0305"):
        load_text(text.format(""))


def test_a_printed_spec_has_its_facts() -> None:
    spec = spec_of()
    assert load_text(format_spec(spec), f"{spec.name}.naut").facts == spec.facts
    assert len(spec.facts) == 8


TWO = """
dim M = runtime <= 300, N = runtime
scalar s: f32 = 2
assume M <= N // 2 and N % 8 == 0
assume s > 0
input X: f16[M, N]
output O: f16[M, N]
O[i, j] = X[i, j] * s
"""


def test_a_launch_refuses_numbers_with_the_text_of_the_fact() -> None:
    module = compiled(TWO).modules["ma-tile"]
    assert plan_of(module, {"M": 4, "N": 16, "s": 1.0}).launches
    with pytest.raises(InputError, match=r"assume M <= N // 2 and N % 8 == 0' does not hold: M is 4, N is 12"):
        plan_of(module, {"M": 4, "N": 12, "s": 1.0})
    with pytest.raises(InputError, match=r"assume s > 0.* does not hold: s is -1"):
        plan_of(module, {"M": 4, "N": 16, "s": -1.0})


def test_the_host_launcher_checks_the_facts() -> None:
    text = compiled(TWO).cuda_module.code
    assert "if (!(((long long)M <= floor_div((long long)N, 2LL)) && (floor_mod((long long)N, 8LL) == 0LL))) {" in text
    assert "'assume M <= N // 2 and N %% 8 == 0' does not hold" in text
    assert "if (!((double)s > 0.0)) {" in text
    assert "floor_mod" not in compiled(TWO.replace("assume", "# assume")).cuda_module.code


def test_rows_that_facts_align_are_copied_whole() -> None:
    product = """
dim M = runtime, K = runtime, N = 256
{}
input A: f16[M, K], B: f16[K, N]
output C: f16[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""
    assert "wgmma" not in compiled(product.format("")).cuda_module.code
    assert "wgmma" in compiled(product.format("assume K % 8 == 0")).cuda_module.code


def test_a_size_that_the_tile_divides_needs_no_mask() -> None:
    text = "dim N = runtime\n{}input X: f32[N]\noutput O: f32[N]\nO[i] = X[i] * 2\n"
    free, divided = (compiled(text.format(f)).modules["vr-tile"] for f in ("", "assume N % 4096 == 0\n"))
    assert "where" in vr_text.format(free) and "where" not in vr_text.format(divided)


def test_the_word_is_a_name_elsewhere() -> None:
    text = "dim N = 3\ninput X: f32[N]\noutput assume: f32[N]\nassume[i] = X[i]\nassume N > 2\n"
    assert load_text(text).outputs[0].name == "assume"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "fact", "low", "high"),
    [
        ("f16", "5000 < X[i]", 5000, np.inf),  # 5000 + 2^-8 is 5000 in f16
        ("bf16", "1 < X[i]", 1, np.inf),
        ("f8e4m3", "X[i] < -1", -np.inf, -1),
        ("f32", "1000000 < X[i]", 1000000, np.inf),
        ("f16", "5001 <= X[i]", 5000, np.inf),  # 5001 is 5000 in f16
        ("bf16", "X[i] <= 0.3", -np.inf, 0.3001),
        ("f16", "abs(X[i]) <= 0.3", -0.3001, 0.3001),  # 0.3 is more than 0.3 in f16
        ("f64", "1e20 < X[i]", 1e20, np.inf),
    ],
)
def test_a_bound_of_a_float_holds_in_its_type(kind: str, dtype: str, fact: str, low: float, high: float) -> None:
    spec = load_text(f"dim N = 40\ninput X: {dtype}[N]\noutput Y: f64[N]\nassume {fact}\nY[i] = X[i]\n")
    x = generate(spec, kind, 1).arrays["X"]
    assert np.all((low < x) & (x < high))


@pytest.mark.parametrize("scale", [1.0, 2.0**-8, 2.0**-60])
def test_a_bound_of_two_large_floats_holds(scale: float) -> None:
    text = (
        "dim N = 40\ninput X: f32[N]\ninput Y: f32[N]\noutput Z: f32[N]\nassume 2 * X[i] < Y[i]\nZ[i] = Y[i] - X[i]\n"
    )
    arrays = generate(load_text(text), "huge", 1, scale=scale).arrays
    assert np.all(2 * arrays["X"] < arrays["Y"])
