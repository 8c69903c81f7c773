"""C names: names that C++, CUDA or the emitted text uses, and distinct symbols."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.cuda.names import RESERVED, allocate, is_reserved, kernel_symbols, module_names, sanitize
from nautilus.cuda.writer import Writer
from nautilus.driver import Request, compile_file
from nautilus.runtime.nvrtc import compile_cuda

ROOT = Path(__file__).parents[2]

#: Names of tensors that have a meaning in C++, in the emitted text, in the launcher or in the MA-tile IR.
NAMES = (
    ("stream", "workspace", "status"), ("block", "consumer", "lane"), ("class", "this", "mbarrier_wait"),
    ("smem", "shared", "block_"), ("f16", "map", "TensorMap"), ("blockIdx", "expf", "r"), ("at_i", "warp", "tile"),
    ("i", "NAN", "u32"), ("stage", "b", "a"), ("map_B_64_64", "names_launch", "names__C"),
)  # fmt: skip
KINDS = {
    "sm_80": "dim M = 64, N = 64, K = 64\ninput {0}: f16[M, K]\ninput {1}: f16[N, K]\noutput {2}: f32[M, N]\n"
    "{2}[i, j] = exp(sum[k]({0}[i, k] * {1}[j, k]))\n",
    "sm_90a": "dim M = 256, N = 256, K = 256\ninput {0}: f16[M, K]\ninput {1}: f16[N, K]\noutput {2}: f32[M, N]\n"
    "{2}[i, j] = sum[k]({0}[i, k] * {1}[j, k])\n",
}


@pytest.mark.parametrize("arch", sorted(KINDS))
@pytest.mark.parametrize("names", NAMES, ids=" ".join)
def test_names_with_a_meaning_compile(names: tuple[str, ...], arch: str, tmp_path: Path) -> None:
    path = tmp_path / "names.naut"
    path.write_text(KINDS[arch].format(*names))
    text = compile_file(Request(path, arch)).cuda_module.code
    compile_cuda(text, arch, "ptx")
    host = text.split("#ifndef __CUDACC_RTC__")[1]
    declared = re.findall(r"names_launch\(([^)]*)\)", host)[0]
    arguments = [part.split()[-1].lstrip("*") for part in declared.split(",")]
    assert len(set(arguments)) == len(arguments)
    locals_ = {"status", "attribute", "config", "sizes", "strides", "box"}
    assert not locals_ & set(arguments)


LOOPS = """dim H = 8, C = 48
input X: i8[H, H, C]
input F: i8[3, 3, C, 40]
output Y: i32[6, 6, 40]
Y[y: 6, x: 6, k] = sum[a: 3, b: 3, c](i32(X[y + a, x + b, c]) * i32(F[a, b, c, k]))
"""


def test_loops_with_the_names_of_operands_compile(tmp_path: Path) -> None:
    """The arrays ``a`` and ``b`` of an MMA hide variables of these names, which choose the stage of an operand."""
    path = tmp_path / "names.naut"
    path.write_text(LOOPS)
    compile_cuda(compile_file(Request(path, "sm_80")).cuda_module.code, "sm_80", "ptx")


SPELLED = [
    ("attention/causal_prefill", "sm_90a"), ("matmul/swiglu", "sm_80"), ("rowwise/softmax", "sm_80"),
    ("matmul/i8_i32", "sm_80"), ("attention/causal_decode", "sm_90a"),
]  # fmt: skip


def test_other_names_stay_as_they_are() -> None:
    names = ("Q", "stages", "O_part", "x1", "M_net_launch", "block")
    assert [sanitize(name) for name in names] == ["Q", "stages", "O_part", "x1", "M_net_launch", "block_"]
    assert [sanitize(name) for name in ("3d", "")] == ["v3d", "v"]
    assert allocate(("block", "block_", "x")) == {"block": "block_", "block_": "block__2", "x": "x"}


def test_macros_of_the_included_headers_are_reserved() -> None:
    for name in ("M_PI", "M_LN2f", "FP_NAN", "INT32_MAX", "SIZE_MAX", "EXIT_SUCCESS", "MAX_INPUT", "CUDA_VERSION"):
        assert sanitize(name) == f"{name}_"


def test_symbols_lead_back_to_kernels(tmp_path: Path) -> None:
    path = tmp_path / "my__spec.naut"
    path.write_text("dim M = 32\ninput X: f32[M]\noutput a__b: f32[M]\noutput b: f32[M]\n"
                    "a__b[i] = exp(X[i])\nb[i] = X[M - 1 - i]\n")  # fmt: skip
    result = compile_file(Request(path, "sm_80"))
    module = result.modules["ma-tile"]
    found = kernel_symbols(module)
    assert sorted(found.values()) == sorted(k.name for k in module.kernels)
    for symbol, name in found.items():
        assert symbol == f"my__spec__{name}" and f"\n{symbol}(" in result.cuda
    twice = replace(module, kernels=tuple(replace(module.kernels[0], name=n) for n in ("x.y", "x_y", "x-y")))
    assert len(kernel_symbols(twice)) == 3 and list(kernel_symbols(twice).values()) == ["x.y", "x_y", "x-y"]
    assert len(set(module_names(twice).kernels.values())) == 3


@pytest.mark.parametrize(("spec", "arch"), SPELLED)
def test_what_the_printer_spells_is_reserved(spec: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every identifier of a kernel is a name that was allocated, or one that no argument gets."""
    writers: list[Writer] = []
    made = Writer.__post_init__

    def noted(self: Writer) -> None:
        made(self)
        writers.append(self)

    monkeypatch.setattr(Writer, "__post_init__", noted)
    result = compile_file(Request(ROOT / f"specs/{spec}.naut", arch))
    text = re.sub(r"//[^\n]*", "", result.cuda.split('extern "C" __global__ void ', 1)[1].split("#ifndef")[0])
    text = re.sub(r'"[^"]*"', "", text)
    words = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", text)) - {w for x in writers for w in x.taken}
    words -= set(module_names(result.modules["ma-tile"]).kernels.values()) | {"pragma", "unroll", "x", "a", "b"}
    assert {w for w in words if w not in RESERVED and sanitize(w) == w} == set()


_DECLARES = re.compile(r"(?:^|\()(?:const )?(?:@|float|double|int|bool|u16|u32|u64|uint4)[*@]* (\w+)(?: =|\[|;)")
_INNER = {"i", "x", "y", "step", "row"}  # beside fragments, or memory of the block, alone


def test_what_printers_declare_is_reserved() -> None:
    """The text of an argument that a statement mentions is not that of a variable which the printer has just declared.

    ``a`` and ``b`` are the operands of products, which mention no arguments.
    """
    found = dict[str, str]()
    for path in sorted((ROOT / "nautilus/cuda/ops").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "@" for v in parts)
            for declared in _DECLARES.finditer(text):
                found.setdefault(declared[1], path.name)
    assert {"run", "total", "low", "front", "bad"} <= found.keys()
    assert {n: p for n, p in found.items() if not is_reserved(n) and n not in _INNER | {"a", "b"}} == {}
