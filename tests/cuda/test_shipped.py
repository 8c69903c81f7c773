"""Every shipped spec, with its default schedule, for every target: it compiles, fits the machine and can be read.

NVRTC needs no GPU, so this checks registers, spills and shared memory everywhere.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from nautilus.cuda.intrinsics import HELPERS
from nautilus.driver import Request, Result, compile_file
from nautilus.runtime.nvrtc import compile_cuda
from nautilus.targets.limits import limits
from nautilus.targets.records import TARGETS
from tests.cuda.text.readable import faults
from tests.shipped import IDS, SPECS

QUICK = {"sm_80", "sm_90"}
TWICE = "sm_80"


def compiled(spec: Path, arch: str) -> Result:
    return first(spec) if arch == TWICE else compile_file(Request(spec, arch))


@cache
def first(spec: Path) -> Result:
    """``spec`` for the target for which it is compiled twice."""
    return compile_file(Request(spec, TWICE))


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
@pytest.mark.parametrize("arch", [a if a in QUICK else pytest.param(a, marks=pytest.mark.slow) for a in TARGETS])
def test_fits_the_machine(spec: Path, arch: str) -> None:
    result = compiled(spec, arch)
    kernels = result.modules["ma-tile"].kernels
    assert not faults(result.cuda, result.modules["spec"])
    built = compile_cuda(result.cuda, arch)
    assert built.data.startswith(b"\x7fELF")
    assert len(built.resources) == len(kernels)
    limit = limits(arch)
    for kernel, used in zip(kernels, built.resources, strict=True):
        assert used.kernel.endswith(f"__{kernel.name}")
        assert (used.spill_stores, used.spill_loads, used.stack_bytes) == (0, 0, 0)
        shared = kernel.smem_bytes + used.shared_bytes
        threads = 32 * kernel.warps
        assert shared <= limit.smem_block
        assert threads <= limit.threads_block
        assert used.registers <= limit.registers_thread
        # what a block is promised must leave room for as many blocks as the schedule asks for
        registers = -(-used.registers // 8) * 8 * threads
        assert kernel.min_blocks * registers <= limit.registers_sm
        assert kernel.min_blocks * threads <= limit.threads_sm
        assert kernel.min_blocks * (shared + 1024) <= limit.smem_sm  # 1 KB a block is the system's


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_the_file_is_the_same_twice_and_holds_nothing_unused(spec: Path) -> None:
    text = first(spec).cuda
    assert text == compile_file(Request(spec, TWICE)).cuda
    assert not unused(text)
    assert max(map(len, text[: text.index("typedef")].splitlines())) <= 120
    assert text.isascii() and text.endswith("#endif\n") and "\t" not in text


def unused(text: str) -> list[str]:
    """Device helpers that are defined in ``text`` and called nowhere."""
    return [h for h in HELPERS if 0 < len(re.findall(rf"\b{h}\b", text)) < 2]


def test_the_check_for_unused_helpers_works() -> None:
    assert unused(HELPERS["pack_f16"].text) == ["pack_f16"]
    assert unused(HELPERS["pack_f16"].text + "y = pack_f16(a, b);") == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("const float x = " + "y + " * 40 + "y;", "characters"),
        ("u32 v13[32];", "no name"),
        ("float x = smem + 1024;", "a number for a place"),
        ("u32 phase = 0;", "not read: phase"),
        ("u32 phase = 0;\n    phase ^= 1;", "not read: phase"),
        ("x[r] = m[r] - -inf;", "arithmetic on an infinity"),
        ("x[r] = binade(-inf);", "arithmetic on an infinity"),
        ("m[r] = -inf;\n    x[r] = fmaxf(m[r], y[r]);", "arithmetic on an infinity"),
    ],
)
def test_the_check_of_what_is_read_works(line: str, fault: str) -> None:
    text = 'extern "C" __global__ void k() {\n    %s\n}\n'
    assert any(f.startswith(fault) or fault in f for f in faults(text % line))
    assert not faults(text % "m[r] = -inf;\n    m[r] = fmaxf(m[r], y[r]);\n    x[r] = found ? m[r] : -inf;")
