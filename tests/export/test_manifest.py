"""Manifests of cubins, and the loader among the examples."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nautilus.api.signature import variant_of
from nautilus.cli.main import main
from nautilus.driver import Request, Result, compile_checked
from nautilus.export.manifest import condition, manifest
from nautilus.ma_tile import text as ma_text
from nautilus.runtime.execute import plan_of

ROOT = Path(__file__).parents[2]
SPEC = (
    "dim M = runtime, N = 2048, K = 1024\nassume M % 8 == 0\ninput A: f16[M, K]\ninput B: f16[N, K]\n"
    "scalar s: f32 = 2.0\n"
    "output C: f32[M, N]\nC[i, j] = sum[k](A[i, k] * B[j, k]) * s\n"
)


@pytest.fixture(scope="module")
def loader() -> ModuleType:
    pytest.importorskip("cuda.bindings.driver")
    spec = importlib.util.spec_from_file_location("load_manifest", ROOT / "specs/examples/load_manifest.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cubin and its manifest."""
    made = tmp_path_factory.mktemp("manifest")
    (made / "k.naut").write_text(SPEC)
    assert main([str(made / "k.naut"), "-o", str(made / "k.cubin"), "--arch", "sm_90a", "-q"]) == 0
    return made


def test_a_cubin_has_a_manifest_beside_it(folder: Path) -> None:
    found = json.loads((folder / "k.manifest.json").read_text())
    assert found["cubin"] == hashlib.sha256((folder / "k.cubin").read_bytes()).hexdigest()
    assert [(t["name"], t["role"], t["dtype"], t["shape"]) for t in found["tensors"]] == [
        ("A", "input", "f16", ["M", 1024]), ("B", "input", "f16", [2048, 1024]), ("C", "output", "f32", ["M", 2048]),
    ]  # fmt: skip
    scalars = {s["name"]: s for s in found["scalars"]}
    assert scalars["s"]["default"] == 2.0 and scalars["M"]["size"] and not scalars["s"]["size"]
    assert found["facts"] == [{"text": "assume M % 8 == 0", "condition": ["eq", ["mod", "M", 8], 0]}]


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    """What the cubin was made of."""
    return compile_checked(Request(folder / "k.naut", "sm_90a", variants=6))


@pytest.mark.parametrize("m", [8, 104, 1000, 8000])
def test_the_manifest_launches_what_the_runtime_launches(
    m: int, folder: Path, result: Result, loader: ModuleType
) -> None:
    sizes = {"M": m}
    plan = plan_of(result.launched(sizes), {"M": m, "s": 2.0})
    whole = json.loads((folder / "k.manifest.json").read_text())
    assert len(whole["variants"]) > 1 and whole["facts"]
    found = variant_of(whole, sizes, {})
    assert found["name"] == result.launched(sizes).name
    assert len(found["launches"]) == len(plan.launches)
    for a, b in zip(found["launches"], plan.launches, strict=True):
        assert a["kernel"] == b.kernel and a["shared"] == b.smem and a["block"] == list(b.block)
        assert [loader.value(n, sizes) for n in a["grid"]] == list(b.grid)
        assert [name for kind, name in a["parameters"] if kind not in ("map", "counter")] == list(b.args)
    maps = [m for launch in plan.launches for m in launch.maps]
    assert (maps or m == 8) and len(found["tensor_maps"]) == len(maps)  # the plan of few rows has none
    for mine, other in zip(found["tensor_maps"], maps, strict=True):
        assert tuple(loader.value(n, sizes) for n in mine["sizes"]) == other.sizes
        assert tuple(loader.value(n, sizes) for n in mine["strides"]) == other.strides
        assert mine["tensor"] == other.buffer and mine["box"] == list(other.box)


def test_a_map_has_no_empty_axis(folder: Path, loader: ModuleType) -> None:
    found = json.loads((folder / "k.manifest.json").read_text())["variants"]
    sizes = [loader.value(n, {"M": 0}) for v in found for m in v["tensor_maps"] for n in m["sizes"]]
    assert min(sizes) == 8


def test_the_loader_prepares_once(folder: Path, loader: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a driver that writes down its calls."""
    calls: list[str] = []
    real = loader.driver

    def call(name: str, *result: Any) -> Any:
        def made(*arguments: Any) -> Any:
            calls.append(name)
            return (real.CUresult.CUDA_SUCCESS, *result)

        return made

    stub = SimpleNamespace(**{name: getattr(real, name) for name in dir(real) if name.startswith(("CU", "cuuint"))})
    for name, result in {
        "cuModuleLoadData": (1,), "cuModuleGetFunction": (2,), "cuFuncSetAttribute": (), "cuMemsetD8": (),
        "cuLaunchKernelEx": (), "cuTensorMapEncodeTiled": (SimpleNamespace(opaque=[7] * 16),),
    }.items():  # fmt: skip
        setattr(stub, name, call(name, *result))
    monkeypatch.setattr(loader, "driver", stub)
    kernel = loader.Kernel(folder / "k.cubin")
    tensors, scalars = {"A": 64, "B": 128, "C": 256}, {"M": 128, "s": 2.0}
    plan = kernel.prepare(tensors, scalars, 4096)
    before = len(calls)
    plan.launch()
    plan.launch()
    assert "cuTensorMapEncodeTiled" in calls[:before] and set(calls[before:]) == {"cuLaunchKernelEx"}
    with pytest.raises(ValueError, match="the address of B is no multiple of 16"):
        kernel.prepare(tensors | {"B": 130}, scalars, 4096)
    with pytest.raises(ValueError, match="'assume M % 8 == 0' does not hold"):
        kernel.prepare(tensors, scalars | {"M": 63}, 4096)
    calls.clear()
    kernel.prepare(tensors, scalars | {"M": 0}, 4096).launch()
    assert "cuLaunchKernelEx" not in calls


def test_the_loader_reads_numbers_from_its_command_line(folder: Path, loader: ModuleType) -> None:
    about = json.loads((folder / "k.manifest.json").read_text())
    found = loader.numbers(about, ["M=64"])
    assert found == {"s": 2.0, "M": 64} and isinstance(found["M"], int)
    with pytest.raises(SystemExit, match="give a value: M="):
        loader.numbers(about, ["s=1"])
    cases = {("i32", 64.0): 64, ("f16", 0.1): 0x2E66, ("bf16", 0.1): 0x3DCD, ("bool", 1.0): True}
    assert {case: loader.argument(*case).value for case in cases} == cases


def test_strides_and_addresses_choose_the_variant_of_unaligned_tensors(loader: ModuleType) -> None:
    text = "dim M = runtime, N = 64\ninput X: f16[M, N] strided\noutput Y: f16[M, N]\nY[i, j] = X[i, j] + 1\n"
    result = compile_checked(Request(Path("k.naut"), "sm_80", variants=2, text=text))
    found = manifest(result.choice, b"")
    assert [t["alignment"] for t in found["tensors"]] == [2, 16]
    kernel = object.__new__(loader.Kernel)
    kernel.manifest, kernel.co_resident = found, [True] * len(found["variants"])
    for address, stride, unaligned in ((64, 64, False), (66, 64, True), (64, 65, True), (64, 72, False)):
        tensors, numbers = {"X": address, "Y": 256}, {"M": 8, "X_stride0": stride}
        assert kernel.variant(tensors, numbers) == variant_of(found, numbers, tensors)
        assert kernel.variant(tensors, numbers)["name"].endswith("unaligned") == unaligned


def test_conditions_are_data() -> None:
    from nautilus.core.expr.nodes import Const, Op, Param
    from nautilus.core.types import DType

    n = Param("N", DType.I32)
    e = Op("and", (Op("gt", (n, Const(0, DType.I32)), DType.BOOL), Const(True, DType.BOOL)), DType.BOOL)
    assert condition(e) == ["and", ["gt", "N", 0], True]


LATE = (
    "dim T = device <= 100, M = runtime, N = 8\ninput X: f16[M, T, N]\noutput Y: f16[M, T, N], S: f32[M]\n"
    "Y[m, t, n] = X[m, t, n] + 1\nS[m] = sum[t, n](f32(X[m, t, n]))\n"
)


def test_a_size_in_device_memory_is_an_input_and_tensors_have_the_shape_of_its_bound() -> None:
    result = compile_checked(Request(Path("k.naut"), "sm_80", variants=6, text=LATE))
    found = manifest(result.choice, b"")
    assert [(t["name"], t["role"], t["shape"], t["strided"], t["alignment"]) for t in found["tensors"]] == [
        ("X", "input", ["M", 100, 8], False, 16), ("T", "input", [], False, 4),
        ("Y", "output", ["M", 100, 8], False, 16), ("S", "output", ["M"], False, 16),
    ]  # fmt: skip
    assert [s["name"] for s in found["scalars"]] == ["M"]
    for variant in found["variants"]:
        assert not variant["tensor_maps"] and "T" not in json.dumps([x["grid"] for x in variant["launches"]])
        assert all(["tensor", "T"] in x["parameters"] for x in variant["launches"])
    assert "const int T_now = min(max(*T, 0), 100);" in result.cuda_module.code
    assert "k_workspace(int M)" in result.cuda_module.code or "spec_workspace(int M)" in result.cuda_module.code


def test_blocks_beyond_a_size_in_device_memory_leave_at_once() -> None:
    text = "dim T = device <= 4096, N = 64\ninput X: f16[T, N]\noutput Y: f16[T, N]\nY[t, n] = X[t, n] + 1\n"
    result = compile_checked(Request(Path("k.naut"), "sm_90a", text=text))
    module = result.modules["ma-tile"]
    text = ma_text.format(module)
    assert "param T: i32 <= 4096 device" in text and ma_text.parse(text).params == module.params
    lines = result.cuda.splitlines()
    at = next(n for n, line in enumerate(lines) if "T_now = " in line)
    assert "if (blockIdx.x >= " in lines[at + 1] and lines[at + 1].endswith("return;")
