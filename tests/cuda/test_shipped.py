"""Every shipped spec, with its default schedule, for every target: it compiles, fits the machine and can be read.

NVRTC needs no GPU, so this checks registers, spills and shared memory everywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from nautilus.cuda.intrinsics import HELPERS
from nautilus.driver import Request, Result, compile_file, compile_variant
from nautilus.runtime.nvrtc import Compiled, compile_cuda
from nautilus.targets.limits import limits
from nautilus.targets.records import TARGETS
from tests.cuda.text.readable import faults
from tests.shipped import IDS, SPECS

QUICK = {"sm_80", "sm_90"}
WHOLE = "sm_80"  # for which the text has its header, which takes longer to find than the rest
TWICE = 4  # one of this many specs is compiled for it once more, and another one for a target that shares modules
SHARED = "sm_90"
#: of which the verifiers run after every pass; of the others they run on the last module, which has their limits
VERIFIED = {"sm_80", "sm_90a"}
#: these targets have the same registers and, for what is printed for all of them, the same instructions
ALIKE = ("sm_80", "sm_86", "sm_87", "sm_89")
APART = tuple((target,) for target in TARGETS if target not in ALIKE)
GROUPS = (ALIKE, *(g for g in APART if g[0] not in VERIFIED), *(g for g in APART if g[0] in VERIFIED))
_last: list[Path] = []  # the spec that was compiled before


def compiled(spec: Path, arch: str) -> Result:
    """Targets of one spec follow each other: where verifiers wait for the last module, they share what is equal."""
    again = _last == [spec]
    _last[:] = [spec]
    if arch in VERIFIED or not again:
        return compile_file(Request(spec, arch, verified_later=arch not in VERIFIED))
    return compile_variant(Request(spec, arch, verified_later=True))


def test_every_target_has_a_group() -> None:
    assert {a for group in GROUPS for a in group} == set(TARGETS)


@pytest.mark.parametrize(
    "group", [g if g[0] in QUICK else pytest.param(g, marks=pytest.mark.slow) for g in GROUPS], ids="-".join
)
@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_fits_the_machine(spec: Path, group: tuple[str, ...]) -> None:
    """Texts that are the same for several targets are assembled once.

    A file is the same for each compilation of its spec, with and without the verifiers, and holds nothing unused.
    """
    built: dict[str, Compiled] = {}
    for arch in group:
        result = compiled(spec, arch)
        text = result.cuda_module.code
        if text not in built:
            built[text] = compile_cuda(text, arch)
        fits(result, built[text], arch)
        if arch == WHOLE:
            if SPECS.index(spec) % TWICE == 0:
                assert result.cuda == compile_file(Request(spec, arch, verified=False)).cuda
        elif arch == SHARED and SPECS.index(spec) % TWICE == 1:
            assert result.cuda_module.code == compile_file(Request(spec, arch, verified=False)).cuda_module.code
            assert not unused(result.cuda)
            assert max(map(len, result.cuda[: result.cuda.index("typedef")].splitlines())) <= 120
            assert result.cuda.isascii() and result.cuda.endswith("#endif\n") and "\t" not in result.cuda


def fits(result: Result, built: Compiled, arch: str) -> None:
    """``result`` is readable, and its machine code fits a multiprocessor of ``arch``."""
    kernels = result.modules["ma-tile"].kernels
    assert not faults(result.cuda_module.code, result.modules["spec"])
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


def unused(text: str) -> list[str]:
    """Device helpers that are defined in ``text`` and called nowhere."""
    words = Counter(re.findall(r"\w+", text))
    return [h for h in HELPERS if words[h] == 1]


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
