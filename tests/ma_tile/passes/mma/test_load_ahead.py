"""load-ahead chooses by price, the predicted time of the finished module."""

from pathlib import Path

import pytest

from nautilus.ma_tile.ir.ops import ForOp, MemModule, walk_ops
from nautilus.ma_tile.passes.mma.load_ahead import LoadAhead
from nautilus.ma_tile.text import parse

PROGRAM = Path(__file__).parents[2] / "inputs" / "computed_operand.ma"


def carried(module: MemModule) -> int:
    """The number of values that the loop of ``module`` carries."""
    (loop,) = (op for op in walk_ops(module.kernels[0].body) if isinstance(op, ForOp))
    return len(loop.carried)


@pytest.fixture
def module() -> MemModule:
    return parse(PROGRAM.read_text(), "product")


@pytest.mark.parametrize(
    "times, loads",
    [
        ({1: 1.0, 2: 0.5, 3: 0.51}, 1),
        ({1: 1.0, 2: 0.8, 3: 0.5}, 2),
        ({1: 1.0, 2: 1.0, 3: 1.0}, 0),
    ],
)
def test_the_cheapest_room(module: MemModule, times: dict[int, float], loads: int) -> None:
    made = LoadAhead(lambda m: times[carried(m)], (1, 16)).apply(module)
    assert carried(made) == 1 + loads


def test_without_a_price_the_largest_room(module: MemModule) -> None:
    assert carried(LoadAhead(None, (1, 16)).apply(module)) == 3
