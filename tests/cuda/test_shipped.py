"""Every shipped spec, with its default schedule, for every target: it compiles, fits the machine and can be read.

NVRTC needs no GPU, so this checks registers, spills and shared memory everywhere.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

import pytest

from nautilus.cuda.intrinsics import HELPERS
from nautilus.driver import Request, Result, compile_file
from nautilus.runtime.nvrtc import Compiled, compile_cuda
from nautilus.targets.limits import limits
from nautilus.targets.records import TARGETS
from tests.cuda.text.readable import faults
from tests.shipped import IDS, SPECS

QUICK = {"sm_80", "sm_90"}
TWICE = "sm_80"
#: targets with the same registers and, for what is printed for all of them, the same instructions
ALIKE = ("sm_80", "sm_86", "sm_87", "sm_89")


def compiled(spec: Path, arch: str) -> Result:
    return first(spec) if arch == TWICE else other(spec, arch)


@cache
def first(spec: Path) -> Result:
    """``spec`` for the target for which it is compiled twice."""
    return compile_file(Request(spec, TWICE))


@lru_cache(maxsize=len(ALIKE))
def other(spec: Path, arch: str) -> Result:
    """``spec`` for another target."""
    return compile_file(Request(spec, arch))


def code(text: str) -> str:
    """``text`` without its header, which names the target."""
    return text[text.index("typedef") :]


def assembled(spec: Path, arch: str) -> Compiled:
    """The machine code of ``spec``: that of the first target of :data:`ALIKE` whose text is the same."""
    wanted = code(compiled(spec, arch).cuda)
    before = ALIKE[: ALIKE.index(arch)] if arch in ALIKE else ()
    like = next((a for a in before if code(compiled(spec, a).cuda) == wanted), arch)
    return compile_cuda(compiled(spec, like).cuda, like)


@pytest.mark.parametrize("arch", [a if a in QUICK else pytest.param(a, marks=pytest.mark.slow) for a in TARGETS])
@pytest.mark.parametrize("spec", SPECS, ids=IDS)  # the targets of a spec follow each other
def test_fits_the_machine(spec: Path, arch: str) -> None:
    result = compiled(spec, arch)
    kernels = result.modules["ma-tile"].kernels
    assert not faults(result.cuda, result.modules["spec"])
    built = assembled(spec, arch)
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
