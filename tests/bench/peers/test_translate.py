"""Specs as functions on tensors: the text, and where torch is installed the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.bench.contenders import NotApplicable
from nautilus.bench.inputs import random_inputs
from nautilus.bench.peers.library import only_products
from nautilus.bench.peers.torch_env import bound, from_numpy, to_numpy
from nautilus.bench.peers.translate import translate
from nautilus.check.bound.stated import stated
from nautilus.check.compare import relative
from nautilus.core.numerics import from_storage
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec, load_text
from tests.bench.test_restrict import numbers, small
from tests.conftest import run_filecheck
from tests.shipped import IDS, SPECS


def native(stem: str) -> str:
    path = next(p for p in SPECS if p.stem == stem)
    spec = load_spec(path)
    return translate(spec, numbers(spec), "native").main


@pytest.mark.parametrize(
    ("stem", "checks"),
    [
        ("bias_gelu", "addmm(in2, in0\nCHECK-NEXT: gelu(v{{.*}}, approximate='tanh')\nCHECK-NEXT: return"),
        ("swiglu", "matmul(in0\nCHECK: matmul(in0\nCHECK-NEXT: silu(v1)\nCHECK-NEXT: * v3)\nCHECK-NEXT: return"),
        ("softmax", "torch.softmax(in0, 1)\nCHECK-NEXT: return"),
        ("layer_norm", "layer_norm(in0, (4096,), in1, in2, 1e-05)\nCHECK-NEXT: return"),
        ("add_rms_norm", "(in0 + in1)\nCHECK-NEXT: rms_norm(v0, (4096,), in2, 1e-05)\nCHECK-NEXT: return (v0, v1,)"),
        ("logsumexp", "torch.logsumexp(in0.to(torch.float32), 1)\nCHECK-NEXT: return"),
        ("i8_i32", "torch._int_mm(in0,"),
        (
            "gqa_prefill",
            "repeat_interleave(8, 1)\nCHECK: torch.matmul(in0\nCHECK: torch.softmax(\nCHECK: torch.matmul",
        ),
    ],
)
def test_a_user_would_write_it_so(stem: str, checks: str) -> None:
    complaint = run_filecheck(native(stem), f"CHECK: {checks}\n")
    assert not complaint, complaint


def test_masks_are_made_once_or_inline() -> None:
    spec = load_spec(next(p for p in SPECS if p.stem == "causal_prefill"))
    hoisted, inline = (translate(spec, {}, "native", hoist=h) for h in (True, False))
    assert "arange" in hoisted.setup and "arange" not in hoisted.main
    assert "arange" in inline.main and "arange" not in inline.setup


def test_only_products() -> None:
    made = {p.stem for p in SPECS if only_products(load_spec(p))}
    assert made == {"f16", "bf16", "f32", "i8_i32", "nt", "tn", "batched"}
    bias = "dim N = 8\ninput A: f16[N, N]\ninput B: f16[N, N]\ninput c: f16[N]\noutput C: f16[N, N]\n"
    assert only_products(load_text(bias + "C[i, j] = sum[k](A[i, k] * B[k, j]) + c[j]\n"))
    assert not only_products(load_text(bias + "C[i, j] = sum[k](A[i, k] * B[k, j] * c[k])\n"))


EXTRA = {
    "gather": "dim P = 4, N = 6, D = 3\ninput E: f16[P, D]\ninput at: i32[N]\noutput Y: f16[N, D]\n"
    "Y[i, d] = E[at[i], d] if at[i] > 1 else 0\n",
    "window": "dim N = 20\ninput X: f32[N]\noutput Y: f32[N]\n"
    "Y[i] = sum[k: 3](X[i + k - 1] if i + k - 1 >= 0 and i + k - 1 < N else 0)\n",
    "diagonal": "dim N = 9\ninput A: f32[N, N]\noutput Y: f32[N]\nY[i] = A[i, i] * max[j](A[j, i])\n",
    "outer": "dim M = 3, N = 4\ninput a: f32[M]\ninput b: f32[N]\noutput C: f32[N, M]\n"
    "C[j, i] = a[i] * b[j] + i // 2 - j % 3\n",
    "chain": "dim N = 12\ninput A: f16[N, N]\ninput B: f16[N, N]\ninput C: f16[N, N]\noutput D: f16[N, N]\n"
    "T[i, j] = sum[k](A[i, k] * B[k, j])\nD[i, j] = sum[k](T[i, k] * C[j, k]) / 3\n",
    "masked": "dim N = 12\ninput A: f32[N, N]\ninput keep: bool[N, N]\noutput Y: f32[N]\n"
    "Y[i] = sum[j | keep[i, j]](A[i, j]) + min[j | j <= i](A[i, j]) + prod[j | j < 2](A[i, j])\n",
    "empty": "dim N = 12\ninput A: f32[N, N]\noutput Y: f32[N, N]\nY[i, j] = softmax[j | j < i](A[i, j])\n",
    "batch": "dim B = 2, C = 3, N = 4, K = 5\ninput A: f32[B, N, C, K]\ninput F: f32[C, K]\noutput Y: f32[N, B]\n"
    "Y[n, b] = sum[c, k](A[b, n, c, k] * F[c, k])\n",
    "number": "dim M = 5, N = 7\ninput A: f32[M, N]\ninput B: f32[M, N]\noutput S: f32\n"
    "S = sum[i, j](A[i, j] * B[i, j]) / max[i, j](abs(A[i, j]))\n",
    "norm": "dim M = 5, N = 7\nscalar eps: f32 = 1e-3\ninput A: f16[M, N]\noutput Y: f16[M, N]\n"
    "Y[i, j] = layer_norm[i](A[i, j], eps) + rms_norm[j](A[i, j], eps)\n",
}


@pytest.mark.parametrize("mode", ["exact", "native"])
def test_a_product_that_is_a_number_is_reshaped_to_no_axes(mode: str) -> None:
    main = translate(load_text(EXTRA["number"]), {}, mode).main
    a, b = ("v0", "v1") if mode == "exact" else ("in0", "in1")  # in f64
    product = f"torch.matmul({a}.reshape(1, 35), {b}.reshape(35, 1))).reshape(())"
    complaint = run_filecheck(main, f"CHECK: {product}\nCHECK: torch.amax({{{{.*}}}}, (0, 1,))\nCHECK: return\n")
    assert not complaint, complaint


def test_values_of_indices_at_positions_of_an_input_are_no_part_of_the_setup() -> None:
    text = """input X: f32[4], P: i32[4]
    output Y: f32[4]
    N[i: 4] = sum[j: 4 | j <= i](1.0)
    Y[i] = X[i] / N[P[i]] + N[clamp(P[i] - i, 0, 3)]
    """
    setup = translate(load_text(text), {}, "exact").setup
    assert "arange" in setup and "in1" not in setup


@pytest.mark.parametrize("hoist", [True, False], ids=["hoisted", "inline"])
def test_main_knows_the_device_of_what_it_makes(hoist: bool) -> None:
    text = "dim T = 9, E = 4\ninput key: i32[T]\noutput Y: f32[E]\nY[e] = sum[t | key[t] == e](1.0)\n"
    made = translate(load_text(text), {}, "exact", hoist)
    complaint = run_filecheck(made.main, "CHECK: def main(in0\nCHECK-NEXT: device = in0.device\nCHECK: device=device\n")
    assert not complaint, complaint


def test_numbers_of_the_reference_have_64_bits() -> None:
    spec = load_text("scalar b: f32 = 0.9\ndim N = 9\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[i] / (1 - exp(b))\n")
    for mode, count in (("exact", 1), ("native", 0)):
        made = translate(spec, {"b": 0.9}, mode)
        assert (made.setup + made.main).count("torch.tensor(0.9, dtype=torch.float64, device=device)") == count


def test_a_recurrence_has_no_counterpart() -> None:
    text = "dim N = 9\ninput X: f32[N]\noutput h: f32[N]\nrecur h[t] = X[t] + (0.5 * h[t - 1] if t > 0 else 0)\n"
    with pytest.raises(NotApplicable, match="recurrence"):
        translate(load_text(text), {}, "exact")


@pytest.mark.parametrize("mode", ["exact", "native"])
@pytest.mark.parametrize("hoist", [True, False], ids=["hoisted", "inline"])
@pytest.mark.parametrize("source", [*SPECS, *EXTRA.values()], ids=[*IDS, *EXTRA])
def test_numbers_against_the_interpreter(source: Path | str, hoist: bool, mode: str) -> None:
    torch: Any = pytest.importorskip("torch")
    spec = load_text(source) if isinstance(source, str) else small(source)
    raw = random_inputs(spec, 0, {})
    types = {t.name: t.dtype for t in spec.inputs}
    want = run_spec(spec, {n: from_storage(x, types[n]) for n, x in raw.items()}, numbers(spec))
    main, made = bound(torch, translate(spec, numbers(spec), mode, hoist), "cpu")
    found = main(*(from_numpy(torch, raw[t.name], t.dtype, "cpu") for t in spec.inputs), *made)
    bounds = stated(spec)
    for t, x in zip(spec.outputs, found, strict=True):
        if mode == "native" or not t.dtype.is_float:
            got = from_storage(to_numpy(torch, x, t.dtype), t.dtype)
        else:
            got = np.asarray(x.numpy(), np.float64)
        limit = 1e-5 if mode == "exact" else 4 * bounds[t.name].relative
        if source == EXTRA["empty"] and mode == "native":  # a library's softmax of nothing is NaN; the spec's is 0
            assert np.isnan(got[0]).all()
            got = np.where(np.isnan(got), 0.0, got)
        assert relative(got, want[t.name]) <= limit
