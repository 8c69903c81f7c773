"""Sizes in device memory: one recorded CUDA graph serves every step; and batches of any size give equal bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nautilus
from nautilus.check.inputs import generate
from nautilus.core.numerics import from_storage, storage_array
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.frontend.interp import run_spec
from nautilus.runtime.cuda_driver import CAPTURE_GLOBAL, NON_BLOCKING
from nautilus.runtime.device import bindings, check, default_arch, open_device
from tests.shipped import paged_decode

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(default_arch() != "sm_90a", reason="needs a GPU")]

LAYER = """
dim T = device <= 300, K = 128, N = 200
input X: f16[T, K]
input W: f16[K, N]
output Y: f16[T, N], S: f32[N]
H: f16[t, n] = sum[k](X[t, k] * W[k, n])
Y[t, n] = max(H[t, n], 0)
S[n] = sum[t](H[t, n])
"""


class Memory:
    """An array on the device by the CUDA array interface; the tests free nothing."""

    def __init__(self, x: np.ndarray[Any, Any], dtype: DType) -> None:
        d, self.dtype, raw = bindings(), dtype, storage_array(x, dtype)
        self.shape, self.kind = raw.shape, raw.dtype
        self.address = int(check(d, d.cuMemAlloc(max(16, raw.nbytes))))
        self.write(x)

    def write(self, x: np.ndarray[Any, Any]) -> None:
        d, raw = bindings(), np.ascontiguousarray(storage_array(x, self.dtype))
        check(d, d.cuMemcpyHtoD(self.address, raw.ctypes.data, raw.nbytes))

    def read(self) -> np.ndarray[Any, Any]:
        d, raw = bindings(), np.empty(self.shape, self.kind)
        check(d, d.cuMemcpyDtoH(raw.ctypes.data, self.address, raw.nbytes))
        return from_storage(raw, self.dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        code = {"f": "f", "i": "i", "u": "u"}[self.kind.kind]
        return {
            "shape": self.shape, "typestr": f"<{code}{self.kind.itemsize}", "data": (self.address, False),
            "strides": None, "version": 3,
        }  # fmt: skip


@pytest.fixture(scope="module")
def stream() -> Iterator[int]:
    d = bindings()
    open_device()
    check(d, d.cuCtxSetCurrent(check(d, d.cuDevicePrimaryCtxRetain(check(d, d.cuDeviceGet(0))))))
    made = check(d, d.cuStreamCreate(NON_BLOCKING))
    yield int(made)
    d.cuStreamDestroy(made)


def test_one_graph_serves_every_size(tmp_path: Path, stream: int) -> None:
    path, d = tmp_path / "layer.naut", bindings()
    path.write_text(LAYER.lstrip())
    kernel = nautilus.compile(path, cache=False)
    spec = compile_file(Request(path, until="spec")).modules["spec"]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((300, 128)), rng.standard_normal((128, 200))
    memory = [Memory(x, DType.F16), Memory(w, DType.F16), Memory(np.array(0), DType.I32)]
    out = [Memory(np.full((300, 200), np.nan), DType.F16), Memory(np.zeros(200), DType.F32)]
    ready = kernel.prepare(*memory, out=out, stream=stream)
    ready.launch()
    check(d, d.cuStreamSynchronize(stream))
    check(d, d.cuStreamBeginCapture(stream, CAPTURE_GLOBAL))
    ready.launch()
    graph = check(d, d.cuGraphInstantiate(check(d, d.end_capture(stream)), 0))
    for size in (1, 300, 77, 0, 16, -5, 1000):
        out[0].write(np.full((300, 200), np.nan))
        memory[2].write(np.array(size))
        check(d, d.cuGraphLaunch(graph, stream))
        check(d, d.cuStreamSynchronize(stream))
        n = min(max(size, 0), 300)
        want = run_spec(spec, {"X": memory[0].read()[:n], "W": memory[1].read()}, {}, {"T": n})
        got = out[0].read()
        assert np.isnan(got[n:]).all()  # nothing beyond the size is written
        np.testing.assert_allclose(got[:n], want["Y"], rtol=2e-3, atol=2e-2)
        np.testing.assert_allclose(out[1].read(), want["S"], rtol=2e-3, atol=0.3)


def test_a_sequence_has_equal_bits_in_every_batch(tmp_path: Path, stream: int) -> None:
    path, d = tmp_path / "decode.naut", bindings()
    path.write_text(paged_decode("B = runtime <= 64, Hq = 8, Hkv = 2, N = 1024, D = 64, P = 16, Pages = 512"))
    kernel = nautilus.compile(path, batch_invariant=True, cache=False)
    spec = compile_file(Request(path, until="spec")).modules["spec"]
    own, found = generate(spec, "random", 5, sizes={"B": 1}).arrays, []
    types = {t.name: t.dtype for t in (*spec.inputs, *spec.outputs)}
    for seed, (count, place) in enumerate([(1, 0), (2, 1), (7, 3), (64, 0), (64, 63)]):
        arrays = {n: x.copy() for n, x in generate(spec, "random", 100 + seed, sizes={"B": count}).arrays.items()}
        arrays |= {n: own[n] for n in ("K", "V")}
        for name in ("Q", "page", "len"):
            arrays[name][place] = own[name][0]
        inputs = [Memory(arrays[t.name], types[t.name]) for t in spec.inputs]
        out = Memory(np.zeros((count, 8, 64)), types["O"])
        kernel(*inputs, out=out, stream=stream)
        check(d, d.cuStreamSynchronize(stream))
        found.append(out.read()[place])
    assert np.abs(found[0]).max() > 0
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
