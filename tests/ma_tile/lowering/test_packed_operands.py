"""Each spelling of the two numbers in a byte is unpacked by one op, and the bytes are copied ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import AsyncCopy, GlobalLoad, UnpackOp, walk_ops
from nautilus.ma_tile.ir.unpack import byte_steps, is_exact

SPEC = """
dim M = 16, N = {n}, K = 512
input X: {x}[M, K], W: {w}, s: {x}[N, K // {g}], z: u8[N, K // {g}]
output Y: {x}[M, N]
Y[i, j] = sum[k](X[i, k] * ({number}))
"""
PACKED = "{}[N, K]"
BYTES = "u8[N, K // 2]"
#: weights, number, group, type -> form, less, by, whether a number is subtracted, whether one multiplies: the scales of
#: groups of 128 beside few rows multiply sums
CASES = {
    "u4": (PACKED.format("u4"), "(W[j, k] - 8) * s[j, k // {g}]", 128, "f16", ("u4", 8.0, False, False)),
    "i4": (PACKED.format("i4"), "W[j, k] * s[j, k // {g}]", 128, "bf16", ("i4", 0.0, False, False)),
    "f4": (PACKED.format("f4e2m1"), "W[j, k] * s[j, k // {g}]", 64, "f16", ("f4e2m1", 0.0, False, True)),
    "zero points": (
        PACKED.format("u4"),
        "(f32(W[j, k]) - f32(z[j, k // {g}] & u8(15))) * s[j, k // {g}]",
        32,
        "f16",
        ("u4", 0.0, True, True),
    ),
    "bits": (
        BYTES,
        "(f32((W[j, k // 2] >> u8(4 * (k % 2))) & u8(15)) - 8) * s[j, k // {g}]",
        128,
        "f16",
        ("u4", 8.0, False, True),
    ),
    "digits": (
        BYTES,
        "f32(W[j, k // 2] % 16 if k % 2 == 0 else W[j, k // 2] // 16) * s[j, k // {g}]",
        128,
        "bf16",
        ("u4", 0.0, False, True),
    ),
    "no scale": (PACKED.format("u4"), "f16(W[j, k]) * 0.5 - 4", 128, "f16", ("u4", 8.0, False, False)),
}


def unpacked(text: str, arch: str, folder: Path) -> tuple[list[UnpackOp], list[GlobalLoad | AsyncCopy]]:
    """The ops that unpack, and the accesses to W."""
    module = compile_file(Request(folder / "w.naut", arch, text=text, until="ma-tile")).modules["ma-tile"]
    ops = [op for k in module.kernels for op in walk_ops(k.body)]
    accesses = [op for op in ops if isinstance(op, GlobalLoad | AsyncCopy) and op.buffer == "W"]
    return [op for op in ops if isinstance(op, UnpackOp)], accesses


@pytest.mark.parametrize("title", CASES)
def test_spellings(title: str, tmp_path: Path) -> None:
    arch, n = (("sm_80", 200), ("sm_90a", 256))[list(CASES).index(title) % 2]
    weights, number, g, x, (form, less, minus, times) = CASES[title]
    text = SPEC.format(n=n, w=weights, x=x, g=g, number=number.format(g=g))
    ops, accesses = unpacked(text, arch, tmp_path)
    assert ops and accesses
    for op in ops:
        assert (op.form, op.bias, op.zero is not None, op.scale is not None) == (form, less, minus, times)
        assert op.result.type.dtype.value == x
    assert all(isinstance(op, AsyncCopy) and op.vec == 16 for op in accesses)


@pytest.mark.parametrize(
    "number",
    [
        "W[j, k // 2] % 8",  # a part of a half
        "(W[j, k // 2] >> u8(4 * (k % 2))) & u8(31)",  # more than a half
        "f32(W[j, k // 2] % 16) ** 3",  # no numbers in equal steps
        "(W[j, k // 2] >> u8(4 * (k % 2))) & u8(15) if k < 100 else 1",  # other numbers elsewhere
        "((W[j, k // 2] >> u8(4 * (k % 2))) & u8(15)) * 0.3",  # numbers that are not exact in 16 bits
    ],
)
def test_other_functions_of_bytes(number: str, tmp_path: Path) -> None:
    text = SPEC.format(n=256, w=BYTES, x="f16", g=128, number=f"f32({number}) * s[j, k // 128]")
    ops, _ = unpacked(text, "sm_90a", tmp_path)
    assert not any(op.scale is not None for op in ops if "0.3" not in number)
    assert not ops or "0.3" in number


ROUNDED = [("W[j, k] - h[j]", 1), ("W[j, k] - f[j]", 0), ("(W[j, k] - h[j]) * h[j]", 0)]


@pytest.mark.parametrize("number, found", ROUNDED)
def test_a_difference_that_is_rounded_right_after_it_is_unpacked(number: str, found: int, tmp_path: Path) -> None:
    text = (
        "dim M = 16, N = 256, K = 512\ninput X: f16[M, K], W: u4[N, K], h: f16[N], f: f32[N]\noutput Y: f16[M, N]\n"
        f"Y[i, j] = sum[k](X[i, k] * f16({number}))\n"
    )
    ops, _ = unpacked(text, "sm_90a", tmp_path)
    assert [op.zero is not None for op in ops] == [bool(found)]


@pytest.mark.parametrize(("w", "less"), [("i4", 0), ("u4", 8), ("u4", 0)])
def test_factors_of_integers_are_unpacked_to_bytes(w: str, less: int, tmp_path: Path) -> None:
    text = (
        f"dim M = 16, N = 72, G = 4\ninput X: i8[M, G, 128], W: {w}[N, G, 128], s: f16[N, G]\noutput Y: f16[M, N]\n"
        f"Y[i, j] = sum[g](s[j, g] * sum[k: 128](X[i, g, k] * (W[j, g, k] - {less})))\n"
    )
    ops, accesses = unpacked(text, "sm_90a", tmp_path)
    assert {(op.form, op.bias, op.result.type.dtype) for op in ops} == {(w, float(less), DType.I8)}
    assert all(isinstance(op, AsyncCopy) and op.vec == 16 for op in accesses)


@pytest.mark.parametrize(
    ("form", "less", "by", "found"),
    [("u4", 8.0, 1.0, (0, 8)), ("i4", 0.0, 1.0, (8, 8)), ("u4", -1.0, 1.0, None), ("u4", 200.0, 1.0, None),
     ("u4", 0.5, 1.0, None), ("u4", 0.0, 2.0, None), ("f4e2m1", 0.0, 1.0, None)],
)  # fmt: skip
def test_numbers_that_bytes_hold(form: str, less: float, by: float, found: tuple[int, int] | None) -> None:
    assert byte_steps(form, less, by) == found
    assert is_exact(form, less, by, DType.I8) is (found is not None)


def test_bytes_that_give_places_in_a_table_are_loaded_as_vectors(tmp_path: Path) -> None:
    text = (
        "dim M = 16, N = 256, K = 512\ninput X: f16[M, K], W: u4[N, K], T: f32[16], s: f16[N]\noutput Y: f16[M, N]\n"
        "Y[i, j] = sum[k](X[i, k] * f16(T[i32(W[j, k])] * s[j]))\n"
    )
    ops, accesses = unpacked(text, "sm_90a", tmp_path)
    assert not ops and accesses
    assert all(isinstance(op, GlobalLoad) and (op.vec, op.repeat) == (16, 2) for op in accesses)
