"""Computed operands of warp MMAs become fragments of runs, and the loaded operand beside them too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.errors import VerifyError
from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.instruction_tables import a_layout, b_layout
from nautilus.ma_tile.ir.ops import Frag, GlobalLoad, MemKernel, MemModule, MmaOp, Slot, walk_ops
from nautilus.ma_tile.verify.module import verify

TEXT = """
dim M = 5, N = 64, K = 1024
input X: f16[M, K], W: i8[{shape}]
output Y: f32[M, N]
Y[i, j] = sum[k](X[i, k] * W[{at}])
"""
OF_WARPS = Schedule(splits=(SplitPlan("Y", "k", 4, 64, 4),))


def compiled(shape: str = "N, K", at: str = "j, k") -> MemModule:
    text = TEXT.format(shape=shape, at=at)
    made = compile_file(Request(Path("w.naut"), "sm_90a", text=text, schedule=OF_WARPS, until="ma-tile"))
    module = made.modules["ma-tile"]
    assert isinstance(module, MemModule)
    return module


def product(kernel: MemKernel) -> MmaOp:
    return next(op for op in walk_ops(kernel.body) if isinstance(op, MmaOp))


def test_the_computed_operand_of_a_warp_has_the_rows_of_an_mma() -> None:
    module = compiled()
    (kernel,) = module.kernels
    op = product(kernel)
    assert isinstance(op.a, Frag) and isinstance(op.b, Frag)
    a, b = kernel.layouts[op.a.layout], kernel.layouts[op.b.layout]
    assert a == a_layout(op.instr, "j", "k", (32, 64), (1, 1), runs=True)
    assert b == b_layout(op.instr, "k", "i", (64, 16), (1, 1), runs=True)
    assert not any(s.dtype is DType.F16 and {"j", "k"} <= {x.name for x in s.axes} for s in kernel.smem)
    mixed = {**kernel.layouts, op.b.layout: b_layout(op.instr, "k", "i", (64, 16), (1, 1))}
    with pytest.raises(VerifyError, match=r"fragments are in the instruction's layout|vector"):
        verify(replace(module, kernels=(replace(kernel, layouts=mixed),)))


def test_an_operand_that_is_contiguous_across_the_terms_has_no_runs() -> None:
    (kernel,) = compiled("K, N", "k, j").kernels
    assert isinstance(product(kernel).b, Slot)


def test_products_without_matrix_instructions_have_no_runs() -> None:
    text = """
        dim M = 64, K = 8
        input A: f32[M, K], B: f32[K, M]
        output C: f32[M, M]
        C[i, j] = sum[k](A[i, k] * abs(B[k, j]))
    """
    made = compile_file(Request(Path("f.naut"), "sm_80", text=text, precision="strict", until="ma-tile"))
    assert product(made.modules["ma-tile"].kernels[0]).instr == "fma"


def test_elements_that_a_table_has_for_computed_places_are_fragments_of_runs() -> None:
    """The places are loaded by vectors along the terms, and a row of the table has one line."""
    text = """
        dim M = 5, N = 64, K = 1024
        input X: f16[M, K], W: u8[N, K], table: f16[N, 8]
        output Y: f32[M, N]
        Y[i, j] = sum[k](X[i, k] * table[j, i32(W[j, k]) % 8])
    """
    made = compile_file(Request(Path("w.naut"), "sm_90a", text=text, schedule=OF_WARPS, until="ma-tile"))
    (kernel,) = made.modules["ma-tile"].kernels
    op = product(kernel)
    assert isinstance(op.a, Frag) and isinstance(op.b, Frag)
    assert [x.vec for x in walk_ops(kernel.body) if isinstance(x, GlobalLoad) and x.buffer == "W"] == [16]
    assert not any(s.dtype is DType.F16 and {"j", "k"} <= {x.name for x in s.axes} for s in kernel.smem)
