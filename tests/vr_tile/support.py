"""Helpers of this folder: run both sides of a rewrite or a lowering on the same random inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from nautilus.core.buffers import Buffer, Space
from nautilus.core.types import DType
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.text import parse_program
from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.ir import TileModule, walk_ops
from nautilus.vr_tile.lowering.lower import lower
from nautilus.vr_tile.verify import verify


def random_input(b: Buffer, rng: np.random.Generator) -> Any:
    shape = tuple(e if isinstance(e, int) else 0 for e in b.shape)
    if b.dtype is DType.BOOL:
        return rng.random(shape) < 0.6
    if b.dtype.is_int:
        return rng.integers(0 if b.dtype is DType.U8 else -4, 5, shape)
    return np.round(rng.standard_normal(shape) * 64) / 64


def random_inputs(buffers: tuple[Buffer, ...], seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {b.name: random_input(b, rng) for b in buffers if b.space is Space.INPUT}


def lowered(source: str, vector_dots: bool = False) -> TileModule:
    """The lowering of a tiled program, verified and printed and parsed back."""
    m = lower(parse_program(source), vector_dots)
    verify(m)
    assert text.parse(text.format(m)) == m
    return m


def assert_same(want: dict[str, Any], got: dict[str, Any], tolerance: float = 1e-9) -> None:
    assert want.keys() == got.keys()
    for name, w in want.items():
        np.testing.assert_allclose(got[name], w, rtol=tolerance, atol=tolerance, err_msg=name)


def check_lowering(source: str, inputs: dict[str, Any] | None = None, **options: bool) -> TileModule:
    """Lower and compare with the Scalar interpreter; gives the module."""
    p: Program = parse_program(source)
    m = lowered(source, **options)
    data = random_inputs(p.buffers) | (inputs or {})
    assert_same(run_program(p, data), run_module(m, data))
    return m


def check_pass(
    m: TileModule, *passes: Any, tolerance: float = 1e-9, inputs: dict[str, Any] | None = None
) -> TileModule:
    """Apply the passes; each result must verify, survive its text form and compute the same."""
    data = random_inputs(m.buffers) | (inputs or {})
    want = run_module(m, data)
    for p in passes:
        m = p.apply(m)
        verify(m)
        assert text.parse(text.format(m)) == m
        assert_same(want, run_module(m, data), tolerance)
        assert p.apply(m) == m or p.name == "fold-scale", f"{p.name} is not idempotent"
    return m


def ops(m: TileModule) -> list[str]:
    """Class or operation name of every op."""
    return [getattr(op, "op", type(op).__name__) for k in m.kernels for op in walk_ops(k.body)]


BUFFERS = "input X: f32[4, 8]\ninput R: f32[4]\noutput O: f32[4, 8]\noutput S: f32[4]\nparam p: f32 = 0.5"


def module(body: str, grid: str = "", buffers: str = BUFFERS) -> TileModule:
    m = text.parse(f"module t {{\n{buffers}\nkernel k grid({grid}) axes(i: 4, j: 8) {{\n{body}\n}} }}")
    verify(m)
    return m


LOAD = """
  %x = load X[i, j] : f32[i: 4, j: 8]
  %r = load R[i] : f32[i: 4]
"""


def elementwise(body: str) -> TileModule:
    """A module that stores ``%y``, made of ``%x`` (i, j) and ``%r`` (i)."""
    return module(f"{LOAD}{body}\n  store O[i, j], %y\n  store S[i], %r")


def row(body: str) -> TileModule:
    """A module that stores ``%y`` over ``i``."""
    return module(f"{LOAD}{body}\n  store O[i, j], %x\n  store S[i], %y")


def body_of(m: TileModule) -> str:
    return "\n".join(line for line in text.format(m).splitlines() if " = " in line or "store" in line)
