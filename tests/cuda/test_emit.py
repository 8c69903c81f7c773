"""The printed CUDA of small MA-tile modules: required and forbidden lines, and compilation."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from nautilus.cuda.emit import emit_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text.printer import parse
from nautilus.ma_tile.verify.module import verify
from nautilus.runtime.nvrtc import compile_cuda
from tests.cuda.printed.small import COPY_MASKED, PRINTED
from tests.cuda.test_shipped import unused


def module(text: str | MemModule) -> MemModule:
    m = parse(text) if isinstance(text, str) else text
    verify(m)
    return m


@pytest.mark.parametrize("name", PRINTED)
def test_text(name: str, filecheck: Callable[..., None]) -> None:
    m = module(PRINTED[name][0])
    text = emit_module(m)
    filecheck(text, PRINTED[name][1])
    assert text == emit_module(m)
    assert unused(text) == []


@pytest.mark.parametrize("name", PRINTED)
def test_compiles_without_a_warning(name: str) -> None:
    built = compile_cuda(emit_module(module(PRINTED[name][0])), "sm_80")
    assert "warning" not in built.log.lower(), built.log
    assert all(r.spill_stores == r.spill_loads == 0 for r in built.resources)


def test_a_header_is_a_comment() -> None:
    text = emit_module(module(PRINTED["run"][0]), ("one", "", "three"))
    assert text.startswith("// one\n//\n// three\n")


def test_masked_copies_read_nothing_and_write_zeros(filecheck: Callable[..., None]) -> None:
    text = emit_module(module(COPY_MASKED))
    filecheck(text, 'CHECK: "r"(active ? 16 : 0)\nCHECK: cp_async_16(shared + {{.*}}, X + {{.*}}, {{.*}} < 77);')


def test_the_op_says_whether_an_instruction_is_approximate() -> None:
    exact, approximate = (
        emit_module(module(PRINTED["reduce"][0].replace("exp %d", f"{name} %d"))) for name in ("exp2", "exp2_approx")
    )
    assert "ex2.approx" in approximate and "ex2.approx" not in exact and "exp2f(" in exact


def test_no_index_is_computed_that_nobody_reads() -> None:
    for name, (text, _) in PRINTED.items():
        body = emit_module(module(text)).split("__global__")[1].split("#ifndef")[0]
        for declared in re.findall(r"^    const int (\w+) =", body, re.M):
            assert len(re.findall(rf"\b{declared}\b", body)) > 1, (name, declared)
