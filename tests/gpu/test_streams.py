"""Kernels side by side, each launch with a counter of tiles of its own; the host launcher of the emitted file."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from nautilus.check.device import opened
from nautilus.check.inputs import generate
from nautilus.core.numerics import from_storage, storage_array
from nautilus.driver import Request, Result, build_cubin
from nautilus.frontend.interp import run_spec
from nautilus.runtime.cuda_driver import NON_BLOCKING
from nautilus.runtime.device import bindings, check, default_arch
from tests.core.schedule.engines import warpgroup_of
from tests.gpu.test_warpgroup import CAUSAL, attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(default_arch() != "sm_90a", reason="the GPU has no warpgroup MMAs"),
]

NVCC = shutil.which("nvcc")
#: uneven loops: the default schedule hands tiles out one by one
TEXT = dedent(attention(128, 520, 520, CAUSAL, 1, heads=20)).lstrip()
TIMES = 12


@pytest.fixture(scope="module")
def built() -> tuple[Result, Any]:
    result, cubin = build_cubin(Request(Path("given.naut"), text=TEXT))
    schedule = result.context.schedule
    assert schedule is not None and warpgroup_of(schedule.kernels[0]).persistent == "dynamic"
    return result, cubin


@contextmanager
def streams(count: int) -> Iterator[list[Any]]:
    d = bindings()
    made = [check(d, d.cuStreamCreate(NON_BLOCKING)) for _ in range(count)]
    yield made
    for s in made:
        d.cuStreamDestroy(s)


def test_two_streams_with_a_counter_each(built: tuple[Result, Any]) -> None:
    result, cubin = built
    spec = result.modules["spec"]
    with ExitStack() as stack:
        runners = [stack.enter_context(opened(result, cubin)) for _ in range(2)]
        alone = []
        for seed, runner in enumerate(runners):
            _, same = runner.run(generate(spec, "random", seed))
            assert same
            alone.append(runner.session.download()["O"].tobytes())
            runner.session.poison()
        runners[0].session.wait()
        both = stack.enter_context(streams(2))
        for _ in range(TIMES):
            for runner, stream in zip(runners, both, strict=True):
                runner.session.launch(stream)
        runners[0].session.wait()
        assert [r.session.download()["O"].tobytes() for r in runners] == alone
    assert alone[0] != alone[1]


@pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH")
def test_the_launcher_of_the_emitted_file(built: tuple[Result, Any], tmp_path: Path) -> None:
    """Compiled by nvcc alone: it encodes the tensor maps, clears its counter and takes a stream."""
    result, _ = built
    assert NVCC is not None
    spec = result.modules["spec"]
    (tmp_path / "kernel.cu").write_text(result.cuda)
    flags = ["-gencode=arch=compute_90a,code=sm_90a", "-std=c++17", "-shared", "-Xcompiler", "-fPIC"]
    done = subprocess.run([NVCC, *flags, "kernel.cu", "-o", "kernel.so"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(tmp_path / "kernel.so"))
    size = getattr(library, f"{spec.name}_workspace")
    size.restype = ctypes.c_size_t
    given = generate(spec, "random", 0)
    want = run_spec(spec, given.arrays, given.scalars, given.sizes)["O"]
    with opened(*built) as runner, streams(2) as both:
        d = bindings()
        runner.run(given)
        places = [check(d, d.cuMemAlloc(max(16, size()))) for _ in both]
        results = [check(d, d.cuMemAlloc(want.size * 2)) for _ in both]
        for place, out in zip(places, results, strict=True):
            check(d, d.cuMemsetD8(place, 0xFF, max(16, size())))  # the launcher must not rely on what is there
            check(d, d.cuMemsetD8(out, 0xFF, want.size * 2))
        runner.session.wait()
        inputs = [ctypes.c_void_p(runner.session.address(n)) for n in "QKV"]
        for _ in range(TIMES):
            for place, out, stream in zip(places, results, both, strict=True):
                arguments = [*inputs, *(ctypes.c_void_p(int(x)) for x in (out, place, stream))]
                assert getattr(library, f"{spec.name}_launch")(*arguments) == 0
        runner.session.wait()
        dtype = spec.outputs[0].dtype
        for place, out in zip(places, results, strict=True):
            raw = storage_array(np.zeros(want.shape), dtype)
            check(d, d.cuMemcpyDtoH(raw.ctypes.data, out, raw.nbytes))
            got = from_storage(raw, dtype)
            assert np.linalg.norm(got - want) <= 2e-3 * np.linalg.norm(want)
            d.cuMemFree(place)
            d.cuMemFree(out)
