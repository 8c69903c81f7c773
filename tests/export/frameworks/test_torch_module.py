"""Operators of PyTorch, with a stand-in for torch and one for the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.core.errors import UnsupportedError
from nautilus.driver import Request, compile_file
from nautilus.export.frameworks.torch_module import torch_operator
from nautilus.export.library import Part
from nautilus.runtime.nvrtc import include_paths

GXX = shutil.which("g++")

#: What the operator uses of torch. Tensors have an address.
TORCH = """
import types
class Tensor:
    def __init__(self, address, shape, dtype, strides=None, device="cuda:0"):
        self.address, self.shape, self.dtype, self.device = address, tuple(shape), dtype, globals()["device"](device)
        steps = [1]
        for n in reversed(self.shape[1:]):
            steps.insert(0, n * steps[0])
        self.dense = tuple(steps[: len(self.shape)])
        self.strides = tuple(strides or self.dense)
    def data_ptr(self):
        return self.address
    def stride(self, axis=None):
        return self.strides if axis is None else self.strides[axis]
    def is_contiguous(self):
        return self.strides == self.dense
class dtype(str):
    pass
class device(str):
    index = property(lambda self: int(self[5:] or 0))
entered = []
class Context:
    def __init__(self, device):
        self.device = device
    def __enter__(self):
        entered.append(self.device)
    def __exit__(self, *_):
        pass
def empty(size, dtype, device):
    return Tensor(1 << 21, size if isinstance(size, tuple) else (size,), dtype, None, device)
uint8, float16, float32, int32 = map(dtype, ("uint8", "float16", "float32", "int32"))
stream = types.SimpleNamespace(cuda_stream=77)
cuda = types.SimpleNamespace(device=Context, current_device=lambda: 0, current_stream=lambda device: stream)
_C = types.SimpleNamespace()
class Tag:
    pt2_compliant_tag = needs_fixed_stride_order = None
fakes, backwards, ops = {}, {}, types.SimpleNamespace(nautilus=types.SimpleNamespace())
def infer_schema(f, mutates_args):
    assert mutates_args == () and all(not isinstance(a, str) for a in f.__annotations__.values())
    return f"({', '.join(f.__annotations__)})"
class Library:
    def __init__(self, namespace, kind):
        assert (namespace, kind) == ("nautilus", "FRAGMENT")
        self.defined = []
    def define(self, schema, tags):
        self.defined.append(schema[: schema.index("(")])
    def impl(self, name, kernel, key):
        assert name in self.defined and key == "CUDA"
        setattr(ops.nautilus, name, types.SimpleNamespace(default=kernel))
def register_fake(name, lib):
    return lambda fake: fakes.setdefault(name, fake)
def register_autograd(name, backward, lib):
    backwards[name] = backward
library = types.SimpleNamespace(
    Library=Library, infer_schema=infer_schema, register_fake=register_fake, register_autograd=register_autograd
)
"""

SPEC = """
dim M = runtime, N = 256, K = 128
assume M % 8 == 0
input lambda: f16[M, K] strided
input torch: f16[N, K]
scalar s: f32 = 2.0
scalar t: f32
scalar n: i8 = 1
output C: f32[M, N]
output R: f32[M]
C[i, j] = sum[k](lambda[i, k] * torch[j, k]) * s + t * n
R[i] = sum[k](f32(lambda[i, k]))
"""

USER = """
import torch, op
A, B = torch.Tensor(64, (16, 128), torch.float16, (256, 1)), torch.Tensor(4096, (256, 128), torch.float16)
C, R = op.op(A, B, 3.0)
assert (C.shape, R.shape, R.dtype) == ((16, 256), (16,), torch.float32)
assert not torch.entered
op.op(*(torch.Tensor(t.address, t.shape, t.dtype, t.strides, "cuda:1") for t in (A, B)), 3.0)
assert torch.entered == ["cuda:1"]
assert [t.shape for t in torch.fakes["nautilus::op"](A, B, 3.0)] == [(16, 256), (16,)]
def message(*arguments, **numbers):
    try:
        op.op(*arguments, **numbers)
    except (ValueError, RuntimeError) as error:
        return str(error)
print(message(torch.Tensor(66, (16, 128), torch.float16), B, 3.0))
print(message(torch.Tensor(65, (16, 128), torch.float16), B, 3.0))
print(message(A, torch.Tensor(4096, (256, 64), torch.float16), 3.0))
print(message(A, torch.Tensor(4096, (256, 128), torch.float32), 3.0))
print(message(A, torch.Tensor(4096, (256, 128), torch.float16, (256, 1)), 3.0))
print(message(torch.Tensor(64, (12, 128), torch.float16), B, 3.0))
print(message(torch.Tensor(64, (16, 128), torch.float16, (1, 16)), B, 3.0))
print(message(A, torch.Tensor(4096, (256, 128), torch.float16, device="cpu"), 3.0))
print(message(torch.Tensor(64, (1 << 32, 128), torch.float16), B, 3.0))
print(message(A, B, 3.0, n=200))
try:
    torch.backwards["nautilus::op"](None, C, R)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.skipif(GXX is None or not include_paths(), reason="needs g++ and the headers of CUDA")
def test_the_operator_launches_in_the_current_stream(tmp_path: Path) -> None:
    (tmp_path / "spec.naut").write_text(SPEC)
    module = tmp_path / "op.py"
    arguments = [str(tmp_path / "spec.naut"), "-o", str(module), "--arch", "sm_80", "-q", "--name", "op"]
    assert main(arguments) == 0 and module.with_suffix(".kernels.so").exists()
    (tmp_path / "torch.py").write_text(TORCH)
    driver = Path(__file__).parents[1] / "driver.cpp"
    target = tmp_path / "libcuda.so.1"
    subprocess.run([GXX or "", "-shared", "-fPIC", f"-I{include_paths()[0]}", driver, "-o", target], check=True)
    env = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(tmp_path), "VERSION": "86"}
    done = subprocess.run([sys.executable, "-c", USER], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    launches = [line for line in done.stdout.splitlines() if line.startswith("launch ")]
    assert launches and all("stream 77" in line for line in launches)
    kernels = {a: {x.split()[1] for x in launches if x.endswith(f"first {a}")} for a in (64, 66)}
    assert kernels[64] and kernels[66] and not kernels[64] & kernels[66]  # a tensor at 66 has a variant of its own
    for said in (
        "the address of lambda is no multiple of 2 bytes; call .clone()",
        "torch has shape [256, 64] instead of [256, 128]",
        "torch has type float32 instead of float16",
        "torch has strides (256, 1) instead of (128, 1); call .contiguous()",
        "lambda has strides (1, 16) instead of (None, 1)",
        "torch is on cpu, but the first tensor is on cuda:0",
        "M is 4294967296; allowed are 0 to 2146435072",  # not M modulo 2^32
        "n is 200; allowed are -128 to 127",
        "op: CUDA error 1",
        "nautilus::op has no gradient; a spec op_backward beside it would give one",
    ):
        assert said in done.stdout
    assert "assume M % 8 == 0" in done.stderr


def test_types_without_one_of_torch_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.naut").write_text("dim N = 8\noutput Y: f32[N]\nY[i] = 1.0\n")
    part = Part("sm_80", compile_file(Request(tmp_path / "s.naut", "sm_80")).choice, b"")
    with pytest.raises(UnsupportedError, match="a torch operator without inputs"):
        torch_operator([part], [])


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--emit", "jax", "-o", "-"], "with -o FILE.py"), (["--emit", "torch", "-o", "-"], "with -o FILE.py")],
)
def test_what_cannot_be_written_is_said(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.naut"
    path.write_text("dim N = 8\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[i] + 1\n")
    assert main([str(path), *options]) == 2 and message in capsys.readouterr().err
