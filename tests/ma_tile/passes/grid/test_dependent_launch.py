"""Programmatic dependent launch: where the pass places the two ops, their rules, their text and the launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.errors import VerifyError
from nautilus.core.expr.nodes import Const
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.driver import Request, Result, compile_file
from nautilus.ma_tile.ir.dependent_launch import GridLaunchDependents, GridWait
from nautilus.ma_tile.ir.ops import IfOp, MemModule, MemOp
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from nautilus.runtime.execute import plan_of
from tests.endtoend.collection.decode import Decode

SHORT = Decode(1024, 128, batch=1, heads=64, group=8)  # few blocks in both kernels

DEPENDENCIES = (GridWait, GridLaunchDependents)


def compiled(given: Decode, arch: str = "sm_90a", schedule: Schedule | None = None) -> Result:
    return compile_file(Request(Path("given.naut"), arch, text=given.text, schedule=schedule))


def pdl(given: Decode, arch: str = "sm_90a") -> list[bool]:
    return [k.pdl for k in compiled(given, arch).modules["ma-tile"].kernels]


def test_where_each_block_has_a_multiprocessor_of_its_own() -> None:
    assert pdl(SHORT) == [False, True]
    assert pdl(SHORT, "sm_80") == [False, False]
    long = replace(SHORT, batch=8, n=16384)
    found = compiled(long).context.schedule
    assert found is not None
    apart = replace(found, kernels=tuple(replace(k, mapping=replace(k.mapping, cluster=1)) for k in found.kernels))
    kernels = compiled(long, schedule=apart).modules["ma-tile"].kernels
    assert [(k.blocks.value, k.pdl) for k in kernels] == [(128, False), (64, False)]


def test_the_switch() -> None:
    found = compiled(SHORT).context.schedule
    assert found is not None
    late = replace(
        found, kernels=tuple(replace(k, mapping=replace(k.mapping, dependent_launch=False)) for k in found.kernels)
    )
    assert not any(k.pdl for k in compiled(SHORT, schedule=late).modules["ma-tile"].kernels)


def test_text_and_launch() -> None:
    result = compiled(SHORT)
    module = result.modules["ma-tile"]
    text = ma_format(module)
    assert text.count("grid.launch_dependents") == text.count("grid.wait") == 1 and parse(text) == module
    front, behind = (part.split("\n}\n")[0] for part in result.cuda_module.code.split('extern "C" __global__')[1:3])
    assert "launch_dependents();" in front and "grid_wait();" not in front
    assert "grid_wait();" in behind and "launch_dependents();" not in behind
    body = behind.split("{", 1)[1]
    assert "_part" not in body[: body.index("grid_wait();")]  # nothing is read before
    assert "cudaLaunchKernelEx(&config, " in result.cuda_module.code
    assert [x.programmatic for x in plan_of(module).launches] == [False, True]


def refused(module: MemModule, rule: str) -> None:
    with pytest.raises(VerifyError, match=rule):
        verify(module)


def with_body(module: MemModule, n: int, body: Iterable[MemOp]) -> MemModule:
    kernels = list(module.kernels)
    kernels[n] = replace(kernels[n], body=tuple(body))
    return replace(module, kernels=tuple(kernels))


def test_the_ops_come_in_pairs() -> None:
    module = compiled(SHORT).modules["ma-tile"]
    front, behind = module.kernels
    verify(module)
    for n, k in ((0, front), (1, behind)):
        refused(with_body(module, n, k.body[1:]), "grid.wait follows grid.launch_dependents")
        refused(replace(module, kernels=(k,)), "grid.wait follows grid.launch_dependents")


def test_wait_stands_before_accesses_to_global_memory_once_at_the_top_level() -> None:
    module = compiled(SHORT).modules["ma-tile"]
    wait, *rest = module.kernels[1].body
    refused(with_body(module, 1, (*rest, wait)), "grid.wait stands before accesses to global memory")
    refused(with_body(module, 1, (wait, wait, *rest)), "a kernel has one of each op of a dependent launch")
    inside = IfOp(Const(True, DType.BOOL), (wait,))
    refused(with_body(module, 1, (inside, *rest)), "dependent launches stand at the top level")


def test_targets_below_the_hopper_class_are_refused() -> None:
    refused(replace(compiled(SHORT).modules["ma-tile"], target="sm_90"), "need a target of the Hopper class")
