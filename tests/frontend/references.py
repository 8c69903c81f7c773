"""References of all shipped specs, written in numpy float64, for the tests of the interpreter.

Each function takes the inputs (float64 or int64 arrays) and the scalars by name and gives the
outputs by name.  ``SMALL`` shrinks each spec to sizes that no tile divides.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def softmax(s: Any, mask: Any = True) -> Any:
    s = np.where(mask, s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.where(mask, np.exp(s - np.where(np.isfinite(top), top, 0)), 0)
    total = e.sum(-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


def attention(
    causal: bool = False, cap: float | None = None, alibi: bool = False, window: int | None = None
) -> Callable[[Arrays], Arrays]:
    def run(x: Arrays) -> Arrays:
        q, k, v = x["Q"], x["K"], x["V"]
        group = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        m, n = q.shape[2], k.shape[2]
        s = q @ k.transpose(0, 1, 3, 2) / sqrt(q.shape[3])
        distance = np.arange(n)[None, :] - (np.arange(m)[:, None] + n - m)
        if cap is not None:
            s = cap * np.tanh(s / cap)
        if alibi:
            s = s + x["slope"][None, :, None, None] * distance
        mask = np.ones((m, n), bool)
        if causal:
            mask &= distance <= 0
        if window is not None:
            mask &= -distance < window
        return {"O": softmax(s, mask) @ v}

    return run


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.vectorize(erf)(x / sqrt(2)))


def swiglu(x: Arrays) -> Arrays:
    g = x["A"] @ x["Wg"]
    return {"C": g / (1 + np.exp(-g)) * (x["A"] @ x["Wu"])}


def rms_norm(x: Any, eps: float) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def add_rms_norm(x: Arrays) -> Arrays:
    h = x["X"] + x["R"]
    return {"H": h, "Y": rms_norm(h.astype(np.float16).astype(np.float64), x["eps"]) * x["W"]}


def layer_norm(x: Arrays) -> Arrays:
    a = x["X"]
    y = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + x["eps"])
    return {"Y": y * x["W"] + x["bias"]}


def logsumexp(a: Any) -> Any:
    top = a.max(-1)
    return np.log(np.exp(a - top[..., None]).sum(-1)) + top


def cross_entropy(x: Arrays) -> Arrays:
    picked = np.take_along_axis(x["X"], x["label"][:, None], 1)[:, 0]
    return {"L": logsumexp(x["X"]) - picked}


def product(x: Arrays) -> Arrays:
    return {"C": x["A"] @ x["B"]}


_HEADS = {"B": 2, "H": 3, "M": 77, "N": 77, "D": 20}
_GROUPS = {"B": 1, "Hq": 6, "Hkv": 2, "M": 33, "N": 50, "D": 20}
_MM = {"M": 77, "N": 130, "K": 33}

#: path under specs/ -> (dims, reference)
SPECS: dict[str, tuple[dict[str, int], Callable[[Arrays], Arrays]]] = {
    "attention/global_prefill": (_HEADS, attention()),
    "attention/global_prefill_d64": (_HEADS, attention()),
    "attention/global_prefill_d256": (_HEADS, attention()),
    "attention/causal_prefill": (_HEADS | {"N": 130}, attention(causal=True)),
    "attention/causal_prefill_d64": (_HEADS | {"M": 40, "N": 30}, attention(causal=True)),
    "attention/causal_prefill_d256": (_HEADS, attention(causal=True)),
    "attention/gqa_prefill": (_GROUPS, attention(causal=True)),
    "attention/alibi_prefill": (_HEADS, attention(causal=True, alibi=True)),
    "attention/softcap_prefill": (_GROUPS, attention(causal=True, cap=50.0)),
    "attention/window_prefill": (_GROUPS | {"W": 9}, attention(causal=True, window=9)),
    "attention/causal_decode": ({"B": 2, "H": 3, "N": 333, "D": 20}, attention(causal=True)),
    "attention/gqa_decode": ({"B": 2, "Hq": 6, "Hkv": 2, "N": 77, "D": 20}, attention(causal=True)),
    "attention/alibi_decode": ({"B": 2, "H": 3, "N": 77, "D": 20}, attention(causal=True, alibi=True)),
    "attention/softcap_decode": ({"B": 2, "Hq": 6, "Hkv": 3, "N": 77, "D": 20}, attention(True, 50.0)),
    "matmul/f16": (_MM, product),
    "matmul/bf16": (_MM, product),
    "matmul/i8_i32": (_MM, product),
    "matmul/f32": (_MM, product),
    "matmul/bias_gelu": (_MM, lambda x: {"C": gelu_tanh(x["A"] @ x["B"] + x["bias"])}),
    "matmul/swiglu": (_MM, swiglu),
    "matmul/batched": (_MM | {"P": 3}, product),
    "matmul/tn": (_MM, lambda x: {"C": x["A"].T @ x["B"]}),
    "matmul/nt": (_MM, lambda x: {"C": x["A"] @ x["B"].T}),
    "rowwise/softmax": ({"M": 33, "N": 130}, lambda x: {"Y": softmax(x["X"])}),
    "rowwise/logsumexp": ({"M": 33, "N": 130}, lambda x: {"Y": logsumexp(x["X"])}),
    "rowwise/rms_norm": ({"M": 33, "N": 130}, lambda x: {"Y": rms_norm(x["X"], x["eps"]) * x["W"]}),
    "rowwise/layer_norm": ({"M": 33, "N": 130}, layer_norm),
    "rowwise/add_rms_norm": ({"M": 33, "N": 130}, add_rms_norm),
    "rowwise/cross_entropy": ({"M": 33, "C": 130}, cross_entropy),
    "rowwise/argmax": ({"M": 33, "N": 130}, lambda x: {"Y": x["X"].argmax(-1)}),
}
