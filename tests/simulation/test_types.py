"""The printed text for element types, small tiles, launches and clusters that no shipped spec has at small sizes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.schedule import Schedule
from nautilus.cuda.intrinsics import HELPERS
from nautilus.driver import Request
from nautilus.ma_tile.ir.ops import GlobalLoad, MmaOp, UnpackOp, walk_ops
from tests.endtoend.collection.decode import Decode, schedule
from tests.simulation.compared import Case, at_sizes, differences, prepare
from tests.simulation.simulate import MISSING, Fault
from tests.simulation.translate import TranslationError, translate

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

MACHINE = Path(__file__).parent / "machine"
PRODUCT = """
dim M = 72, N = 48, K = 80
input A: {a}[M, K]
input B: {a}[{columns}]
output C: {c}[M, N]
C[i, j] = sum[k](A[i, k] * B[{at}])
"""
COMPUTED = """
dim M = 72, N = 48, K = 80
input A: bf16[K, M], B: bf16[K, N]
output C: f32[M, N]
C[i, j] = sum[k](bf16(max(A[k, i], 0) + 1) * B[k, j])
"""
ODD = """
dim M = 130, N = 136, K = 208
input A: {a}[M, K], B: {b}[N, K]
output C: {c}[M, N]
C[i, j] = sum[k](A[i, k] * B[j, k])
"""
FEW = """
dim M = 5, N = 64, K = 256
input A: f16[M, K], B: i8[N, K]
output C: f32[M, N]
C[i, j] = sum[k](A[i, k] * B[j, k])
"""
ROWS = """
dim M = 5, N = 70
input A: {a}[M, N]
output S: {s}[M]
output Y: {y}[M, N]
S[i] = sum[j](A[i, j])
Y[i, j] = {body}
"""
BAGS = """
dim V = 40, D = 12, B = 11, T = 70
input table: f16[V, D], ids: i64[T], off: i32[B + 1]
output bag: f32[B, D]
assume 0 <= ids[t] < V
bag[b, d] = sum[t: off[b] .. off[b + 1]](table[ids[t], d])
"""
CELL = """
dim B = 1, T = 2, H = 200
input X: f32[B, T, H], U: f32[H, H]
output h: f32[B, T, H]
recur h[b, t, i] = X[b, t, i] + (0.25 * sum[j](h[b, t - 1, j] * U[i, j]) if t > 0 else 0)
"""


def product(a: str, c: str, *, transposed: bool = False) -> str:
    columns, at = ("N, K", "j, k") if transposed else ("K, N", "k, j")
    return PRODUCT.format(a=a, c=c, columns=columns, at=at)


#: title -> text, target; the sums of products are exact
PRODUCTS = {
    "f8e4m3, warpgroup": (product("f8e4m3", "f32", transposed=True), "sm_90a"),
    "f8e5m2, warpgroup, columns": (product("f8e5m2", "f16"), "sm_90a"),
    "f8e4m3, warps": (product("f8e4m3", "f32", transposed=True), "sm_89"),
    "f8e5m2, warps, columns": (product("f8e5m2", "f8e5m2"), "sm_120"),
    "tf32, warpgroup": (product("tf32", "f32", transposed=True), "sm_90a"),
    "f64, warps": (product("f64", "f64"), "sm_80"),
    "f64, warps, both along the terms": (product("f64", "f64", transposed=True), "sm_90a"),
    "tf32, warps": (product("tf32", "f32"), "sm_80"),
    "f32": (product("f32", "f32"), "sm_80"),
    "f64": (product("f64", "f64"), "sm_90a"),
    "bf16, computed across the rows, warps": (COMPUTED, "sm_90a"),
    "u8, warps": (product("u8", "i32", transposed=True), "sm_80"),
    "u8, warpgroup": (product("u8", "i32", transposed=True), "sm_90a"),
    "f8e4m3 and f8e5m2, warps": (ODD.format(a="f8e4m3", b="f8e5m2", c="f32"), "sm_89"),
    "f8e5m2 and f8e4m3, warpgroup": (ODD.format(a="f8e5m2", b="f8e4m3", c="f32"), "sm_90a"),
    "i8 and f16, warps": (FEW, "sm_90a"),
    "u8 and i8, warps": (ODD.format(a="u8", b="i8", c="i32"), "sm_89"),
    "u8 and i8, warpgroup": (ODD.format(a="u8", b="i8", c="i32"), "sm_90a"),
}
SCALED = """
dim M = 130, N = 136, K = 384
input A: f8e4m3[M, K], B: f8e4m3[N, K], s: f32[M, K // 128], t: f32[(N + 127) // 128, K // 128]
output C: f32[M, N]
C[i, j] = sum[k](A[i, k] * s[i, k // 128] * (B[j, k] * t[j // 128, k // 128]))
"""
NESTED = """
dim M = 130, N = 136, G = 2
input A: i8[M, G * 128], B: i8[N, G * 128], s: f32[M, G], t: f32[N, G]
output C: f32[M, N]
C[i, j] = sum[g: G](f32(sum[k: 128](i32(A[i, g * 128 + k]) * i32(B[j, g * 128 + k]))) * s[i, g] * t[j, g])
"""
QUANTISED = """
dim M = 130, N = 256, K = 256
input A: f8e4m3[M, K], B: f8e4m3[N, K], t: f32[M, K // 128]
output Q: f8e4m3[M, N], s: f32[M, N // 128]
y[i, j] = sum[k](A[i, k] * t[i, k // 128] * B[j, k])
s[i, g] = max(max[j: 128](abs(y[i, g * 128 + j])) / 448, 1e-10)
Q[i, j] = y[i, j] / s[i, j // 128]
"""
#: numbers beside ties of the types that they are rounded to, by less than f32 has
TIES = """
dim N = 64
input X: i32[N]
output P: f64[N], Q: f64[N], R: f64[N], S: f32[N], T: f32[N], U: f32[N]
z[i: N] = 1 + f64(i % 8) * 2.0 ** -13 + f64(i // 8 - 3) * 2.0 ** -45 + f64(X[i]) * 0
n[i: N] = X[i] % 2 + (2 ** 24 + i % 8 * 2 ** 13 + i // 8)
P[i] = f16(z[i])
Q[i] = bf16(z[i] * 8 - 7)
R[i] = tf32(z[i])
S[i] = bf16(n[i] * 8)
T[i] = tf32(n[i])
U[i] = tf32(1 + f32(i) * 2.0 ** -11 + f32(X[i]) * 0)
"""
#: title -> element type, type of the sum, type and value of an elementwise result
ELEMENTWISE = {
    "f64": ("f64", "f64", "f64", "exp(A[i, j]) / S[i]"),
    "u8": ("u8", "i32", "u8", "A[i, j] // 3"),
    "f8e4m3": ("f8e4m3", "f32", "f8e4m3", "A[i, j] * 0.5 + 1"),
    "f8e5m2": ("f8e5m2", "f32", "f8e5m2", "tanh(A[i, j])"),
    "u8 as bf16": ("u8", "i32", "bf16", "bf16(A[i, j])"),
    "i8 as f16": ("i8", "i32", "f16", "f16(A[i, j])"),
    "f8e4m3 as f16": ("f8e4m3", "f32", "f16", "f16(A[i, j])"),
    "bf16": ("bf16", "f32", "bf16", "A[i, j] / (1 + abs(S[i]))"),
}
BITS = """
dim M = 5, N = 33
input X: i32[M, N], B: u8[M, N], L: i64[M]
output O: i32[M, N], P: i64[M], R: i32[M]
O[i, j] = (X[i, j] << B[i, j] - 9) ^ (X[i, j ^ 1] >> 3 | ~B[i, j] & 12) if (j ^ 1) < N else X[i, j] & -X[i, j]
P[i] = L[i] << 33 ^ L[i] >> (i & 1) * 70
R[i] = sum[j | (i & j) == 0](X[i, j] >> B[i, j] & 255)
"""
#: divisors that are 0 where a condition excludes the quotient, and in the padding of tiles; the host stops at one
DIVIDED = """
dim M = 5, N = 33, R = runtime <= 64
input X: i32[M, N], B: i8[M, N], Y: f32[N], Z: f32[R]
output O: i32[M, N], P: f32[M, N], Q: f32[N]
O[i, j] = X[i, j] // B[i, j] + X[i, j] % B[i, j] if B[i, j] != 0 else -7
P[i, j] = Y[min(max(X[i, j], 0), N - 1) // (X[i, j] % 3)] if X[i, j] % 3 > 0 else 2
Q[j] = Y[j % R] if 0 < R <= N else sum[t](Z[t])
"""
PACKED = """
dim M = 20, N = 24, K = 64
input X: f16[M, K], W: u4[N, K], F: f4e2m1[N, K], s: f16[N, K // 32]
output Y: f32[M, N], Q: i4[M, K], R: f4e2m1[M, K]
Y[i, j] = sum[k](X[i, k] * (f16(W[j, k] - 8) * s[j, k // 32])) + sum[k](X[i, k] * F[j, k])
Q[i, k] = i32(round(X[i, k]))
R[i, k] = X[i, k]
"""
ZERO_POINTS = """
dim M = 20, N = 72, K = 128
input X: bf16[M, K], V: f16[M, K], W: i4[N, K], F: f4e2m1[N, K], s: bf16[N, K // 32], z: u4[N, K // 32]
output Y: f32[M, N]
Y[i, j] = (sum[k](X[i, k] * ((W[j, k] - z[j, k // 32]) * s[j, k // 32])) + sum[k](V[i, k] * F[j, k])
    + sum[k](X[i, k] * (F[j, k] * s[j, k // 32])))
"""
#: weights of 4 bits beside integers of 8 bits, of which matrix units sum each group
GROUPS = """
dim M = 33, N = 72, G = 4
input X: i8[M, G * 128], W: i4[N, G * 128], V: u4[N, G * 128], s: f16[N, G]
output Y: f32[M, N], Z: f32[M, N]
Y[m, n] = sum[g: G](s[n, g] * sum[k: 128](X[m, 128 * g + k] * W[n, 128 * g + k]))
Z[m, n] = sum[g: G](s[n, g] * sum[k: 128](X[m, 128 * g + k] * (V[n, 128 * g + k] - 8)))
"""
#: a block has more threads than one of the tiles has vectors, so some of its lanes or warps would copy bytes twice
SMALL = {
    "convolution": """
dim B = 2, H = 9, W = 10, C = 8, K = 16
input X: f16[B, H, W, C]
input F: f16[3, 3, C, K]
output Y: f16[B, H, W, K]
Y[b, y, x, k] = sum[r: 3, s: 3, c](X[b, y+r-1, x+s-1, c] * F[r, s, c, k]
    if 0 <= y+r-1 and y+r-1 < H and 0 <= x+s-1 and x+s-1 < W else 0)
""",
    "lanes": product("f32", "f32").replace("M = 72, N = 48, K = 80", "M = 7, N = 8, K = 8"),
    "bytes": product("u8", "i32", transposed=True).replace("M = 72, N = 48, K = 80", "M = 16, N = 16, K = 32"),
    "computed operand": product("f32", "f32")
    .replace("M = 72, N = 48, K = 80", "M = 2, N = 5, K = 2")
    .replace("A[i, k] *", "abs(A[i, k]) *"),
}


def compiled(text: str, arch: str = "sm_90a", plan: Schedule | None = None, *, integers: bool = False) -> Case:
    return prepare(Request(Path("given.naut"), arch, text=text.lstrip(), schedule=plan), integers=integers)


def check(case: Case, folder: Path, number: int) -> None:
    found = differences(case, sorted({0, 1 + number % 4}), folder)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, tmp_path: Path) -> None:
    text, arch = PRODUCTS[name]
    check(compiled(text, arch, integers=True), tmp_path, list(PRODUCTS).index(name))


@pytest.mark.parametrize("name", SMALL)
def test_small_tiles(name: str, tmp_path: Path) -> None:
    check(compiled(SMALL[name], integers=True), tmp_path, list(SMALL).index(name))


@pytest.mark.parametrize(
    ("name", "condition", "what"),
    [
        ("convolution", "if (warp == 0) {", "cp.async writes"),
        ("lanes", "if (lane / 16 == 0) {", "cp.async writes"),
        ("computed operand", "if (warp == 0) {", "a store writes"),
    ],
)
def test_a_small_tile_that_every_thread_copies(name: str, condition: str, what: str, tmp_path: Path) -> None:
    """Without the printed condition several threads write the same bytes."""
    case = compiled(SMALL[name], integers=True)
    assert condition in case.text
    with pytest.raises(Fault, match=what):
        differences(case, [0], tmp_path, case.text.replace(condition, "{"))


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str, tmp_path: Path) -> None:
    a, s, y, body = ELEMENTWISE[name]
    check(compiled(ROWS.format(a=a, s=s, y=y, body=body)), tmp_path, list(ELEMENTWISE).index(name))


@pytest.mark.parametrize("text", [BITS, TIES], ids=["operators", "ties"])
def test_bits(text: str, tmp_path: Path) -> None:
    check(compiled(text, "sm_80"), tmp_path, 1)


def test_names_that_cpp_reserves_are_no_statements() -> None:
    text = compiled("dim N = 64\ninput x: f32[N]\noutput asm: f32[N]\nasm[n] = x[n] * 2 + 1\n").text
    assert "// asm[n]" in translate(text)
    with pytest.raises(TranslationError):
        translate(text.replace("// asm[n]", "asm goto; // asm[n]"))


@pytest.mark.parametrize("size", (0, 7))
def test_no_quotient_has_a_divisor_of_zero(size: int, tmp_path: Path) -> None:
    check(at_sizes(compiled(DIVIDED), {"R": size}), tmp_path, 1)


@pytest.mark.parametrize(
    ("text", "arch", "instr"),
    [
        (SCALED, "sm_90a", "wgmma.e4m3"),
        (QUANTISED, "sm_90a", "wgmma.e4m3"),
        (NESTED, "sm_90a", "wgmma.s8"),
        (NESTED, "sm_89", "m16n8k32.s8"),
    ],
)
def test_scaled_groups(text: str, arch: str, instr: str, tmp_path: Path) -> None:
    """The matrix units read the tensors of 8 bits as they are, and all is one kernel."""
    case = compiled(text, arch, integers=True)
    assert len(case.module.kernels) == 1
    assert [x.instr for k in case.module.kernels for x in walk_ops(k.body) if isinstance(x, MmaOp)] == [instr]
    check(case, tmp_path, 1)


@pytest.mark.parametrize(("text", "count"), [(PACKED, 2), (ZERO_POINTS, 3), (GROUPS, 2)])
def test_packed_types(text: str, count: int, tmp_path: Path) -> None:
    case = compiled(text, integers=True)
    unpacked = [x for k in case.module.kernels for x in walk_ops(k.body) if isinstance(x, UnpackOp)]
    assert len(unpacked) == count
    check(case, tmp_path, 1)


def test_warpgroups_convert_the_columns_of_few_rows(tmp_path: Path) -> None:
    """The bytes come by TMA copies and are unpacked to left operands; the rows are columns of the instruction."""
    text = """
dim M = 40, N = 136, K = 1024
input X: f16[M, K], W: u4[N, K], s: f16[N, K // 128]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * (f16(W[j, k] - 8) * s[j, k // 128]))
"""
    case = compiled(text)
    assert "wgmma_m64n40k16_f16" in case.text or "n40k16" in case.text
    check(case, tmp_path, 1)


def test_split_k_over_a_cluster(tmp_path: Path) -> None:
    text = Decode(201, heads=4, group=2).text
    case = compiled(text, plan=schedule(text, 2, 2, 32))
    assert [k.cluster for k in case.module.kernels] == [2] and "cluster_wait" in case.text
    check(case, tmp_path, 1)


def test_a_block_over_a_cluster(tmp_path: Path) -> None:
    """The blocks of a cluster exchange the state of a recurrence in memory."""
    case = compiled(CELL)
    assert [k.spread for k in case.module.kernels] == [8] and "__cluster_dims__(8" in case.text
    check(case, tmp_path, 1)


def test_blocks_of_one_warp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warps of a block of the launch have rows of their own, and the last one of them has none."""
    monkeypatch.setattr("nautilus.ma_tile.passes.grid.pack_blocks.STARTS", 0)
    case = compiled(BAGS)
    assert [k.packed for k in case.module.kernels] == [8] and "return;" in case.text
    check(case, tmp_path, 1)


def test_dependent_launch(tmp_path: Path) -> None:
    """The second kernel is launched early; the wait in front of its reads is what makes it right."""
    text = Decode(201, heads=4, group=2).text
    plan = schedule(text, 3, 3, 16)
    kernels = tuple(replace(k, mapping=replace(k.mapping, dependent_launch=True)) for k in plan.kernels)
    case = compiled(text, plan=replace(plan, kernels=kernels))
    assert "griddepcontrol.wait" in case.text and len(case.module.kernels) == 2
    check(case, tmp_path, 2)
    without = case.text.replace("griddepcontrol.wait", "griddepcontrol.launch_dependents")
    with pytest.raises(Fault, match="before the wait"):
        differences(case, [0], tmp_path, without)


#: rows that begin anywhere in memory: (type, shape of the result, its element at b, i, j)
ANYWHERE = {
    "f16, two batches": ("f16", "B, M, N", "T[b, i, j]"),
    "f32": ("f32", "B, M, N", "T[b, i, j]"),
    "bytes": ("f8e4m3", "B, M, N", "0.125 * T[b, i, j]"),
    "after columns of another kernel": ("f16", "B, M, N + 3", "T[b, i, j - 3] if j >= 3 else 1"),
    "transposed": ("f16", "B, N, M", "T[b, j, i]"),
}


@pytest.mark.parametrize("name", ANYWHERE)
def test_rows_that_begin_anywhere(name: str, tmp_path: Path) -> None:
    """Aligned vectors and the ends of each row hold all of it and nothing beside it."""
    dtype, shape, element = ANYWHERE[name]
    extents = dict(zip("bij", shape.split(", "), strict=True))
    text = f"""
        dim B = 2, M = runtime, N = 203, K = 184
        input A: f16[B, M, K], W: f16[N, K]
        output C: {dtype}[{shape}]
        T[b, i, j] = sum[k](A[b, i, k] * W[j, k])
        C[b, i: {extents["i"]}, j: {extents["j"]}] = {element}
        """
    case = at_sizes(compiled(text, integers=True), {"M": 67})
    assert "shifted_vector" in case.text
    check(case, tmp_path, list(ANYWHERE).index(name))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32", "f8e4m3", "f16", "bf16", "f32"])
def test_vectors_between_aligned_ones(dtype: str, tmp_path: Path) -> None:
    """Neighbours of elements are loaded as two aligned vectors, whether registers are packed or hold one element."""
    text = f"""
        dim H = 9, W = 160
        input X: {dtype}[H, W]
        output Y: f32[H, W]
        Y[y, x: W] = (f32(X[y, x - 1]) if x > 0 else 0) - 2 * (f32(X[y, x + 1]) if x + 1 < W else 0)
        """
    case = compiled(text)
    loads = (op for k in case.module.kernels for op in walk_ops(k.body) if isinstance(op, GlobalLoad))
    assert any(op.shift for op in loads)
    check(case, tmp_path, 0)


def test_the_machine_knows_every_instruction_of_a_function() -> None:
    used = {name for h in HELPERS.values() for name in re.findall(r'asm\("([a-z0-9]+\.[\w.]+) %0', h.text)}
    text = "".join(p.read_text() for p in MACHINE.glob("*.cpp"))
    known = {name for name in used if f'"{name}"' in text}
    assert {"sqrt.approx.f32", "tanh.approx.f32"} <= used == known
