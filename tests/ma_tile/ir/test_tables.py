"""Every op has its verifier rule, interpreter, emitter, lowering and cost: the tables of the level lack none."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from nautilus.core.types import DType
from nautilus.cost import work
from nautilus.cost.instructions import FREE
from nautilus.cuda import emit
from nautilus.cuda.ops import elementwise
from nautilus.ma_tile.interp import block
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA, WITHOUT_WGMMA, check_instructions, has_types
from nautilus.ma_tile.ir.values import MA
from nautilus.ma_tile.verify.module import RULES

CLASSES = {cls.__name__: cls for cls in MA.ops}


def cases(f: Callable[..., Any]) -> set[type]:
    """The ops that ``f`` has a case for."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(f)))
    found = [ast.unparse(n.cls).split(".")[-1] for n in ast.walk(tree) if isinstance(n, ast.MatchClass)]
    return {CLASSES[name] for name in found if name in CLASSES}


def test_verifier_and_interpreter() -> None:
    assert set(RULES) == set(MA.ops)
    own = cases(block.BlockRun._control) | {CLASSES["BreakOp"]}
    assert own == set(block._CONTROL) | {CLASSES["TmaLoad"]}
    assert set(block.DATA) | set(block._CONTROL) == set(MA.ops)


def test_emitter() -> None:
    runs = set(get_args(elementwise.Elementwise))
    assert set(emit._PRINTERS) | runs == set(MA.ops) and not set(emit._PRINTERS) & runs


def test_an_element_type_without_instruction_is_an_error() -> None:
    check_instructions("WGMMA", WGMMA, WITHOUT_WGMMA)
    with pytest.raises(TypeError, match="WGMMA: missing or listed twice: bool"):
        check_instructions("WGMMA", WGMMA, WITHOUT_WGMMA - {DType.BOOL})
    with pytest.raises(TypeError, match="WGMMA: missing or listed twice: f16"):
        check_instructions("WGMMA", WGMMA, WITHOUT_WGMMA | {DType.F16})
    shallow = {**WGMMA, "wgmma.f16": replace(WGMMA["wgmma.f16"], k=8)}
    with pytest.raises(TypeError, match=r"WGMMA: wgmma\.f16 does not fit elements of f16"):
        check_instructions("WGMMA", shallow, WITHOUT_WGMMA)
    integers = {**WGMMA, "wgmma.s8": replace(WGMMA["wgmma.s8"], acc=DType.F32)}
    with pytest.raises(TypeError, match=r"WGMMA: wgmma\.s8 has sums of f32"):
        check_instructions("WGMMA", integers, WITHOUT_WGMMA)
    wide = {**MMA, "m16n8k16.f16": replace(MMA["m16n8k16.f16"], n=16)}
    with pytest.raises(TypeError, match=r"MMA: m16n8k16\.f16 has the shape 16 x 16 x 16"):
        check_instructions("MMA", wide, WITHOUT_WGMMA - {DType.F32, DType.F64})


def test_cost() -> None:
    inside = cases(work.Counter.block)
    assert inside == set(work._WITH_BODIES)
    assert set(work._COUNTED) | inside | FREE == set(MA.ops)
    assert not set(work._COUNTED) & (inside | FREE) and not inside & FREE


def test_a_missing_entry_is_an_error() -> None:
    table = dict.fromkeys(MA.ops)
    MA.complete(table, "a table")
    del table[CLASSES["ClusterWait"]]
    with pytest.raises(TypeError, match="ma-tile: a table: missing or unknown: ClusterWait"):
        MA.complete(table, "a table")


_IMPORT = """
import importlib, sys
import nautilus.ma_tile.ir.ops
from nautilus.core.ops import Effect, op
from nautilus.ma_tile.ir.values import MA
from nautilus.vr_tile.ir import VR

for level in (MA, VR):
    op(level, "extra.op", Effect.FENCE)(type("Extra", (), {}))
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except TypeError as error:
        print(error)
"""


def test_an_op_without_entries_is_an_error_at_the_import_of_each_table() -> None:
    tables = {
        "ma_tile.verify.module": "ma-tile: verifier rules", "ma_tile.interp.block": "ma-tile: interpreter",
        "cuda.emit": "ma-tile: printers", "cost.work": "ma-tile: costs",
        "vr_tile.verify": "vr-tile: verifier rules", "vr_tile.interp": "vr-tile: interpreter",
        "ma_tile.lowering.ops": "vr-tile: lowering to MA-tile IR",
    }  # fmt: skip
    names = [f"nautilus.{name}" for name in tables]
    done = subprocess.run([sys.executable, "-c", _IMPORT, *names], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{what}: missing or unknown: Extra" for what in tables.values()]


def test_an_instruction_has_types_of_both_operands_and_of_the_sum() -> None:
    f16 = WGMMA["wgmma.f16"]
    assert has_types(f16, DType.F16, DType.F16, DType.F32)
    assert not has_types(f16, DType.BF16, DType.BF16, DType.F32)
    assert not has_types(f16, DType.BF16, DType.F16, DType.F32)
    assert not has_types(f16, DType.F16, DType.BF16, DType.F32)
    assert not has_types(f16, DType.F16, DType.F16, DType.I32)
    mixed = WGMMA["wgmma.u8.s8"]
    assert has_types(mixed, DType.U8, DType.I8, DType.I32) and not has_types(mixed, DType.I8, DType.U8, DType.I32)
    assert not has_types(mixed, DType.I8, DType.I8, DType.I32)
