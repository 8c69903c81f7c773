"""The printed CUDA of small MA-tile modules: properties of all of them. Lines: ``printed/warp.ma``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpPlan
from nautilus.cuda.emit import emit_module
from nautilus.cuda.expr import Speller
from nautilus.cuda.module import lower
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.runtime.nvrtc import compile_cuda
from tests.cuda.test_shipped import unused
from tests.ir_files import cases_in, input_of

PRINTED = {n: input_of(case) for n, case in cases_in(Path(__file__).parent / "printed" / "warp.ma").items()}


@pytest.mark.parametrize("name", PRINTED)
def test_text_repeats_and_holds_nothing_unused(name: str) -> None:
    text = emit_module(PRINTED[name])
    assert text == emit_module(PRINTED[name])
    assert unused(text) == []


@pytest.mark.parametrize("name", PRINTED)
def test_compiles_without_a_warning(name: str) -> None:
    module = PRINTED[name]
    built = compile_cuda(emit_module(module), module.target)
    assert "warning" not in built.log.lower(), built.log
    assert all(r.spill_stores == r.spill_loads == 0 for r in built.resources)


def test_a_header_is_a_comment() -> None:
    text = lower(next(iter(PRINTED.values())), lambda: ("one", "", "three")).text
    assert text.startswith("// one\n//\n// three\n")


def test_the_op_says_whether_an_instruction_is_approximate() -> None:
    text = ma_format(PRINTED["a reduction across warps"])
    exact, approximate = (emit_module(parse(text.replace("exp %d", f"{name} %d"))) for name in ("exp2", "exp2_approx"))
    assert "ex2.approx" in approximate and "ex2.approx" not in exact and "exp2f(" in exact


def test_no_index_is_computed_without_a_reader() -> None:
    for name, m in PRINTED.items():
        body = emit_module(m).split("__global__")[1].split("#ifndef")[0]
        for declared in re.findall(r"^    const int (\w+) =", body, re.M):
            assert len(re.findall(rf"\b{declared}\b", body)) > 1, (name, declared)


@pytest.mark.parametrize(("rows", "bits"), [(50_000, 32), (80_000, 64)])
def test_an_offset_in_a_tensor_of_2_to_the_31_elements_has_64_bits(rows: int, bits: int) -> None:
    text = f"dim M = {rows}, N = 30000\ninput X: u8[M, N]\noutput Y: i32[M]\nY[i] = sum[j](i32(X[i, j]))\n"
    made = compile_file(Request(Path("given.naut"), "sm_80", text=text, until="ma-tile"))
    loads = re.findall(r"X \+ [^;]*", emit_module(made.modules["ma-tile"]))
    assert loads and all(("(long long)" in x) == (bits == 64) for x in loads), loads


@pytest.mark.parametrize("warps", [4, 8])
def test_one_thread_of_a_block_issues_copies(warps: int, tmp_path: Path) -> None:
    """A second one would arrive at the mbarrier again, and the kernel would fault."""
    mapping = WarpPlan(warps=(2, warps // 2), stages=3, epilogue="direct", tma_loads=True)
    axes = (AxisPlan("i", "grid", 64), AxisPlan("j", "grid", 64), AxisPlan("k", "loop", 64))
    kernel = KernelPlan("Y", ("Y",), axes, (("Y",),), mapping=mapping)
    text = "dim M = 64, K = 512\ninput X: f16[M, K], W: f16[M, K]\noutput Y: f32[M, M]\n"
    text += "Y[i, j] = sum[k](X[i, k] * W[j, k])\n"
    request = Request(tmp_path / "y.naut", "sm_90a", text=text, schedule=Schedule((), (kernel,), splits=()))
    found = re.findall(r"if \(threadIdx.x % (\d+) == 0\)", compile_file(request).cuda_module.text)
    assert {int(n) for n in found} == {32 * warps}


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (calc("add", calc("mul", Var("c"), 4), Var("i")), "c * 4"),
        (calc("sub", calc("add", Var("i"), calc("mul", Var("c"), 1)), 16), "c - 16"),
        (calc("sub", Var("i"), Var("c")), "0 - c"),
    ],
)
def test_a_position_of_0_and_a_factor_of_1_are_not_written(e: Expr, text: str) -> None:
    env = {"c": "c", "i": "0"}  # a tile of one element
    assert Speller().expr(e, env, {}, lambda _: "", lambda _: "") == text
