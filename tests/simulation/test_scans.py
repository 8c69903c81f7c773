"""The printed text of scans: combiners and types, both directions, digits of registers, lanes and warps."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request
from nautilus.ma_tile.ir.ops import ScanOp, walk_ops
from nautilus.scalar.analysis.states import scan_tile
from tests.simulation.compared import differences, prepare
from tests.simulation.simulate import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

#: title -> sizes, shape of the input, index of an element at k, type, definition
CASES = {
    "rows": ("M = 2, N = 4096", "M, N", "f32", "f32", "Y[i, j] = sum[k | k <= j](X[i, k])"),
    "rows from the end": ("M = 2, N = 1501", "M, N", "f32", "f32", "Y[i, j] = sum[k | k >= j](X[i, k])"),
    "several rows": ("M = 9, N = 200", "M, N", "f16", "f32", "Y[i, j] = max[k | k < j](X[i, k])"),
    "one warp": ("M = 3, N = 20", "M, N", "i8", "i32", "Y[i, j] = prod[k | k > j](i32(X[i, k]))"),
    "columns": ("M = 100, N = 40", "M, N", "f32", "f32", "Y[j, i] = sum[k | k <= j](X[k, i])"),
    "columns from the end": ("M = 33, N = 70", "M, N", "f64", "f64", "Y[j, i] = sum[k | k > j](X[k, i])"),
    "any": ("M = 3, N = 1000", "M, N", "i8", "bool", "Y[i, j] = any[k | k <= j](X[i, k] > 5)"),
    "a recurrence over warps": (
        "M = 2, N = 4096", "M, N", "f32", "f32",
        "recur Y[i, j] = (0 if X[i, j] > 3 else -Y[i, j - 1]) + X[i, j] if j > 0 else X[i, 0]",
    ),
    "a recurrence of several rows, from the end": (
        "M = 6, N = 77", "M, N", "i8", "i32", "recur Y[i, j] = X[i, j] - (3 * Y[i, j + 1] if j < N - 1 else 0)",
    ),
    "a recurrence in f64": (
        "M = 1, N = 1500", "M, N", "f64", "f64", "recur Y[i, j] = X[i, j] + (-Y[i, j - 1] if j > 0 else 0)",
    ),
    "a filter over warps": (
        "M = 2, N = 4096", "M, N", "f32", "f32",
        "recur Y[i, j] = X[i, j] + (Y[i, j - 1] if j > 0 else 0) - (Y[i, j - 2] if j > 1 else 0)",
    ),
    "states with a matrix of each step, from the end": (
        "M = 6, N = 333", "M, N", "f32", "f32",
        "recur {\n  Y[i, j] = X[i, j] + ((Z[i, j + 1] if X[i, j] > 3 else -Z[i, j + 1]) if j < N - 1 else 0)\n"
        "  Z[i, j] = (Y[i, j + 1] if X[i, j] < 5 else -Y[i, j + 1]) if j < N - 1 else 0\n}",
    ),
    "matrices that are too large": (
        "M = 1, N = 1500", "M, N", "f64", "f64",
        "recur Y[i, j] = X[i, j] + ((2 if X[i, j] < 100 else 3) * Y[i, j - 1] if j > 0 else 0) - "
        "(Y[i, j - 2] if j > 1 else 0)",
    ),
    "a row in tiles that follow each other": (
        "M = 1, N = 8200", "M, N", "f32", "f32",
        "recur Y[i, j] = (0 if X[i, j] > 3 else -Y[i, j - 1]) + X[i, j] if j > 0 else X[i, 0]",
    ),
    "columns in tiles that follow each other": (
        "M = 150, N = 33", "M, N", "f32", "f32",
        "recur Y[j, i] = X[j, i] - (Y[j - 1, i] if j > 0 else 0)",
    ),
    "columns with resets, from the end": (
        "M = 130, N = 40", "M, N", "f16", "f32",
        "recur Y[j, i] = (0 if X[j, i] > 3 else -Y[j + 1, i]) + X[j, i] if j < M - 1 else X[M - 1, i]",
    ),
    "a filter of columns": (
        "M = 130, N = 20", "M, N", "f32", "f32",
        "recur Y[j, i] = X[j, i] + (Y[j - 1, i] if j > 0 else 0) - (Y[j - 2, i] if j > 1 else 0)",
    ),
    "columns with a running maximum, which is read at the step before": (
        "M = 75, N = 33", "M, N", "f32", "f32",
        "recur {\n  K[j, i] = max(X[j, i], K[j - 1, i]) if j > 0 else X[0, i]\n"
        "  Y[j, i] = X[j, i] + ((Y[j - 1, i] if K[j - 1, i] == K[j, i] else -Y[j - 1, i]) if j > 0 else 0)\n}",
    ),
    "states of columns with a matrix of each step, from the end": (
        "M = 75, N = 33", "M, N", "f32", "f32",
        "recur {\n  Y[j, i] = X[j, i] + ((Z[j + 1, i] if X[j, i] > 3 else -Z[j + 1, i]) if j < M - 1 else 0)\n"
        "  Z[j, i] = (Y[j + 1, i] if X[j, i] < 5 else -Y[j + 1, i]) if j < M - 1 else 0\n}",
    ),
    "matrices of columns that are too large": (
        "M = 75, N = 9", "M, N", "f64", "f64",
        "recur Y[j, i] = X[j, i] + ((2 if X[j, i] < 100 else 3) * Y[j - 1, i] if j > 0 else 0) - "
        "(Y[j - 2, i] if j > 1 else 0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_scans(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_tile, "ELEMENTS", 512)  # several tiles of few steps
    sizes, shape, given, out, body = CASES[name]
    text = f"dim {sizes}\ninput X: {given}[{shape}]\noutput Y: {out}[{shape}]\n{body}\n"
    unpriced = frozenset({"scan-tiles", "scan-recurrences"} if "step before" in name else {"scan-tiles"})
    case = prepare(Request(Path("given.naut"), "sm_90a", text=text, unpriced=unpriced), integers=True)
    assert any(isinstance(op, ScanOp) for op in walk_ops(case.module.kernels[0].body))
    number = list(CASES).index(name)
    found = differences(case, sorted({0, 1 + number % 4}), tmp_path)
    assert not found, "\n".join(found)
