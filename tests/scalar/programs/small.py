"""Small programs of many kinds, as fusion sees them, with inputs; shared by the pass tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nautilus.core.expr.nodes import Expr, Load, Op, Param
from nautilus.core.index.sizes import MAX_DIM
from nautilus.core.types import DType
from nautilus.scalar.ir import Program
from tests.scalar.programs.build import F16, F32, I32, Builder, attention, causal, f, i, op, v, window

Case = tuple[Program, dict[str, Any]]
_RNG = np.random.default_rng(7)


def _normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def attn(m: int, n: int, d: int, guard: Expr | None, scale: float = 3.0) -> Case:
    heads, groups = 2, 2
    p = attention(m, n, d, heads=heads, groups=groups, guard=guard)
    q, k, w = _normal(1, heads, m, d) * scale, _normal(1, heads // groups, n, d), _normal(1, heads // groups, n, d)
    return p, {"Q": q, "K": k, "V": w}


def softmax(m: int, n: int) -> Case:
    b = Builder("softmax")
    b.input("X", m, n)
    x = b.at("X", "i", "j")
    b.reduce("M", {"i": m}, {"j": n}, "max", x)
    e = op("exp", op("sub", x, b.at("M", "i")))
    b.reduce("S", {"i": m}, {"j": n}, "sum", e)
    b.define("Y", {"i": m, "j": n}, op("div", e, b.at("S", "i")), out=F16)
    return b.program(), {"X": _normal(m, n) * 4}


def logsumexp(m: int, n: int) -> Case:
    b = Builder("lse")
    b.input("X", m, n)
    x = b.at("X", "i", "j")
    b.reduce("M", {"i": m}, {"j": n}, "max", x)
    b.reduce("S", {"i": m}, {"j": n}, "sum", op("exp", op("sub", x, b.at("M", "i"))))
    b.define("Y", {"i": m}, op("add", op("log", b.at("S", "i")), b.at("M", "i")), out=F32)
    return b.program(), {"X": _normal(m, n) * 4}


def layernorm(m: int, n: int) -> Case:
    b = Builder("layernorm")
    for name, shape in (("X", (m, n)), ("R", (m, n)), ("G", (n,))):
        b.input(name, *shape)
    x = op("add", b.at("X", "i", "j"), b.at("R", "i", "j"))
    b.define("H", {"i": m, "j": n}, x, out=F16)
    b.reduce("A", {"i": m}, {"j": n}, "sum", x)
    c = op("sub", x, op("mul", b.at("A", "i"), f(1 / n)))
    b.reduce("B", {"i": m}, {"j": n}, "sum", op("mul", c, c))
    r = op("rsqrt", op("add", op("mul", b.at("B", "i"), f(1 / n)), f(1e-5)))
    b.define("Y", {"i": m, "j": n}, op("mul", op("mul", c, r), b.at("G", "j")), out=F16)
    return b.program(), {"X": _normal(m, n), "R": _normal(m, n), "G": _normal(n)}


def matmul(m: int, n: int, k: int, *, transposed: bool = False) -> Case:
    b = Builder("matmul")
    b.input("A", m, k)
    b.input("B", *((n, k) if transposed else (k, n)))
    b.input("C", n)
    right = b.at("B", "n", "k") if transposed else b.at("B", "k", "n")
    b.reduce("acc", {"m": m, "n": n}, {"k": k}, "sum", op("mul", b.at("A", "m", "k"), right))
    y = op("tanh", op("add", b.at("acc", "m", "n"), b.at("C", "n")))
    b.define("Y", {"m": m, "n": n}, y, out=F16)
    return b.program(), {"A": _normal(m, k), "B": _normal(*((n, k) if transposed else (k, n))), "C": _normal(n)}


def swiglu(m: int, n: int, k: int) -> Case:
    b = Builder("swiglu")
    for name, shape in (("X", (m, k)), ("W", (k, n)), ("U", (k, n))):
        b.input(name, *shape)
    rows = {"m": m, "n": n}
    b.reduce("g", rows, {"k": k}, "sum", op("mul", b.at("X", "m", "k"), b.at("W", "k", "n")))
    b.reduce("u", rows, {"q": k}, "sum", op("mul", b.at("X", "m", "q"), b.at("U", "q", "n")))
    g = b.at("g", "m", "n")
    b.define("Y", rows, op("mul", op("mul", g, op("sigmoid", g)), b.at("u", "m", "n")), out=F16)
    return b.program(), {"X": _normal(m, k), "W": _normal(k, n), "U": _normal(k, n)}


def argmax(m: int, n: int) -> Case:
    b = Builder("argmax")
    b.input("X", m, n)
    b.reduce("M", {"i": m}, {"j": n}, "max", b.at("X", "i", "j"))
    b.reduce("Y", {"i": m}, {"j": n}, "min", v("j"), op("eq", b.at("X", "i", "j"), b.at("M", "i")), out=True)
    return b.program(), {"X": _normal(m, n)}


def conv(n: int, ci: int, co: int) -> Case:
    b = Builder("conv")
    b.input("X", n, ci)
    b.input("W", 3, ci, co)
    at = op("sub", op("add", v("i"), v("k")), i(1))
    inside = op("and", op("ge", at, i(0)), op("lt", at, i(n)))
    x = op("select", inside, b.at("X", at, "c"), f(0))
    value = op("mul", x, b.at("W", "k", "c", "o"))
    b.reduce("Y", {"i": n, "o": co}, {"k": 3, "c": ci}, "sum", value, out=True)
    return b.program(), {"X": _normal(n, ci), "W": _normal(3, ci, co)}


def cumsum(n: int) -> Case:
    b = Builder("cumsum")
    b.input("X", n)
    b.reduce("Y", {"i": n}, {"j": n}, "sum", b.at("X", "j"), op("le", v("j"), v("i")), out=True)
    return b.program(), {"X": _normal(n)}


def total(m: int, n: int) -> Case:
    b = Builder("total")
    b.input("X", m, n)
    b.reduce("R", {"i": m}, {"j": n}, "max", b.at("X", "i", "j"))
    b.reduce("Y", {}, {"i": m}, "sum", b.at("R", "i"), out=True)
    return b.program(), {"X": _normal(m, n)}


def gather(n: int, vocab: int, d: int) -> Case:
    b = Builder("gather")
    b.input("T", n, dtype=I32)
    b.input("E", vocab, d)
    x = Op("cast", (Load("E", (Load("T", (v("i"),), I32), v("d")), F16),), F32)
    b.reduce("S", {"i": n}, {"d": d}, "sum", op("mul", x, x))
    b.define("Y", {"i": n, "d": d}, op("mul", x, op("rsqrt", b.at("S", "i"))), out=F16)
    return b.program(), {"T": np.random.default_rng(1).integers(0, vocab, n), "E": _normal(vocab, d)}


def column_sums(m: int, n: int) -> Case:
    b = Builder("columns")
    b.input("X", m, n)
    b.reduce("Y", {"j": n}, {"i": m}, "sum", b.at("X", "i", "j"), out=True)
    return b.program(), {"X": _normal(m, n)}


def transpose(m: int, n: int) -> Case:
    b = Builder("transpose")
    b.input("X", m, n)
    b.define("Y", {"j": n, "i": m}, op("exp", b.at("X", "i", "j")), out=F16)
    return b.program(), {"X": _normal(m, n)}


def decode(n: int, d: int) -> Case:
    b = Builder("decode")
    for name, shape in (("Q", (2, d)), ("K", (n, d)), ("V", (n, d))):
        b.input(name, *shape)
    h = {"h": 2}
    b.reduce("S", {"h": 2, "j": n}, {"d": d}, "sum", op("mul", b.at("Q", "h", "d"), b.at("K", "j", "d")))
    s = b.at("S", "h", "j")
    b.reduce("M", h, {"j": n}, "max", s)
    p = op("exp", op("sub", s, b.at("M", "h")))
    b.reduce("L", h, {"j": n}, "sum", p)
    b.reduce("A", {"h": 2, "d": d}, {"j": n}, "sum", op("mul", p, b.at("V", "j", "d")))
    b.define("O", {"h": 2, "d": d}, op("div", b.at("A", "h", "d"), b.at("L", "h")), out=F16)
    return b.program(), {"Q": _normal(2, d), "K": _normal(n, d), "V": _normal(n, d)}


def unfactored(m: int, n: int, d: int, guard: Expr | None = None) -> Case:
    """max, then sum, then a sum that needs both: the division stayed inside."""
    b = Builder("unfactored")
    b.input("X", m, n)
    b.input("V", n, d)
    x = b.at("X", "i", "j")
    b.reduce("M", {"i": m}, {"j": n}, "max", x, guard)
    e = op("exp", op("sub", x, b.at("M", "i")))
    b.reduce("L", {"i": m}, {"j": n}, "sum", e, guard)
    w = op("div", e, b.at("L", "i"))
    b.reduce("A", {"i": m, "d": d}, {"j": n}, "sum", op("mul", w, b.at("V", "j", "d")), guard)
    b.define("O", {"i": m, "d": d}, b.at("A", "i", "d"), out=F16)
    return b.program(), {"X": _normal(m, n) * 5, "V": _normal(n, d)}


def extremes(m: int, n: int) -> Case:
    """Maxima and minima that depend on a running maximum and on a running sum; some rows are empty."""
    b = Builder("extremes")
    b.input("X", m, n)
    x, guard = b.at("X", "i", "j"), op("lt", v("j"), op("mul", v("i"), i(40)))
    b.reduce("M", {"i": m}, {"j": n}, "max", x, guard)
    b.reduce("L", {"i": m}, {"j": n}, "sum", op("mul", x, x), guard)
    b.reduce("A", {"i": m}, {"j": n}, "min", op("sub", x, b.at("M", "i")), guard)
    b.reduce("B", {"i": m}, {"j": n}, "max", op("add", x, op("log", b.at("L", "i"))), guard)
    b.reduce("C", {"i": m}, {"j": n}, "max", op("exp", op("sub", x, b.at("M", "i"))), guard)
    total: Expr = f(0)
    for name in "ABC":
        total = op("add", total, op("max", op("min", b.at(name, "i"), f(9)), f(-9)))
    b.define("Y", {"i": m}, total, out=F32)
    return b.program(), {"X": _normal(m, n)}


def probabilities(m: int, n: int, d: int) -> Case:
    """Scores and probabilities are outputs too."""
    b = Builder("probabilities")
    b.input("Q", m, d)
    b.input("K", n, d)
    rows = {"i": m}
    b.reduce("S", {"i": m, "j": n}, {"d": d}, "sum", op("mul", b.at("Q", "i", "d"), b.at("K", "j", "d")), out=True)
    s = b.at("S", "i", "j")
    b.reduce("M", rows, {"j": n}, "max", s)
    e = op("exp", op("sub", s, b.at("M", "i")))
    b.reduce("L", rows, {"j": n}, "sum", e)
    b.define("P", {"i": m, "j": n}, op("div", e, b.at("L", "i")), out=F16)
    return b.program(), {"Q": _normal(m, d), "K": _normal(n, d)}


def logic(m: int, n: int) -> Case:
    b = Builder("logic")
    b.input("X", m, n, dtype=DType.I8)
    x = b.at("X", "i", "j")
    b.reduce("A", {"i": m}, {"j": n}, "any", op("gt", x, i(3)))
    b.reduce("B", {"i": m}, {"j": n}, "prod", op("min", x, i(2)))
    y = op("select", b.at("A", "i"), b.at("B", "i"), i(-1))
    b.define("Y", {"i": m}, y, out=I32)
    return b.program(), {"X": np.random.default_rng(0).integers(1, 5, (m, n))}


def gram(m: int, k: int) -> Case:
    """A temp that its reader indexes twice differently: no alignment, so no fusion."""
    b = Builder("gram")
    b.input("X", m, k)
    b.reduce("N", {"i": m}, {"k": k}, "sum", op("mul", b.at("X", "i", "k"), b.at("X", "i", "k")))
    value = op("mul", b.at("X", "i", "k"), b.at("X", "j", "k"))
    b.reduce("G", {"i": m, "j": m}, {"k": k}, "sum", value)
    y = op("div", b.at("G", "i", "j"), op("sqrt", op("mul", b.at("N", "i"), b.at("N", "j"))))
    b.define("Y", {"i": m, "j": m}, y, out=F32)
    return b.program(), {"X": _normal(m, k)}


def batched(n: int) -> Case:
    b = Builder("batched")
    b.input("A", 2, 1, n, 1)
    b.input("B", 2, 1, 1, n)
    value = op("mul", b.at("A", "b", "c", "i", i(0)), b.at("B", "b", "c", i(0), "j"))
    b.define("Y", {"b": 2, "c": 1, "i": n, "j": n}, value, out=F16)
    return b.program(), {"A": _normal(2, 1, n, 1), "B": _normal(2, 1, 1, n)}


CASES: dict[str, Callable[[], Case]] = {
    "causal": lambda: attn(20, 77, 8, causal(57)),
    "global": lambda: attn(33, 13, 20, None),
    "window": lambda: attn(40, 40, 8, window(9)),
    "masked rows": lambda: attn(40, 40, 8, causal(-17)),
    "softmax": lambda: softmax(5, 77),
    "softmax of one": lambda: softmax(1, 1),
    "logsumexp": lambda: logsumexp(7, 130),
    "layernorm": lambda: layernorm(6, 77),
    "matmul": lambda: matmul(33, 40, 77),
    "matmul, transposed": lambda: matmul(5, 17, 130, transposed=True),
    "swiglu": lambda: swiglu(17, 20, 37),
    "argmax": lambda: argmax(5, 77),
    "conv": lambda: conv(33, 6, 10),
    "cumsum": lambda: cumsum(77),
    "total": lambda: total(77, 13),
    "gather": lambda: gather(13, 20, 33),
    "column sums": lambda: column_sums(333, 20),
    "transpose": lambda: transpose(13, 77),
    "decode": lambda: decode(130, 16),
    "unfactored": lambda: unfactored(5, 77, 8),
    "unfactored, masked rows": lambda: unfactored(20, 77, 8, causal(-3)),
    "extremes": lambda: extremes(5, 100),
    "probabilities": lambda: probabilities(20, 77, 8),
    "logic": lambda: logic(5, 33),
    "gram": lambda: gram(20, 8),
    "batched": lambda: batched(9),
}


def runtime_rows(n: int) -> tuple[Builder, Expr, dict[str, Any]]:
    """Three rows of scores ``S``, whose length is known at launch, with their maximum ``M`` and the sum ``L``.

    Gives a builder without outputs, the exponential of a score, and inputs for rows of ``n`` elements.
    """
    size = Param("N", I32, most=MAX_DIM)
    b = Builder("runtime")
    b.input("Q", 3, 4)
    b.input("K", size, 4)
    b.reduce("S", {"i": 3, "j": size}, {"d": 4}, "sum", op("mul", b.at("Q", "i", "d"), b.at("K", "j", "d")))
    b.reduce("M", {"i": 3}, {"j": size}, "max", b.at("S", "i", "j"))
    e = op("exp", op("sub", b.at("S", "i", "j"), b.at("M", "i")))
    b.reduce("L", {"i": 3}, {"j": size}, "sum", e)
    rng = np.random.default_rng(n)
    return b, e, {"Q": rng.normal(size=(3, 4)), "K": rng.normal(size=(n, 4))}
