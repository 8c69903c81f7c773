"""Kernels that are launched while the one in front of them still runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.errors import VerifyError
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, Result, compile_file
from nautilus.ma_tile.text.parser import parse
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.verify.module import verify
from nautilus.runtime.execute import plan_of
from tests.endtoend.collection.decode import Decode

SHORT = Decode(1024, 128, batch=1, heads=64, group=8)  # few blocks in both kernels


def compiled(given: Decode, arch: str = "sm_90a", schedule: Schedule | None = None) -> Result:
    return compile_file(Request(Path("given.naut"), arch, text=given.text, schedule=schedule))


def pdl(given: Decode, arch: str = "sm_90a") -> list[bool]:
    return [k.pdl for k in compiled(given, arch).modules["ma-tile"].kernels]


def test_where_both_kernels_have_multiprocessors_of_their_own() -> None:
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
    assert " pdl {" in ma_format(module) and parse(ma_format(module)) == module
    front, behind = (part.split("\n}\n")[0] for part in result.cuda.split('extern "C" __global__')[1:3])
    assert "let_next_kernel_launch();" in front and "wait_for_kernel_in_front();" not in front
    assert "wait_for_kernel_in_front();" in behind and "let_next_kernel_launch();" not in behind
    body = behind.split("{", 1)[1]
    assert "_part" not in body[: body.index("wait_for_kernel_in_front();")]  # nothing is read before
    assert "cudaLaunchKernelEx(&config, " in result.cuda
    assert [x.programmatic for x in plan_of(module).launches] == [False, True]


@pytest.mark.parametrize(("target", "kernels"), [("sm_90a", slice(1, 2)), ("sm_90", slice(0, 2))])
def test_nothing_in_front_and_targets_that_cannot_are_refused(target: str, kernels: slice) -> None:
    module = compiled(SHORT).modules["ma-tile"]
    with pytest.raises(VerifyError, match="a pdl kernel follows another kernel"):
        verify(replace(module, target=target, kernels=module.kernels[kernels]))
