"""The Python interface on a driver that writes down its calls."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nautilus
from nautilus.api import arrays
from nautilus.api.kernel import Kernel
from nautilus.api.signature import _TYPES, check_tensor, numbers_of, value
from nautilus.core.errors import InputError
from nautilus.export import cache
from nautilus.runtime.cuda_driver import Driver

SPEC = (
    "dim M = runtime, N = 256, K = 128\nassume M % 8 == 0\ninput A: f16[M, K]\ninput B: f16[N, K]\n"
    "scalar s: f32 = 2.0\n"
    "output C: f32[M, N]\nC[i, j] = sum[k](A[i, k] * B[j, k]) * s\n"
)  # fmt: skip


class Fake:
    """An array at an address, by the CUDA array interface."""

    def __init__(self, address: int, shape: tuple[int, ...], code: str = "<f2", strides: Any = None) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": code, "data": (address, False), "strides": strides, "version": 3,
        }  # fmt: skip


class OnDevice:
    """A numpy array that is marked as being on a device."""

    def __init__(self, array: Any, device: int = 0) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, stream: int | None = None) -> Any:
        assert stream == 1
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "k.naut"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def compiled(spec: Path) -> Kernel:
    return nautilus.compile(spec, arch="sm_90a")


class Noted:
    """A driver that writes down the calls of its functions."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.calls = driver, list[str]()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.driver, name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            return function(*arguments)

        return call


@pytest.fixture
def kernel(compiled: Kernel, stand_in: ctypes.CDLL) -> Kernel:
    return Kernel(compiled.manifest, b"cubin", Noted(Driver(stand_in)), stand_in)


A, B, C = Fake(64, (16, 128)), Fake(4096, (256, 128)), Fake(8192, (16, 256), "<f4")


def test_a_launch_is_one_call_of_the_driver(kernel: Kernel, capfd: pytest.CaptureFixture[str]) -> None:
    ready = kernel.prepare(A, B, out=C, stream=5)
    before = list(kernel.driver.calls)
    ctypes.CDLL(None).fflush(None)
    assert "cuTensorMapEncodeTiled" in before and "launch" not in capfd.readouterr().out
    ready.launch()
    ready.launch(6)
    assert kernel.driver.calls == before
    library = ctypes.CDLL(None)
    library.fflush(None)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0].startswith("launch 9 grid ") and lines[0].endswith("stream 5 first 64")
    assert lines[1] == lines[0].replace("stream 5", "stream 6")
    kernel.prepare(A, B, out=C)
    assert kernel.driver.calls.count("cuModuleLoadData") == 1


def test_outputs_are_allocated(kernel: Kernel) -> None:
    out = kernel(A, B)
    assert out.__cuda_array_interface__["shape"] == (16, 256) and out.__cuda_array_interface__["typestr"] == "<f4"


@pytest.mark.parametrize(
    ("inputs", "scalars", "message"),
    [
        ((A,), {}, r"k has 2 inputs \(A, B\), not 1"),
        ((A, Fake(4096, (256, 64))), {}, r"B has shape \[256, 64\] instead of \[256, 128\]"),
        ((Fake(66, (16, 128)), B), {}, "the address of A is no multiple of 16 bytes"),
        ((Fake(64, (16, 128), "<f4"), B), {}, "A has elements of 32 bits of another kind than f16"),
        ((Fake(64, (16, 128), strides=(512, 2)), B), {}, r"A has strides \[256, 1\] instead of \[128, 1\]; it must be"),
        ((Fake(64, (12, 128)), B), {}, r"'assume M % 8 == 0' does not hold: M is 12"),
        ((Fake(64, (16,)), B), {}, "A has 1 axes instead of 2"),
        ((A, B), {"M": 24}, "A has M = 16, but M is 24"),
        ((A, B), {"t": 1}, "unknown scalar 't'; scalars: s, M"),
        ((A, object()), {}, "B: object has neither __dlpack__ nor __cuda_array_interface__"),
        ((np.zeros((16, 128), np.float16), B), {}, "A: the array is not in the memory of a CUDA device"),
        ((OnDevice(np.zeros((16, 128), np.float16), 0), OnDevice(np.zeros((256, 64), np.float16))), {}, "B has shape"),
    ],
)  # fmt: skip
def test_errors_name_the_tensor(inputs: tuple[Any, ...], scalars: dict[str, Any], message: str, kernel: Kernel) -> None:
    with pytest.raises(InputError, match=message):
        kernel(*inputs, **scalars)


def test_arrays_are_read_by_dlpack() -> None:
    whole = np.zeros((6, 8), np.float32)
    part = whole[1:5:2, 3:]
    found = arrays.view("X", OnDevice(part))
    assert found == arrays.View(part.ctypes.data, "f", 32, (2, 5), (16, 1), 0)
    assert arrays.view("X", OnDevice(np.zeros((), np.int64))).shape == ()
    assert arrays.view("X", Fake(64, (3, 2), "|b1")).kind == "B"


class Float8(OnDevice):
    """A tensor of PyTorch with 8-bit floats, which some of its versions export as bytes only."""

    dtype = "torch.float8_e4m3fn"

    def view(self, dtype: str) -> OnDevice:
        assert dtype == "bytes"
        return OnDevice(self.array)

    def __dlpack__(self, stream: int | None = None) -> Any:
        raise BufferError("float8 types are not supported")


def test_floats_of_8_bits_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(uint8="bytes"))
    found = arrays.view("X", Float8(np.zeros((2, 4), np.uint8)))
    assert (found.kind, found.bits, found.strides) == ("e4m3", 8, (4, 1))
    about = {"name": "X", "shape": [2, 4], "strides": [4, 1], "strided": False, "alignment": 1}
    check_tensor(about | {"dtype": "f8e4m3"}, found, {})
    with pytest.raises(InputError, match="X has elements of 8 bits of another kind than f8e5m2"):
        check_tensor(about | {"dtype": "f8e5m2"}, found, {})


def test_numbers_fit_their_types() -> None:
    scalar = {"name": "n", "dtype": "i8", "default": None, "least": None, "most": None, "multiple": None, "size": False}
    manifest = {"tensors": [], "scalars": [scalar]}
    assert numbers_of(manifest, {}, {"n": -128}) == {"n": -128}
    for wrong in (128, 0.5):
        with pytest.raises(InputError, match=f"'n' is {wrong}, which is no i"):
            numbers_of(manifest, {}, {"n": wrong})
    assert value(["eq", ["mod", "N", "M"], 0], {"N": 4, "M": 0}) is True  # as in the launcher


def test_a_size_is_not_read_from_the_stride_of_one_row() -> None:
    tensor = {"name": "X", "shape": [2, 1, "N"], "strides": ["X_stride0", "N", 1], "strided": True}
    about = {"default": None, "least": None, "most": 64, "multiple": 1}
    size, stride = {"name": "N", "dtype": "i32", "size": True}, {"name": "X_stride0", "dtype": "i64", "size": False}
    view = arrays.View(0, "f", 32, (2, 1, 8), (16, 12, 1), 0)
    assert numbers_of({"tensors": [tensor], "scalars": [about | size, about | stride]}, {"X": view}, {}) == {
        "N": 8,
        "X_stride0": 16,
    }


def test_the_second_compilation_is_read_from_the_cache(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nautilus.api import compile as module

    monkeypatch.setenv("NAUTILUS_CACHE", str(tmp_path))
    first = nautilus.compile(spec, {"M": 64}, arch="sm_80")
    monkeypatch.setattr(module, "compiled_entry", None)
    again = nautilus.compile(str(spec), {"M": 64}, arch="sm_80")
    assert again.manifest == first.manifest and "A: f16[64, 128]" in repr(again) and cache.folder() == tmp_path
    with pytest.raises(TypeError):
        nautilus.compile(spec, {"M": 64}, arch="sm_80", cache=False)


def test_wrong_options_are_input_errors(spec: Path) -> None:
    with pytest.raises(InputError, match="unknown architecture 'sm_1'"):
        nautilus.compile(spec, arch="sm_1")


def test_options_reach_the_compilation(spec: Path) -> None:
    made = nautilus.compile(spec, arch="sm_80", batch_invariant=True, cache=False)
    assert made.manifest["dispatch"] == 0 and [v["name"] for v in made.manifest["variants"]] == ["k"]
    with pytest.raises(InputError, match="the number of variants is 0"):
        nautilus.compile(spec, variants=0)


EMPTY = (
    "dim M = runtime, N = 256, K = runtime <= 512\nassume K % 8 == 0\ninput A: f16[M, K]\ninput B: f16[N, K]\n"
    "output C: f32[M, N]\nC[i, j] = sum[k](A[i, k] * B[j, k])\n"
)  # fmt: skip


def test_arrays_without_elements_have_no_address(
    kernel: Kernel, tmp_path: Path, capfd: pytest.CaptureFixture[str], stand_in: ctypes.CDLL
) -> None:
    path, noted = tmp_path / "k.naut", kernel.driver
    path.write_text(EMPTY)
    made = nautilus.compile(path, arch="sm_90a", variants=1, cache=False)
    empty = Kernel(made.manifest, b"cubin", noted, stand_in)
    bases: list[int] = []
    real = noted.cuTensorMapEncodeTiled

    def encoded(*given: Any) -> Any:
        bases.append(given[3])
        return real(*given)

    noted.cuTensorMapEncodeTiled = encoded
    empty.prepare(Fake(0, (16, 0)), Fake(0, (256, 0)), out=C, stream=5).launch()
    assert bases and set(bases) == {8192}  # the kernel stores zeros
    empty.prepare(Fake(0, (0, 64)), Fake(4096, (256, 64)), out=Fake(0, (0, 256), "<f4"), stream=7).launch()
    empty.prepare(Fake(64, (1, 8)), Fake(4096, (256, 8)), out=Fake(8192, (1, 256), "<f4"), stream=9).launch()
    ctypes.CDLL(None).fflush(None)
    lines = capfd.readouterr().out.splitlines()
    assert {word for line in lines for word in ("5", "7", "9") if f"stream {word} " in line} == {"5", "9"}


def test_every_element_type_has_arrays() -> None:
    """An integer of the same width may hold the bits of a type that few libraries have."""
    found = {n: {f"{kind}{bits}" for kind, bits in kinds} for n, kinds in _TYPES.items()}
    assert all(found.values())
    assert found.items() >= {
        "f64": {"f64"}, "f32": {"f32"}, "tf32": {"f32"}, "f16": {"f16"}, "bf16": {"b16", "u16"},
        "f8e4m3": {"e4m38", "u8"}, "f8e5m2": {"e5m28", "u8"}, "i64": {"i64"}, "i32": {"i32"}, "i16": {"i16"},
        "i8": {"i8"}, "u8": {"u8"}, "bool": {"B8", "u8"},
    }.items()  # fmt: skip
