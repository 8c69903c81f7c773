"""The host time of launches, with functions in place of those of a library and of the driver."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from nautilus.api.launch_time import _BATCH, _BATCHES, _LOOP, HostTime, loaded, measured
from nautilus.core.errors import InputError
from nautilus.export.host_compiler import compile_library


def test_the_median_of_the_batches_of_each_kernel() -> None:
    waits: list[int] = []
    spent = iter([1e9] * 8 + [float(2 * _BATCH * n) for n in range(1, _BATCHES + 1)])  # the first calls are not timed
    middle, least = measured(lambda: next(spent), lambda: waits.append(1), kernels=2)
    assert (middle, least) == ((_BATCHES + 1) / 2, 1.0) and len(waits) == _BATCHES + 8
    assert HostTime("k", 2, 1234.0, 1000.0).row()["median us"] == "1.23"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_loop_launches_and_ends_at_an_error(tmp_path: Path) -> None:
    loop = loaded(compile_library(_LOOP, "so"), tmp_path / "loop.so")
    loop.batch.restype = ctypes.c_double
    seen: list[tuple[int, int]] = []

    def launched(plan: int, stream: int) -> int:
        seen.append((plan, stream))
        return 700 if len(seen) == 8 else 0

    launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(launched)
    assert loop.batch(launch, ctypes.c_void_p(64), ctypes.c_void_p(5), 4) >= 0 and seen == [(64, 5)] * 4
    with pytest.raises(InputError, match="CUDA error 700"):
        measured(lambda: float(loop.batch(launch, ctypes.c_void_p(64), None, 4)), lambda: None, 1)
    assert len(seen) == 8
