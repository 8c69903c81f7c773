"""``store-shifted``: which products of f32 stay as they are."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.operands import store_shifted
from nautilus.scalar.passes.operands.store_shifted import StoreShifted

DIMS = "dim B = 2, C = 16, D = 20, K = 5, L = 9, R = 2, S = 3\n"
PLAIN = "input X: f32[B, L, C]\ninput F: f32[K, C, R]\noutput Y: f32[B, K, L - R + 1]\n"
SUM = "Y[b, k, x] = sum[c, r](X[b, x + r, c] * F[k, c, r])\n"


@pytest.fixture(autouse=True)
def _small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_ROWS", "_COLUMNS", "_AGAIN"):
        monkeypatch.setattr(store_shifted, name, 1)
    monkeypatch.setattr(store_shifted, "SHIFTED", 1.0)


def unchanged(text: str, arch: str = "sm_90a", precision: str = "fast") -> bool:
    before = lower(load_text(DIMS + text))
    return StoreShifted(arch, precision).apply(before) is before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("X[b, x + r, c]", "X[b, 2 * x + r - L + R, c]"),  # copies have unit steps along contiguous axes
        ("[c, r](", "[c, r | x + r < 3]("),  # a condition of its own
        ("X[b, x + r, c] * F[k, c, r]", "X[b, x + r, c] * F[k, c, r] * X[b, 0, c]"),
        ("X[b, x + r, c] * F[k, c, r]", "tanh(X[b, x + r, c]) * F[k, c, r]"),
        ("X[b, x + r, c]", "X[b, c, 2 * r]"),  # without rows
        ("X[b, x + r, c]", "X[b, c, x + r]"),  # boxes start at multiples of 16 bytes
    ],
)
def test_what_stays(old: str, new: str) -> None:
    assert old in SUM
    text = SUM.replace(old, new)
    plain = PLAIN.replace("B, L, C", "B, C, L") if "X[b, c," in text else PLAIN
    assert unchanged(
        plain + (text if "2 * x" not in new else text.replace("[c, r](", "[c, r | 0 <= 2 * x + r - L + R < L]("))
    )


def test_other_types_and_other_targets_stay() -> None:
    assert unchanged(PLAIN.replace("input X: f32", "input X: f16").replace("input F: f32", "input F: f16") + SUM)
    assert unchanged(PLAIN + SUM, arch="sm_80")
    assert unchanged(PLAIN + SUM, precision="strict")
    assert not unchanged(PLAIN + SUM)


def test_strides_stay() -> None:
    rows = "input X: f32[B, L, C]\ninput F: f32[R, C, K]\noutput Y: f32[B, 4, K]\n"
    text = "Y[b, x, k] = sum[r, c](X[b, {} + r, c] * F[r, c, k])\n"
    assert unchanged(rows + text.format("2 * x"))
    assert not unchanged(rows + text.format("x"))


def test_small_products_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_shifted, "_COLUMNS", 6)
    assert unchanged(PLAIN + SUM)
