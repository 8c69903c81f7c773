"""The programs in ``inputs/``, from which cases of several files start, are those of functions in ``programs/``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nautilus.core.schedule import WarpPlan
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from tests.ma_tile.lowering.support import pipelined
from tests.ma_tile.programs import plain
from tests.ma_tile.programs.combined import ALIKE, PAIR
from tests.ma_tile.programs.epilogues import biased, gated
from tests.ma_tile.programs.kernels import chained, product
from tests.ma_tile.programs.products import backward, one_pipeline
from tests.ma_tile.programs.products import chained as rescaled
from tests.ma_tile.programs.tiles import GATED, matmul

STAGES = WarpPlan(warps=(2, 1), stages=3)
FOLDER = Path(__file__).parent / "inputs"
INPUTS: dict[str, Callable[[], MemModule]] = {
    "product": product,
    "product_one_consumer": lambda: product(m=512, consumers=1),
    "product_three_consumers": lambda: product(m=384, consumers=3),
    "product_columns": lambda: product(m=512, n=128),
    "product_256_columns": lambda: product(m=128, n=256, cols=256),
    "chained": chained,
    "chained_ahead": lambda: chained(ahead=True),
    "chained_one_consumer": lambda: chained(consumers=1),
    "rescaled": rescaled,
    "rescaled_two_loops": lambda: rescaled(("0", "1"), ("1", "4")),
    "rescaled_seams": lambda: rescaled(("b", "b + 2"), ("0", "b"), ("b + 2", "4"), masked=True),
    "rescaled_one_pipeline": one_pipeline,
    "backward": backward,
    "biased": biased,
    "biased_128_rows": lambda: biased(rows=128, m=256),
    "gated": gated,
    "pipelined": lambda: pipelined(matmul(64, 32, 192, 32, 32, 64), STAGES),
    "pipelined_gated": lambda: pipelined(GATED, STAGES),
    "sums": lambda: parse(PAIR),
    "sums_alike": lambda: parse(ALIKE),
    "copied": lambda: parse(ma_format(plain.gemm()).replace("sm_80", "sm_90a")),
}


@pytest.mark.parametrize("name", INPUTS)
def test_the_file_holds_what_the_function_makes(name: str, update_golden: bool) -> None:
    path, made = FOLDER / f"{name}.ma", INPUTS[name]()
    if update_golden:
        path.write_text(ma_format(made))
    assert parse(path.read_text(), str(path)) == made


def test_no_file_is_left_over() -> None:
    written_by_hand = {"computed_operand", "gathered", "packed_weights", "slopes", "three_kernels"}
    assert {p.stem for p in FOLDER.glob("*.ma")} == set(INPUTS) | written_by_hand
