"""The real :class:`~nautilus.bench.protocol.Clock`: events of the driver on the default stream.

The spin kernel is one thread that sleeps and reads the global timer (PTX ISA, "%globaltimer",
"nanosleep"): next to no power, so the clock recovers.  Everything is on the legacy default stream, which
PyTorch uses too unless told otherwise.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from nautilus.bench.protocol import Run, Sample
from nautilus.runtime.device import bindings, check
from nautilus.runtime.nvrtc import compile_cuda

SPIN_SOURCE = """\
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        __nanosleep(2000);
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}
"""


class GpuClock:
    """Times work that is enqueued on the default stream. Needs a current context."""

    def __init__(self, arch: str) -> None:
        d = self.driver = bindings()
        cubin = compile_cuda(SPIN_SOURCE, arch, name="spin.cu").data
        self._module: Any = check(d, d.cuModuleLoadData(cubin), "loading the spin kernel")
        self._spin: Any = check(d, d.cuModuleGetFunction(self._module, b"spin"))
        self._start: Any = check(d, d.cuEventCreate(0))
        self._stop: Any = check(d, d.cuEventCreate(0))

    def one(self, run: Run, spin: float) -> Sample:
        return self._measure(run, 1, spin)

    def burst(self, run: Run, count: int, lead: float) -> float:
        return self._measure(run, count, lead).gpu

    def _measure(self, run: Run, count: int, spin: float) -> Sample:
        d = self.driver
        self.wait()
        if spin > 0.0:
            self.spin(spin)
        check(d, d.cuEventRecord(self._start, 0))
        before = time.perf_counter()
        for _ in range(count):
            run()
        host = (time.perf_counter() - before) / count
        check(d, d.cuEventRecord(self._stop, 0))
        self.wait()
        seconds = 1e-3 * float(check(d, d.cuEventElapsedTime(self._start, self._stop)))
        return Sample(seconds / count, host)

    def spin(self, seconds: float) -> None:
        """Enqueue a spin of ``seconds``."""
        d = self.driver
        cell = np.array([int(seconds * 1e9)], dtype=np.uint64)
        pointers = np.array([cell.ctypes.data], dtype=np.uint64)
        check(d, d.cuLaunchKernel(self._spin, 1, 1, 1, 1, 1, 1, 0, 0, pointers.ctypes.data, 0), "launching the spin")

    def wait(self) -> None:
        """Wait for everything; a fault in a kernel is raised here."""
        check(self.driver, self.driver.cuCtxSynchronize(), "running a contender")

    def close(self) -> None:
        d = self.driver
        d.cuEventDestroy(self._start)
        d.cuEventDestroy(self._stop)
        d.cuModuleUnload(self._module)
