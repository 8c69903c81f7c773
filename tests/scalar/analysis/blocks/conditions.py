"""Random masks on a row ``i`` and a column ``j``, and the blocks of a tiling that they keep, by enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from nautilus.core.expr.build import calc
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr, Var, substitute
from nautilus.core.source import Source
from nautilus.core.text.expressions import ExprParser
from nautilus.core.text.tokens import TokenStream

_OPS = ["<", "<=", ">", ">=", "==", "!="]


def parse(text: str) -> Expr:
    """The condition that ``text`` says."""
    return ExprParser(TokenStream(Source("<mask>", text)), {}).expr()


def _small(low: int, high: int) -> Any:
    return st.integers(low, high)


_sides = st.one_of(
    st.builds("{} * i - {} * j + {}".format, _small(-2, 2), _small(-3, 3), _small(-9, 9)),
    st.builds("i // {0} - j // {0} + {1}".format, _small(1, 9), _small(-3, 3)),
    st.builds("i // {} - 2 * (j // {}) + {}".format, _small(1, 9), _small(1, 9), _small(-3, 3)),
    st.builds("abs(i - j + {}) - {}".format, _small(-4, 4), _small(0, 9)),
    st.builds("abs(i // {0} - j // {0}) - {1}".format, _small(1, 9), _small(0, 3)),
    st.builds("abs(i - j) // {} - {}".format, _small(1, 9), _small(0, 3)),
    st.builds("(i - j) % {} - {}".format, _small(1, 5), _small(0, 2)),
    st.builds("abs(i % {0} - j % {0}) - {1}".format, _small(1, 9), _small(0, 3)),
    st.builds("j // {} % {} - {}".format, _small(1, 9), _small(1, 5), _small(0, 3)),
    st.builds("j - max(i - {}, {})".format, _small(0, 9), _small(-3, 20)),
    st.builds("min(j, {}) - min(i, {} - j)".format, _small(0, 30), _small(0, 30)),
    st.builds("j - {}".format, _small(0, 40)),
    st.builds("i - {}".format, _small(0, 40)),
    st.builds("j // {0} * {0} - i".format, _small(1, 9)),
    st.builds("(j - i) // {} + j // {} - {}".format, _small(1, 9), _small(1, 9), _small(0, 9)),
)
_parts = st.builds("{} {} 0".format, _sides, st.sampled_from(_OPS))
masks = st.recursive(
    _parts,
    lambda m: st.one_of(st.builds("({}) and ({})".format, m, m), st.builds("({}) or ({})".format, m, m),
                        st.builds("not ({})".format, m)),
    max_leaves=4,
)  # fmt: skip


def tiled(mask: Expr, rows: int, columns: int) -> Expr:
    """``mask`` at row ``i0 * rows + i`` and column ``j0 * columns + j``."""
    at = {x: calc("add", calc("mul", Var(f"{x}0"), n), Var(x)) for x, n in (("i", rows), ("j", columns))}
    return substitute(mask, at)


def blocks(mask: Expr, shape: tuple[int, int], tile: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """For each block of ``shape``, which ``tile`` divides: whether some points are kept, and whether all are."""
    i, j = np.arange(shape[0], dtype=np.int32)[:, None], np.arange(shape[1], dtype=np.int32)[None, :]
    kept = np.broadcast_to(evaluate(mask, {"i": i, "j": j}), shape)
    parts = kept.reshape(shape[0] // tile[0], tile[0], shape[1] // tile[1], tile[1])
    return np.asarray(parts.any(axis=(1, 3))), np.asarray(parts.all(axis=(1, 3)))
