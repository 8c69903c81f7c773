"""Every op has its verifier rule, interpreter, emitter and cost: the tables of the level lack none."""

from __future__ import annotations

import ast
import inspect
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
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA, WITHOUT_WGMMA, check_instructions
from nautilus.ma_tile.ir.values import MA
from nautilus.ma_tile.verify.module import rules

CLASSES = {cls.__name__: cls for cls in MA.ops}


def cases(f: Callable[..., Any]) -> set[type]:
    """The ops that ``f`` has a case for."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(f)))
    found = [ast.unparse(n.cls).split(".")[-1] for n in ast.walk(tree) if isinstance(n, ast.MatchClass)]
    return {CLASSES[name] for name in found if name in CLASSES}


def test_verifier_and_interpreter() -> None:
    assert set(rules()) == set(MA.ops)
    own = cases(block.BlockRun._control) | {CLASSES["BreakOp"]}
    assert own == set(block._CONTROL) | {CLASSES["TmaLoad"]}
    assert set(block._DATA) | set(block._CONTROL) == set(MA.ops)


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
    counted = cases(work.Counter.block) | cases(work.Counter.leaf)
    assert counted | FREE == set(MA.ops)
    assert counted & FREE == {CLASSES[n] for n in ("Barrier", "ClusterArrive")}


def test_a_missing_entry_is_an_error() -> None:
    table = dict.fromkeys(MA.ops)
    MA.complete(table, "a table")
    del table[CLASSES["ClusterWait"]]
    with pytest.raises(TypeError, match="ma-tile: a table: missing or unknown: ClusterWait"):
        MA.complete(table, "a table")
