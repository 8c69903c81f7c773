"""Products of f32 in parts of bf16 that kernels store, on all levels: odd sizes, transposed operands, inf and NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpgroupPlan
from nautilus.driver import Request, Result, compile_file
from nautilus.ma_tile.interp import module as ma_interp
from nautilus.ma_tile.ir.ops import MmaOp, walk_ops
from nautilus.vr_tile.interp import run_module

Array = np.ndarray[Any, Any]
SIZES = {"M": 66, "N": 70, "K": 77}
LEFT = {"A[i, k]": "A: f32[M, K]", "A[k, i]": "A: f32[K, M]"}
RIGHT = {"B[k, j]": "B: f32[K, N]", "B[j, k]": "B: f32[N, K]"}
NATURAL, TRANSPOSED = ("A[i, k]", "B[k, j]"), ("A[k, i]", "B[j, k]")


def compiled(a: str, b: str, epilogue: str = "", late: str = "") -> Result:
    """The product ``C`` of ``a`` and ``b`` in tiles of 64 x 64 x 32, or ``epilogue`` of the product ``S``.

    ``late``: a size that is known only at launch.
    """
    dims = ", ".join(f"{n} = {'runtime' if n == late else size}" for n, size in SIZES.items())
    lines = [f"dim {dims}", f"input {LEFT[a]}", f"input {RIGHT[b]}", "output C: f32[M, N]"]
    product = f"sum[k]({a} * {b})"
    lines += [f"S[i, j] = {product}", f"C[i, j] = {epilogue}"] if epilogue else [f"C[i, j] = {product}"]
    mapping = WarpgroupPlan(warpgroups=1, stages=2, epilogue="direct", persistent="static", pipeline_mma=False)
    axes = (AxisPlan("i", "grid", 64), AxisPlan("j", "grid", 64), AxisPlan("k", "loop", 32))
    ops = ("S", "C") if epilogue else ("C",)
    plan = KernelPlan("C", ops, axes, tuple((x,) for x in ops), mapping=mapping)
    schedule = Schedule(inline=(), kernels=(plan,))
    return compile_file(Request(Path("parts.naut"), "sm_90a", text="\n".join(lines) + "\n", schedule=schedule))


def operands(a: str, b: str) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    sizes = {t[0]: [SIZES[x] for x in t.partition("[")[2][:-1].split(", ")] for t in (LEFT[a], RIGHT[b])}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in sizes.items()}


def runs(made: Result, data: dict[str, Array]) -> list[Array]:
    """The result of the VR-tile and the MA-tile interpreter."""
    late = dict(zip("MKN", (*data["A"].shape, data["B"].shape[1]), strict=True))
    sizes = {p.name: late[p.name] for p in made.modules["vr-tile"].params}
    vr = run_module(made.modules["vr-tile"], data, sizes, mode="typed")["C"]
    return [np.asarray(vr), np.asarray(ma_interp.run_module(made.modules["ma-tile"], data, sizes)["C"])]


@pytest.mark.parametrize(("a", "b"), [NATURAL, TRANSPOSED])
def test_odd_sizes_have_the_accuracy_of_f32(a: str, b: str) -> None:
    made, data = compiled(a, b), operands(a, b)
    kernels = made.modules["ma-tile"].kernels
    names = {k.name: {op.instr for op in walk_ops(k.body) if isinstance(op, MmaOp)} for k in kernels}
    assert names["C"] == {"wgmma.bf16"} and {"A_parts", "B_parts"} < names.keys()
    x, y = (data["A"].T if a == "A[k, i]" else data["A"]), (data["B"].T if b == "B[j, k]" else data["B"])
    exact = x.astype(np.float64) @ y.astype(np.float64)
    for found in runs(made, data):
        assert np.linalg.norm(found - exact) < 2e-7 * np.linalg.norm(exact)


@pytest.mark.parametrize("late", ["N", "K"])
def test_rows_of_any_length_have_the_accuracy_of_f32(late: str) -> None:
    made, rng = compiled(*NATURAL, late=late), np.random.default_rng(0)
    assert {"A_parts", "B_parts"} < {k.name for k in made.modules["ma-tile"].kernels}
    for size in (0, 1, 75):
        sizes = SIZES | {late: size}
        data = {"A": rng.standard_normal((sizes["M"], sizes["K"])), "B": rng.standard_normal((sizes["K"], sizes["N"]))}
        data = {n: v.astype(np.float32) for n, v in data.items()}
        exact = data["A"].astype(np.float64) @ data["B"].astype(np.float64)
        for found in runs(made, data):
            assert found.shape == exact.shape
            assert np.linalg.norm(found - exact) <= 2e-7 * np.linalg.norm(exact)


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 66, 130])
def test_any_number_of_rows_has_the_accuracy_of_f32(rows: int) -> None:
    made = compiled(*NATURAL, late="M")
    assert "A_parts" in {k.name for k in made.modules["ma-tile"].kernels}
    rng = np.random.default_rng(rows)
    data = {"A": rng.standard_normal((rows, 77)), "B": rng.standard_normal((77, 70))}
    data = {n: v.astype(np.float32) for n, v in data.items()}
    exact = data["A"].astype(np.float64) @ data["B"].astype(np.float64)
    for found in runs(made, data):
        assert found.shape == exact.shape
        assert np.linalg.norm(found - exact) <= 2e-7 * np.linalg.norm(exact)


def test_inf_and_nan_and_small_and_large_numbers() -> None:
    made, data = compiled(*NATURAL, "max(S[i, j], 0.0) + 1.0"), operands(*NATURAL)
    a, b = data["A"], data["B"]
    a[1, 2], a[3, 4], b[5, 6], b[2, 7] = np.inf, np.nan, -np.inf, 0.0
    a[8, 9], b[9] = np.finfo(np.float32).max, 2.0**-60
    a[10, 11], b[11] = 1e-40, 2.0**100
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
        want = np.where(np.isnan(exact), exact, np.maximum(exact, 0.0)) + 1.0
        terms = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64) + 1.0
    assert np.isnan(want[1, 7]) and np.isinf(want).any()
    for found in runs(made, data):
        finite = np.isfinite(want)
        np.testing.assert_array_equal(found[~finite], want[~finite])
        assert np.max(np.abs(found[finite] - want[finite]) / terms[finite]) < 1e-6
