"""``specialise-warps``: the reasons for which a kernel has no roles. What the pass does: ``specialise_warps.ma``."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.ma_tile.passes.copies.specialise_warps import obstacle
from tests.ir_files import cases_in, input_of

CASES = cases_in(Path(__file__).with_name("specialise_warps.ma"))


@pytest.mark.parametrize(
    ("title", "reason"),
    [
        ("an address that threads compute", "depends on computed values"),
        ("an address that threads compute, in a variable", "depends on computed values"),
        ("a barrier of the whole block", "Barrier needs all threads of the block"),
    ],
)
def test_the_reason_is_told(title: str, reason: str) -> None:
    (kernel,) = input_of(CASES[title]).kernels
    assert reason in (obstacle(kernel) or "")
