"""Instructions of functions of positions."""

from __future__ import annotations

import pytest

from nautilus.core.text.expressions import parse_expr
from nautilus.cost.instructions import index_slots
from nautilus.ma_tile.ir.layout import FragLayout, Mode

#: 64 registers of a thread: two rows of i, 32 positions of j in pairs that are 8 apart
ACCUMULATOR = FragLayout(
    (Mode(2, "j", 1), Mode(2, "i", 8), Mode(16, "j", 8)), (Mode(4, "j", 2), Mode(8, "i", 1)), (Mode(4, "i", 16),)
)


@pytest.mark.parametrize(
    ("text", "slots", "integer"),
    [
        ("j <= i", 64, 64),
        ("i < 5", 2, 2),  # there are two rows
        ("0 <= i - j and i - j < 9 and (i - j) % 4 == 0", (1 + 2 + 2) * 64, (0.5 + 2 + 2) * 64),
        ("abs(i // 7 - j // 7) < 3 and abs(i % 7 - j % 7) < 3", 4 * 64 + 7 * 2 + 7 * 32, 3 * 64 + 2 * 2 + 2 * 32),
        ("(j // 7) % 7 < 3", (3 + 4 + 1) * 32, 3 * 32),
        ("(j // 8) % 7 < 3", (4 + 1) * 32, 2 * 32),  # the quotient is a digit of the registers
    ],
)
def test_slots_of_a_function_of_positions(text: str, slots: float, integer: float) -> None:
    assert index_slots(parse_expr(text), ACCUMULATOR, 1) == (slots, integer)
