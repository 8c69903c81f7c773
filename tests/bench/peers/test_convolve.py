"""Convolutions of the library: which sums they compute, with numpy in the place of torch and with torch where it is."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.bench.contenders import NotApplicable
from nautilus.bench.inputs import random_inputs
from nautilus.bench.peers.convolve import convolutions
from nautilus.bench.peers.library import BUILDERS, Setting, only_products
from nautilus.bench.peers.torch_env import bound, from_numpy, load_torch
from nautilus.bench.peers.translate import translate
from nautilus.check.compare import relative
from nautilus.core.numerics import Array, from_storage
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Spec
from tests.bench.peers.test_text import Torch
from tests.shipped import ROOT


class Tensor(np.ndarray[Any, Any]):
    """numpy's array with what the calls use of torch's."""

    def permute(self, *order: Any) -> Any:
        return self.transpose(*order)

    def narrow(self, dim: int, start: int, length: int) -> Any:
        return self[(slice(None),) * dim + (slice(start, start + length),)]

    def contiguous(self) -> Any:
        return self.copy()

    def to(self, _: Any) -> Any:
        return self

    def dim(self) -> int:
        return self.ndim


def conv(x: Array, w: Array, bias: Array | None, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The convolution as torch documents it, by a sum over the taps."""
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    taps, sizes = w.shape[2:], x.shape[2:]
    outs = [(n - d * (t - 1) - 1) // s + 1 for n, d, t, s in zip(sizes, dilation, taps, stride, strict=True)]
    images = x.reshape(len(x), groups, -1, *sizes)
    filters = w.reshape(groups, -1, *w.shape[1:])
    total: Any = 0.0
    for at in product(*map(range, taps)):
        cut: Any = (..., *(slice(d * t, d * t + s * (n - 1) + 1, s)
                           for d, t, s, n in zip(dilation, at, stride, outs, strict=True)))  # fmt: skip
        place: Any = (..., *at)
        total = total + np.einsum("bgc...,gkc->bgk...", images[cut], filters[place])
    made = total.reshape(len(x), -1, *outs)
    return (made if bias is None else made + bias.reshape(-1, *(1 for _ in outs))).view(Tensor)


def conv_transpose(
    x: Array, w: Array, bias: Array | None, stride: Any, padding: Any, dilation: Any, output_padding: Any, groups: int
) -> Any:
    """The transposed convolution: a convolution of the image with zeros between its elements and flipped filters."""
    assert all(o < max(s, d) for o, s, d in zip(output_padding, stride, dilation, strict=True))
    spread = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], stride, strict=True)]
    wide = np.zeros((*x.shape[:2], *spread))
    steps: Any = (..., *(slice(None, None, s) for s in stride))
    wide[steps] = x
    edges = [d * (t - 1) - p for d, t, p in zip(dilation, w.shape[2:], padding, strict=True)]
    wide = np.pad(
        wide, [(0, 0), (0, 0), *((max(e, 0), max(e + o, 0)) for e, o in zip(edges, output_padding, strict=True))]
    )
    flipped = np.flip(w, tuple(range(2, w.ndim))).reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)
    ones, none = (1,) * len(edges), (0,) * len(edges)
    return conv(wide, flipped.reshape(-1, *flipped.shape[2:]), bias, ones, none, dilation, groups)


def pad(x: Array, ends: Any) -> Any:
    return np.pad(x, [(0, 0)] * (x.ndim - len(ends) // 2) + list(zip(ends[::2], ends[1::2], strict=True))[::-1])


FUNCTIONS = {f"{f.__name__}{n}d": f for f in (conv, conv_transpose) for n in (1, 2, 3)}
NUMPY = Torch(
    nn=SimpleNamespace(functional=SimpleNamespace(**FUNCTIONS, pad=pad)),
    relu=lambda x: np.maximum(x, 0),
    **dict.fromkeys(("float64", "float32", "float16", "bfloat16")),
)
GROUPED = """dim B = 2, G = 2, C = 2, K = 3, L = 9
input X: f32[{x}]
input F: f32[G{k}, C, 3]
output Y: f32[B, G, K, L]
Y[b, g, k, x] = sum[c, r: 3 | 0 <= x + r - 1 < L](X[{at}, x + r - 1] * F[{f}, c, r])
"""
LINE = """dim B = 2, C = 3, K = 4, L = 9
input X: f32[B, C, L]
input F: f32[K, C, 3]
output Y: f32[B, K, {n}]
Y[b, k, x] = sum[c, r: 3{cond}]({body})
"""
TEXTS = {
    "groups as an index": GROUPED.format(x="B, G, C, L", at="b, g, c", k=", K", f="g, k"),
    "groups in one index": GROUPED.format(x="B, G * C, L", at="b, g * C + c", k=" * K", f="g * K + k"),
    "groups in one index, channels last": """dim B = 2, G = 2, C = 2, K = 3, L = 9
input X: f32[B, L, G * C]
input F: f32[3, C, G * K]
output Y: f32[B, L, G * K]
Y[b, x, k] = sum[r: 3, c: C](X[b, x + r - 1, k // K * C + c] * F[r, c, k] if 0 <= x + r - 1 and x + r - 1 < L else 0)
""",
    "skipped start, scaled": LINE.format(n=5, cond="", body="3 * X[b, c, x + r + 2] * F[k, c, r]"),
    "padded at the end, zeros": LINE.format(n=11, cond="", body="F[k, c, r] * (X[b, c, x + r] if x + r < L else 0)"),
    "uneven stride": LINE.format(n=4, cond=" | 0 <= 3 * x + 2 * r - 3 < L", body="X[b, c, 3*x+2*r-3] * F[k, c, r]"),
    "flipped taps": LINE.format(n=9, cond=" | 0 <= x + 1 - r < L", body="X[b, c, x + 1 - r] * F[k, c, r]"),
    "one filter for all": """dim B = 2, C = 3, H = 5, W = 6
input X: f32[B, C, H, W]
input F: f32[3]
input bias: f32[C]
output Y: f32[B, C, H - 2, W]
Y[b, c, y, x] = max(sum[r: 3](X[b, c, y + r, x] * F[r]) + bias[c], 0)
""",
    "several channels of each": """dim C = 3, M = 2, L = 8
input X: f32[C, L]
input F: f32[C * M, 3]
input bias: f32[C * M]
output Y: f32[C * M, L - 2]
Y[k, x] = sum[r: 3](X[k // M, x + r] * F[k, r]) + bias[k]
""",
}
GALLERY = {
    "1d/causal_depthwise": {"B": 2, "L": 9, "C": 4}, "1d/dilated_strided": {"B": 2, "C": 3, "K": 4, "L": 30},
    "1d/transposed_strided": {"B": 2, "C": 3, "K": 4, "L": 6}, "2d/alexnet": {"B": 2, "K": 4, "H": 20, "W": 24},
    "2d/grouped": {"B": 2, "C": 8, "K": 8, "H": 5, "W": 6, "G": 4},
    "2d/resnet_nhwc": {"B": 2, "C": 4, "K": 3, "H": 5, "W": 6},
    "2d/resnet_nchw": {"B": 2, "C": 4, "K": 3, "H": 5, "W": 6}, "3d/flat": {"B": 2, "T": 5, "H": 6, "W": 3, "K": 4},
    "depthwise/column": {"B": 2, "C": 4, "H": 5, "W": 6},
    "transposed_2d/grouped": {"B": 2, "C": 8, "K": 8, "H": 4, "W": 5},
    "transposed_2d/padded": {"B": 2, "C": 3, "K": 4, "H": 5, "W": 6},
    "transposed_3d/grouped_3x5x7": {"B": 2, "C": 8, "K": 8, "T": 2, "H": 3, "W": 4},
}  # fmt: skip
SPECS = {n: load_text(t) for n, t in TEXTS.items()} | {
    n: load_spec(ROOT / "specs" / "gallery" / "convolution" / f"{n}.naut", dims=d) for n, d in GALLERY.items()
}


def check(spec: Spec, torch: Any, tensors: dict[str, Any], arrays: dict[str, Array], limit: float) -> None:
    call, note = BUILDERS["cudnn"](Setting(torch, spec, {}, tensors, "cpu"))
    assert note.startswith("conv")
    want = run_spec(spec, arrays)
    exact, made = bound(torch, translate(spec, {}, "exact"), "cpu")
    for results, most in ((call(), limit), (exact(*tensors.values(), *made), 1e-12)):
        for t, found in zip(spec.outputs, results, strict=True):
            assert found.shape == t.shape
            result = found if torch is NUMPY else found.double()  # numpy has no bf16
            assert relative(np.asarray(result, np.float64), want[t.name]) < most


@pytest.mark.parametrize("name", SPECS)
def test_the_call_computes_the_spec(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPECS[name]
    if name == "1d/causal_depthwise":
        monkeypatch.setattr(NUMPY.nn.functional, "silu", lambda x: x / (1 + np.exp(-x)), raising=False)
    raw = random_inputs(spec, 0, {})
    arrays = {t.name: from_storage(raw[t.name], t.dtype) for t in spec.inputs}
    check(spec, NUMPY, {n: np.asarray(x, np.float64).view(Tensor) for n, x in arrays.items()}, arrays, 1e-12)


@pytest.mark.parametrize("name", SPECS)
def test_the_call_of_torch_computes_the_spec(name: str) -> None:
    pytest.importorskip("torch")
    torch, spec = load_torch(), SPECS[name]
    raw = random_inputs(spec, 0, {})
    tensors = {t.name: from_numpy(torch, raw[t.name], t.dtype, "cpu") for t in spec.inputs}
    arrays = {t.name: from_storage(raw[t.name], t.dtype) for t in spec.inputs}
    check(spec, torch, tensors, arrays, 0.02 if {t.dtype.is_half for t in spec.outputs} == {True} else 1e-5)


@pytest.mark.parametrize(
    ("cond", "body"),
    [
        (" | r < x", "X[b, c, x + r] * F[k, c, r]"),  # a mask of taps
        (" | x + r < 5", "X[b, c, x + r] * F[k, c, r]"),  # of the image
        ("", "X[b, c, x * r] * F[k, c, r]"),
        ("", "X[b, c, x + 0] * F[k, c, r]"),
        ("", "X[b, c, x + r] * F[k, c, 2 - r]"),
        ("", "X[b, c, (x + r) // 2] * F[k, c, r]"),
        (" | 0 <= x - r", "X[b, c, (x - r) // 2] * F[k, c, r]"),  # no exact division
        ("", "X[b, c, x + r] * X[b, c, x + r]"),
        ("", "X[b, c, x + r] * F[k, c, r] * F[k, c, r]"),
    ],
)
def test_other_sums_are_no_convolutions(cond: str, body: str) -> None:
    spec = load_text(LINE.format(n=3, cond=cond, body=body))
    assert not convolutions(spec)
    with pytest.raises(NotApplicable):
        BUILDERS["cudnn"](Setting(NUMPY, spec, {}, {}, "cpu"))


def test_a_sum_with_an_index_of_a_sum_around_it_is_none() -> None:
    """The scores of attention in one formula, whose keys have the index of the softmax."""
    spec = load_text("""
dim B = 2, H = 4, M = 5, N = 6, D = 8
input Q: f16[B, H, M, D], K: f16[B, N, D], V: f16[B, N, D]
output O: f16[B, H, M, D]
O[b, h, i, d] = sum[j](softmax[j](sum[c: D](Q[b, h, i, c] * K[b, j, c])) * V[b, j, d])
""")
    assert convolutions(spec) == []


def test_a_convolution_is_no_matrix_product() -> None:
    assert not only_products(SPECS["1d/dilated_strided"])
