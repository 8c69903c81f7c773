"""Outputs for other programs on the GPU: a shared library, the Python interface, and the loader of a bare cubin.

The spec has a masked product with tensor maps, a tile counter where the schedule has one, and a size known at launch.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nautilus
from nautilus.api.memory import DeviceArray
from nautilus.cli.main import main
from nautilus.core.types import DType
from nautilus.export.host_compiler import find
from nautilus.runtime.device import bindings, check, default_arch

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
SPEC = (
    "dim M = runtime, N = 256, K = 192\nassume M % 8 == 0\ninput A: f16[M, K]\ninput B: f16[N, K]\n"
    "scalar s: f32 = 2.0\noutput C: f32[M, N]\noutput R: f32[M]\n"
    "C[i, j] = sum[k](A[i, k] * B[j, k]) * s\nR[i] = sum[j](C[i, j])\n"
)
M, N, K = 200, 256, 192


def address(array: DeviceArray) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def uploaded(values: Any, dtype: DType) -> DeviceArray:
    made = DeviceArray(values.shape, dtype, bindings())
    check(bindings(), bindings().cuMemcpyHtoD(address(made), np.ascontiguousarray(values).ctypes.data, made.bytes))
    return made


def downloaded(array: DeviceArray, kind: str) -> Any:
    out = np.empty(array.shape, kind)
    check(bindings(), bindings().cuCtxSynchronize())
    check(bindings(), bindings().cuMemcpyDtoH(out.ctypes.data, address(array), out.nbytes))
    return out


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outputs") / "k.naut"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def tensors() -> tuple[DeviceArray, DeviceArray, Any]:
    """Both inputs on the device, and the product."""
    rng = np.random.default_rng(0)
    device = check(bindings(), bindings().cuDevicePrimaryCtxRetain(check(bindings(), bindings().cuDeviceGet(0))))
    check(bindings(), bindings().cuCtxSetCurrent(device))
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((M, K), (N, K)))
    want = a.astype(np.float32) @ b.astype(np.float32).T * 2
    return uploaded(a, DType.F16), uploaded(b, DType.F16), want


@pytest.mark.parametrize("dims", [{}, {"M": M}], ids=["runtime", "fixed"])
def test_the_python_interface(dims: dict[str, int], spec: Path, tensors: Any) -> None:
    a, b, want = tensors
    kernel = nautilus.compile(spec, dims)
    c, r = kernel(a, b)
    assert np.array_equal(downloaded(c, "f4"), want) and np.array_equal(downloaded(r, "f4"), want.sum(1))
    ready = kernel.prepare(a, b, s=1.0)
    for _ in range(3):
        ready.launch()
    assert np.array_equal(downloaded(ready.outputs[0], "f4"), want / 2)


def test_a_library(spec: Path, tensors: Any) -> None:
    find()
    a, b, want = tensors
    target = spec.with_name("libk.so")
    assert main([str(spec), "-o", str(target), "--arch", f"{default_arch()},sm_80", "-q"]) == 0
    library = ctypes.CDLL(str(target))
    library.k_workspace.restype = library.k_plan_size.restype = ctypes.c_size_t
    c, r = DeviceArray((M, N), DType.F32, bindings()), DeviceArray((M,), DType.F32, bindings())
    scratch = DeviceArray((max(16, library.k_workspace(M)),), DType.U8, bindings())
    given = [ctypes.c_void_p(address(x)) for x in (a, b, c, r)]
    rest = [ctypes.c_float(2.0), M, ctypes.c_void_p(address(scratch)), None]
    assert library.k_launch(*given, *rest) == 0
    assert np.array_equal(downloaded(c, "f4"), want) and np.array_equal(downloaded(r, "f4"), want.sum(1))
    room = (ctypes.c_uint64 * (library.k_plan_size() // 8 + 8))()
    plan = ctypes.c_void_p(-(-ctypes.addressof(room) // 64) * 64)
    assert library.k_prepare(plan, *given, ctypes.c_float(4.0), *rest[1:]) == 0
    assert [library.k_launch_prepared(plan, None) for _ in range(3)] == [0, 0, 0]
    assert np.array_equal(downloaded(c, "f4"), 2 * want)
    assert library.k_launch(ctypes.c_void_p(address(a) + 2), *given[1:], *rest) == 716


def test_the_loader_of_a_bare_cubin(tmp_path: Path) -> None:
    cubin = tmp_path / "softmax.cubin"
    arguments = ["--dim", "M=64,N=256", "--arch", default_arch(), "-q"]
    assert main([str(ROOT / "specs/rowwise/softmax.naut"), "-o", str(cubin), *arguments]) == 0
    command = [sys.executable, str(ROOT / "specs/examples/load_manifest.py"), str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # the softmax of zeros is 1 / 256, which is 0x1c00 in f16
    assert done.returncode == 0 and done.stdout == f"Y: {2 * 64 * 256} bytes, sum {0x1C * 64 * 256}\n", done.stderr


def test_an_operator_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    module = tmp_path / "softmax_op.py"
    arguments = ["--dim", "M=64,N=256", "--arch", default_arch(), "-q"]
    assert main([str(ROOT / "specs/rowwise/softmax.naut"), "-o", str(module), *arguments]) == 0
    monkeypatch.syspath_prepend(str(tmp_path))
    softmax = __import__("softmax_op").softmax
    x = torch.randn(64, 256, dtype=torch.float16, device="cuda")
    torch.library.opcheck(softmax, (x,))
    want, graph = torch.softmax(x, 1), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = softmax(x)
    graph.replay()
    assert (y - want).abs().max().item() < 1e-3 and (softmax(x) - want).abs().max().item() < 1e-3
    with pytest.raises(ValueError, match="X has strides"):
        softmax(x.t().contiguous().t())
