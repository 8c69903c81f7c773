"""Blocks of conditions that compare with elements of tensors, by enumeration, for any contents of the tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, loads
from nautilus.core.index.linear import build
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.blocks.spans import Blocks, Span, spans
from nautilus.scalar.analysis.blocks.tensor_ends import Readable, _over_tile, reads_inside
from tests.scalar.analysis.blocks.conditions import tiled

ROWS, COLUMNS, TILE = 4, 6, 4  # blocks, and points of each along both axes
BATCH = 3
SHAPES = {"L": (BATCH,), "S": (BATCH + 1,), "R": (ROWS * TILE,), "W": (BATCH,)}
EDGES = [-(1 << 31), -(1 << 31) + 1, (1 << 31) - 1, (1 << 31) - 17, -25, -1, 0, 1, 7, 8, 23, 24, 25, 1000]

CONDITIONS = [
    "j < L[b]", "L[b] <= j", "S[b] <= j and j < S[b + 1]", "j - i <= L[b] - 5", "j <= i + L[b] - 5", "j + L[b] < 20",
    "j < L[b] and i - j < 6", "j < L[b] or j <= i", "not (j < L[b] and i < 9)", "j == L[b]", "j < min(L[b], 9)",
    "j < (L[b] if b > 0 else 7)", "j < R[i]", "R[i] <= j and j - i <= L[b]", "S[b] + j < L[b] + i", "j < S[L[b]]",
    "j == L[b] or R[i] == j", "L[b] <= j or j < R[i]", "j < L[b] and S[b] <= j and W[b] > j - 9",
    "j < W[b]", "j - i <= W[b] - 5", "W[b] + j < 20", "j // 3 < L[b] // 3", "2 * j <= L[b]", "j < 3 * L[b] - i",
]  # fmt: skip


def condition(text: str) -> Expr:
    """The condition in the axes ``b``, ``i`` and ``j``."""
    head = f"input L: i32[{BATCH}], S: i32[{BATCH + 1}], R: i32[{ROWS * TILE}], W: i64[{BATCH}]\n"
    axes = f"b: {BATCH}, i: {ROWS * TILE}, j: {COLUMNS * TILE}"
    spec = load_text(f"{head}output O: bool[{BATCH}, {ROWS * TILE}, {COLUMNS * TILE}]\nO[{axes}] = {text}\n")
    return spec.definitions[0].expr


def value(e: Expr, env: dict[str, Any], data: dict[str, Array]) -> Any:
    """``e`` where the tensors hold ``data``; no read is outside of its tensor."""

    def other(n: Expr) -> Any:
        assert isinstance(n, Load)
        index = tuple(np.asarray(value(x, env, data)) for x in n.index)
        return np.asarray(data[n.buffer][index])

    return evaluate(e, env, other)


def inside(s: Span, env: dict[str, Any], data: dict[str, Array], count: int) -> Array:
    """Which of ``count`` blocks are in ``s``."""

    def at(x: Any) -> int:
        assert all(a.dtype is DType.I32 for a in x.terms), "bounds of loops are i32"
        return int(value(build(x, DType.I32), env, data))

    j0 = np.arange(count)
    found = (j0 >= max(map(at, s.lo), default=0)) & (j0 < min(map(at, s.hi), default=count))
    return found & all(at(w) >= 0 for w in s.when)


def union(parts: tuple[Span, ...], env: dict[str, Any], data: dict[str, Array], count: int) -> Array:
    out = np.zeros(count, bool)
    for s in parts:
        out |= inside(s, env, data, count)
    return out


def blocks_of(text: str, columns: int = TILE) -> tuple[Expr, Blocks]:
    """The condition ``text``, and its blocks of ``columns`` points along ``j``."""
    mask = condition(text)
    known = {"b": (0, BATCH - 1), "i0": (0, ROWS - 1), "j0": (0, COLUMNS * TILE // columns - 1)}
    readable = Readable(SHAPES, {"b": condition("b < 3"), "i0": condition("i < 3")})  # no extent of a tensor
    return mask, spans(tiled(mask, TILE, columns), "j0", {"i": TILE, "j": columns}, known, readable)


@pytest.mark.parametrize("columns", (TILE, 1))
@pytest.mark.parametrize("text", CONDITIONS)
def test_any_contents(text: str, columns: int) -> None:
    mask, found = blocks_of(text, columns)
    count = COLUMNS * TILE // columns
    rng = np.random.default_rng(len(text))
    useful = 0
    for _ in range(40):
        data = {n: rng.choice(EDGES, shape).astype(np.int64) for n, shape in SHAPES.items()}
        data["R"] = rng.choice([-3, 5, 9, 30, *EDGES[:3]], SHAPES["R"]).astype(np.int64)
        if "S[L" in text:
            data["L"] = rng.integers(0, BATCH + 1, SHAPES["L"])
        if rng.random() < 0.3:
            data["W"] = rng.choice([-(1 << 63), (1 << 63) - 1, 1 << 40], SHAPES["W"])
        for b in range(BATCH):
            env = {"b": np.asarray(b), "i": np.arange(ROWS * TILE)[:, None], "j": np.arange(COLUMNS * TILE)[None, :]}
            holds = np.broadcast_to(value(mask, env, data), (ROWS * TILE, COLUMNS * TILE))
            cut = holds.reshape(ROWS, TILE, count, columns)
            live, full = np.asarray(cut.any((1, 3))), np.asarray(cut.all((1, 3)))
            for i0 in range(ROWS):
                at = {"b": np.asarray(b), "i0": np.asarray(i0)}
                may, must = (union(x, at, data, count) for x in (found.live, found.full))
                assert not (live[i0] & ~may).any(), "a live block is left out"
                assert not (must & ~full[i0]).any(), "a block is not full"
                useful += int((~may).any())
    assert useful, "no block is left out"


def test_what_is_not_read() -> None:
    """A tensor that a kernel writes, and an element that depends on the loop."""
    mask = condition("j < L[b]")
    unread = spans(tiled(mask, TILE, TILE), "j0", {"i": TILE, "j": TILE}, {"j0": (0, 5)}, Readable({}, {}))
    assert unread.live == (Span(),) and not unread.full
    mask, found = blocks_of("i < S[j % 4]")
    assert loads(mask) and found.live == (Span(),) and not found.full


def test_an_end_over_a_tile_looks_at_all_of_its_points() -> None:
    """Extents of tiles need not be powers of two."""
    read = Load("R", (Var("i"),), DType.I32)
    for size in range(1, 8):
        found = _over_tile(read, {"i": size}, True)
        assert found is not None
        assert {ld.index for ld in loads(found)} == {(integer(n),) for n in range(size)}


@pytest.mark.parametrize(
    ("dtype", "zero"), [(DType.F32, 0.0), (DType.F16, 0.0), (DType.I8, 0), (DType.I64, 0), (DType.BOOL, False)]
)
def test_a_tensor_that_may_be_empty_has_a_literal_in_place_of_elements(dtype: DType, zero: float) -> None:
    read = Load("X", (calc("sub", Var("j"), 1),), dtype)
    made = reads_inside(read, {"j": (0, 7)}, Readable({"X": (Param("N", DType.I32),)}, {}))
    assert isinstance(made, Op) and made.dtype is dtype.compute
    literal = made.args[1]
    assert literal == Const(zero, dtype.compute) and isinstance(literal, Const) and type(literal.value) is type(zero)
