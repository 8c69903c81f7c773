"""Functions of apache-tvm-ffi, with its own headers and library, on a stand-in for the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.core.errors import ToolchainError
from nautilus.export.frameworks.tvm_ffi import headers
from nautilus.runtime.nvrtc import include_paths

GXX = shutil.which("g++")
needs_tools = pytest.mark.skipif(
    GXX is None or not include_paths() or find_spec("tvm_ffi") is None,
    reason="needs g++, the headers of CUDA and apache-tvm-ffi",
)

#: names that the text uses itself, strides, a size at launch, scalars, and scratch memory
SPEC = """
dim M = runtime, N = 256, K = 128
assume M % 8 == 0
input shape: f16[M, K] strided
input given: f16[N, K]
scalar code: f32
scalar flag: i32
output C: f32[M, N]
R[i] = sum[k](f32(shape[i, k]))
C[i, j] = sum[k](shape[i, k] * given[j, k]) * code + flag + max[l: M](R[l])
"""

#: Calls the function with tensors at addresses of its own choice; a word on the command line changes one of them.
USER = """
import ctypes, sys, tvm_ffi
class Any(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("zero", ctypes.c_int32), ("value", ctypes.c_uint64)]
class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("offset", ctypes.c_uint64)]
def tensor(address, shape, code, bits, strides=None, device=2, number=0, offset=0):
    longs = ctypes.c_int64 * len(shape)
    steps = longs(*strides) if strides else None
    kept.append(longs(*shape))
    kept.append(Tensor(address, device, number, len(shape), code, bits, 1, kept[-1], steps, offset))
    return Any(7, 0, ctypes.addressof(kept[-1]))
def number(x):
    return Any(3, 0, ctypes.c_uint64.from_buffer(ctypes.c_double(x)).value) if isinstance(x, float) else Any(1, 0, x)
def message():
    moved = ctypes.c_void_p()
    library.TVMFFIErrorMoveFromRaised(ctypes.byref(moved))
    cell = ctypes.cast(moved.value + 24, ctypes.POINTER(Bytes))  # after the head of an object
    return " ".join(cell[n].data[: cell[n].size].decode() for n in range(2))
class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]
library = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
function, kept, rows, room = ctypes.CDLL(sys.argv[1])["__tvm_ffi_k"], [], 24, 1
for case in sys.argv[2:]:
    args = [tensor(1 << 12, (rows, 128), 2, 16, (136, 1), offset=64), tensor(1 << 16, (256, 128), 2, 16),
            tensor(1 << 20, (rows, 256), 2, 32), number(2.5), number(7), tensor(1 << 24, (room,), 1, 8)]
    changed = {
        "count": lambda: args.pop() and args.pop(),
        "type": lambda: args.__setitem__(1, tensor(1 << 16, (256, 128), 4, 16)),
        "rank": lambda: args.__setitem__(1, tensor(1 << 16, (256,), 2, 16)),
        "shape": lambda: args.__setitem__(2, tensor(1 << 20, (rows, 128), 2, 32)),
        "strides": lambda: args.__setitem__(1, tensor(1 << 16, (256, 128), 2, 16, (1, 256))),
        "host": lambda: args.__setitem__(0, tensor(1 << 12, (rows, 128), 2, 16, device=1)),
        "other": lambda: args.__setitem__(2, tensor(1 << 20, (rows, 256), 2, 32, number=1)),
        "number": lambda: args.__setitem__(4, number(0.5)), "large": lambda: args.__setitem__(4, number(1 << 31)),
        "fact": lambda: (args.__setitem__(0, tensor(1 << 12, (3, 128), 2, 16)),
                         args.__setitem__(2, tensor(1 << 20, (3, 256), 2, 32)), args.pop()),
        "address": lambda: args.__setitem__(1, tensor(8, (256, 128), 2, 16)), "alloc": lambda: args.pop(),
    }
    changed.get(case, lambda: None)()
    result = Any(99, 9, 9)
    print("case", case, flush=True)
    code = function(None, (Any * len(args))(*args), len(args), ctypes.byref(result))
    said = message() if code else f"result {result.type}"
    ctypes.CDLL(None).fflush(None)
    print(said, flush=True)
    room = int(said.split()[-1]) if case == "room" else room
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ffi")
    (folder / "k.naut").write_text(SPEC)
    (folder / "user.py").write_text(USER)
    command = [str(folder / "k.naut"), "--emit", "tvm-ffi", "-q", "--arch", "sm_90a,sm_80", "--variants", "1"]
    assert main(command) == 0 and (folder / "k.so").exists()
    include = [f"-I{p}" for p in include_paths()]
    driver = Path(__file__).parents[1] / "driver.cpp"
    subprocess.run([GXX or "", "-shared", "-fPIC", *include, driver, "-o", folder / "libcuda.so.1"], check=True)
    return folder


CASES = {
    "room": "ValueError axis 0 of scratch memory has 1 elements instead of ",
    "count": "TypeError k takes 5 arguments (shape, given, C, code, flag) and perhaps scratch memory, but got 4",
    "type": "TypeError given has another element type", "rank": "ValueError given has 1 axes instead of 2",
    "shape": "ValueError axis 1 of C has 128 elements instead of 256",
    "strides": "ValueError axis 0 of given has stride 1 instead of 128",
    "host": "ValueError shape is not in the memory of a CUDA device", "other": "ValueError C is on another device",
    "number": "TypeError flag is no number of its type",
    "large": "ValueError flag is 2147483648, which its type cannot hold", "address": "RuntimeError k: CUDA error 716",
    "right": "result 0",
}  # fmt: skip


@needs_tools
def test_calls(made: Path) -> None:
    """Errors name what is wrong; a right call launches with the addresses of the tensors, in the current stream."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(made), "VERSION": "90"}
    words = [sys.executable, str(made / "user.py"), str(made / "k.so"), *CASES, "alloc", "fact"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    said = {part.split("\n")[0]: part.rstrip().split("\n")[1:] for part in done.stdout.split("case ")[1:]}
    for case, text in CASES.items():
        assert said[case][-1].startswith(text), (case, said[case])
    launches = [line for line in said["right"] if line.startswith("launch ")]
    assert launches and all("stream 0" in line for line in launches)
    assert not any(line.startswith("launch ") for case in CASES if case != "right" for line in said[case])
    maps = [line for line in said["right"] if line.startswith("map ")]
    assert not maps or any(f" {(1 << 12) + 64} swizzle" in m and "+272" in m for m in maps)
    for case in ("alloc", "fact"):  # nothing allocates here
        assert "result" not in said[case][-1] and "Error" in said[case][-1]


@needs_tools
def test_python_loads_the_library(made: Path) -> None:
    code = (
        "import numpy, tvm_ffi\n"
        f"f = tvm_ffi.load_module({str(made / 'k.so')!r}).k\n"
        "a = tvm_ffi.from_dlpack(numpy.zeros((8, 128), numpy.float16))\n"
        "try:\n    f(a, a, a, 1.0, 2)\nexcept ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "shape is not in the memory of a CUDA device" in done.stdout, done.stderr


def test_missing_headers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.export.frameworks.tvm_ffi.find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=r"pip install 'nautilusc\[ffi\]'"):
        headers()
