"""The printed CUDA of warpgroup MMAs and TMA copies: what must be there, and that ptxas takes it whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nautilus.cuda.emit import emit_module
from nautilus.cuda.ops.wgmma import pieces
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text.printer import parse
from nautilus.ma_tile.verify.module import verify
from nautilus.runtime.nvrtc import Compiled, compile_cuda
from tests.cuda.printed.kernels import KERNELS
from tests.cuda.printed.warpgroup import PRODUCTS
from tests.cuda.test_shipped import unused

PROGRAMS = {name: (p.text, checks) for name, (p, checks) in PRODUCTS.items()} | KERNELS


def module(text: str) -> MemModule:
    m = parse(text)
    verify(m)
    return m


def built(text: str) -> Compiled:
    """Compiled for sm_90a; products that ptxas serialises are refused by ``compile_cuda`` itself."""
    done = compile_cuda(text, "sm_90a")
    assert "warning" not in done.log.lower() and "(C7" not in done.log, done.log
    assert all(r.spill_stores == r.spill_loads == r.stack_bytes == 0 for r in done.resources), done.log
    return done


@pytest.mark.parametrize("name", PROGRAMS)
def test_text(name: str, filecheck: Callable[..., None]) -> None:
    m = module(PROGRAMS[name][0])
    text = emit_module(m)
    filecheck(text, PROGRAMS[name][1])
    assert text == emit_module(m)
    assert unused(text) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiles_without_a_spill(name: str) -> None:
    built(emit_module(module(PROGRAMS[name][0])))


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
