"""Plans of rows whose terms are segments: a block for each row, and what is not of that form."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.cost.estimates import segment_rows
from nautilus.driver import Request, Result, compile_file
from nautilus.frontend.semantics.check import load_spec
from nautilus.planner.rowwise import segments
from nautilus.planner.rowwise.segments import Segments, segments_of
from nautilus.scalar.analysis.definitions import Def, read_defs
from nautilus.scalar.lowering import lower
from tests.endtoend.support import check

SPARSE = """
    dim N = 2000, M = 900, E = 30000, F = 20
    input val: f32[E], col: i32[E], ptr: i32[N + 1], X: f32[M, F]
    assume 0 <= col[e] < M
    output Y: f32[N, F]
    Y[n: N, f] = sum[e: ptr[n] .. ptr[n + 1]](val[e] * X[col[e], f])
"""
SOFTMAX = """
    dim N = 3000, E = 40000
    input s: f32[E], ptr: i32[N + 1]
    output z: f32[N]
    m[n: N] = max[e: ptr[n] .. ptr[n + 1]](s[e])
    z[n: N] = sum[e: ptr[n] .. ptr[n + 1]](exp(s[e] - m[n]))
"""
#: The product of a sparse matrix and a vector, whose rows are short.
VECTOR = """
    dim N = 66000, M = 900, E = 1000000
    input val: f32[E], col: i32[E], ptr: i32[N + 1], x: f32[M]
    assume 0 <= col[e] < M
    output Y: f32[N]
    Y[n: N] = sum[e: ptr[n] .. ptr[n + 1]](val[e] * x[col[e]])
"""
#: Gradients of the matrices of experts: rows and columns of a product for each segment.
EXPERTS = """
    dim G = 8, T = 4096, I = 256, J = 256
    input A: f16[T, I], B: f16[T, J], off: i32[G + 1]
    output Y: f16[G, I, J]
    Y[g: G, i, j] = sum[t: off[g] .. off[g + 1]](A[t, i] * B[t, j])
"""
#: Rows of blocks of 32 x 32 elements of a block-sparse matrix.
BLOCKS = """
    dim R = 1024, C = 60, B = 16000, S = 32, D = 128
    input val: f16[B, S, S], ptr: i32[R + 1], col: i32[B], X: f16[C, S, D]
    assume 0 <= col[b] < C
    output Y: f16[R, S, D]
    Y[r, s, d] = sum[b: ptr[r] .. ptr[r + 1], k](val[b, s, k] * X[col[b], k, d])
"""
#: Attention over the edges of a graph, by dot products and by sums that are none.
EDGES = """
    dim N = 2000, E = 20000, H = 4, D = 32, F = 8
    input ptr: i32[N + 1], col: i32[E], q: f16[N, H, D], k: f16[N, H, D], ef: f16[E, F], w: f16[F, H, D]
    assume 0 <= col[e] < N
    output y: f16[N, H, D]
    b[e, h, d] = sum[f](ef[e, f] * w[f, h, d])
    s[n: N, e: E, h] = sum[d]({score})
    y[n: N, h, d] = sum[e: ptr[n] .. ptr[n + 1]](
      softmax[e: ptr[n] .. ptr[n + 1]](s[n, e, h]) * k[col[e], h, d])
"""


@pytest.mark.parametrize("score", ["q[n, h, d] * k[col[e], h, d]", "abs(q[n, h, d] + k[col[e], h, d] + b[e, h, d])"])
def test_scores_of_edges_are_not_stored_for_pairs(score: str) -> None:
    result = compiled(EDGES.replace("{score}", score))
    assert result.context.schedule is not None
    last = result.context.schedule.kernels[-1]
    assert last.ops[0] in ("s", "s_rows") and last.ops[-1] == "y"
    assert {a.name: a.tile for a in last.axes if a.role == "grid"} == {"n": 1, "h": 4}


def compiled(text: str) -> Result:
    return compile_file(Request(Path("given.naut"), "sm_90a", text=text))


@pytest.mark.parametrize(
    ("text", "axes"), [(SPARSE, {"f": 32, "e": 16}), (SOFTMAX, {"e": 64})], ids=["sparse", "softmax"]
)
def test_a_block_has_one_row(text: str, axes: dict[str, int]) -> None:
    result = compiled(text)
    assert result.context.schedule is not None and result.context.schedule.splits in (None, ())
    (plan,) = result.context.schedule.kernels
    assert {a.name: a.tile for a in plan.axes} == {"n": 1} | axes
    (kernel,) = result.modules["ma-tile"].kernels
    found = segment_rows(kernel, {b.name: b for b in result.modules["ma-tile"].buffers})
    assert set(found) == {"ptr"} and 13 <= found["ptr"][0] / found["ptr"][1] <= 16


def test_a_block_has_several_of_many_short_rows() -> None:
    (plan,) = compiled(VECTOR).context.schedule.kernels  # type: ignore[union-attr]
    assert {a.name: a.tile for a in plan.axes} == {"n": 8, "e": 128}
    (plan,) = compiled(VECTOR.replace("1000000", "4000000")).context.schedule.kernels  # type: ignore[union-attr]
    assert {a.name: a.tile for a in plan.axes} == {"n": 2, "e": 128}


@pytest.mark.parametrize(("terms", "warps"), [(60, 1), (500, 1), (1000, 2), (2000, 4)])
def test_long_rows_of_single_numbers_have_several_warps(terms: int, warps: int) -> None:
    extents = {"n": 900, "e": 900 * terms}
    made = segments.plan_of([_of(VECTOR, 900, 900 * terms)], extents, ["n"], ["e"], "e")
    assert made is not None and made[2].warps == (1, warps)


@pytest.mark.parametrize(("rows", "tiles", "warps"), [(100, {"f": 64, "e": 128}, 4), (3000, {"f": 128, "e": 16}, 1)])
def test_long_rows_of_columns_have_several_warps_where_blocks_are_few(
    rows: int, tiles: dict[str, int], warps: int
) -> None:
    extents = {"n": rows, "e": 200 * rows, "f": 512}
    made = segments.plan_of([_of(SPARSE, rows, 200 * rows)], extents, ["n", "f"], ["e"], "f")
    assert made is not None and made[2].warps == (1, warps)
    assert {x: a.tile for x, a in made[1].items()} == {"n": 1} | tiles


def _of(text: str, rows: int, terms: int) -> Def:
    sizes = re.sub(r"N = \d+", f"N = {rows}", re.sub(r"E = \d+", f"E = {terms}", text))
    return next(iter(read_defs(lower(load_spec(dedent(sizes)))).values()))


def test_numbers_of_several_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "BLOCKS", 4)
    check(VECTOR.replace("66000", "53").replace("900", "6").replace("1000000", "400"), "sm_90a")


def test_numbers() -> None:
    check(SPARSE.replace("2000", "7").replace("900", "6").replace("30000", "45"), "sm_90a")


def test_products_of_segments_stay_products() -> None:
    result = compiled(EXPERTS)
    assert any("mma" in line for line in result.cuda_module.code.splitlines())


def test_blocks_of_sparse_rows_are_contracted_one_by_one() -> None:
    result = compiled(BLOCKS)
    assert result.context.schedule is not None
    (plan,) = result.context.schedule.kernels
    assert {a.name: a.tile for a in plan.axes if a.role == "loop"} == {"b": 1, "k": 32}
    assert "mma" in result.cuda_module.code


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("ptr[n] <= e and e < ptr[n + 1]", Segments("e", "n")),
        ("e >= ptr[n] and ptr[n + 1] > e and e != 3", Segments("e", "n")),
        ("ptr[n] <= e and e < ptr[n + 2]", None),
        ("ptr[n] <= e and e <= ptr[n + 1]", None),
        ("ptr[n] <= e and e < end[n + 1]", None),
        ("ptr[n] <= e and e < end[n]", Segments("e", "n", disjoint=False)),
        ("e < ptr[n + 1]", None),
    ],
)
@pytest.mark.parametrize("ends", ["i32", "i64"])
def test_segments(condition: str, found: Segments | None, ends: str) -> None:
    text = f"""
        dim N = 30, E = 300
        input s: f32[E], ptr: {ends}[N + 2], end: {ends}[N + 2]
        output z: f32[N]
        z[n: N] = sum[e: E | {condition}](s[e])
    """
    (d,) = read_defs(lower(load_spec(dedent(text)))).values()
    assert segments_of(d) == found


def test_segments_that_two_axes_number() -> None:
    text = """
        dim E = 5, C = 6, T = 300
        input s: f32[T], ptr: i32[E * C + 1]
        output z: f32[E, C]
        z[e: E, c: C] = sum[t: ptr[6 * e + c] .. ptr[6 * e + c + 1]](s[t])
    """
    (d,) = read_defs(lower(load_spec(dedent(text)))).values()
    assert segments_of(d) == Segments("t", "c", outer=("e",))
