"""The printed CUDA of warpgroup MMAs and TMA copies: ptxas takes it whole; lines in ``printed/*.ma``."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.cuda.emit import emit_module
from nautilus.cuda.ops.wgmma import pieces
from nautilus.runtime.nvrtc import Compiled, compile_cuda
from tests.cuda.test_shipped import unused
from tests.ir_files import cases_in, output_of

FILES = [Path(__file__).parent / "printed" / name for name in ("wgmma.ma", "warpgroup.ma")]
PROGRAMS = {n: output_of(case) for path in FILES for n, case in cases_in(path).items()}


def built(text: str) -> Compiled:
    """Compiled for sm_90a; products that ptxas serialises are refused by ``compile_cuda`` itself."""
    done = compile_cuda(text, "sm_90a")
    assert "warning" not in done.log.lower() and "(C7" not in done.log, done.log
    assert all(r.spill_stores == r.spill_loads == r.stack_bytes == 0 for r in done.resources), done.log
    return done


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_repeats_and_holds_nothing_unused(name: str) -> None:
    text = emit_module(PROGRAMS[name])
    assert text == emit_module(PROGRAMS[name])
    assert unused(text) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiles_without_a_spill(name: str) -> None:
    built(emit_module(PROGRAMS[name]))


@pytest.mark.parametrize(
    ("columns", "step", "expected"),
    [
        (8, 8, [(0, 8)]),
        (256, 64, [(0, 256)]),
        (264, 8, [(0, 136), (136, 128)]),
        (320, 8, [(0, 160), (160, 160)]),
        (320, 64, [(0, 192), (192, 128)]),
        (288, 16, [(0, 144), (144, 144)]),
        (512, 64, [(0, 256), (256, 256)]),
        (576, 64, [(0, 192), (192, 192), (384, 192)]),
    ],
)
def test_pieces(columns: int, step: int, expected: list[tuple[int, int]]) -> None:
    assert pieces(columns, step) == expected
