"""A :class:`~nautilus.bench.protocol.Clock` for GPUs that uses CUDA events on the default stream.

The spin kernel is one thread that sleeps and reads the global timer (PTX ISA, "%globaltimer", "nanosleep"); it uses
almost no power, so the clock recovers.  All work is on the legacy default stream, which PyTorch uses by default.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from nautilus.bench.protocol import Burst, Run, Sample
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
    """Times work on the default stream; needs a current CUDA context."""

    def __init__(self, arch: str) -> None:
        d = self.driver = bindings()
        cubin = compile_cuda(SPIN_SOURCE, arch, name="spin.cu").data
        self._module: Any = check(d, d.cuModuleLoadData(cubin), "loading the spin kernel")
        self._spin: Any = check(d, d.cuModuleGetFunction(self._module, b"spin"))

    def one(self, run: Run, spin: float) -> Sample:
        """Seconds of one ``run`` on the GPU and on the host, which starts it ``spin`` seconds ahead."""
        host = 0.0

        def watched() -> None:
            nonlocal host
            before = time.perf_counter()
            run()
            host = time.perf_counter() - before

        self.wait()
        (seconds,) = self.bursts([Burst("", watched, 1, spin)])
        return Sample(seconds, host)

    def bursts(self, plan: Sequence[Burst]) -> list[float]:
        """Seconds of a run in each burst of ``plan``, by events around the burst."""
        d = self.driver
        marks = [(check(d, d.cuEventCreate(0)), check(d, d.cuEventCreate(0))) for _ in plan]
        try:
            for b, (start, stop) in zip(plan, marks, strict=True):
                if b.lead > 0.0:
                    self.spin(b.lead)
                check(d, d.cuEventRecord(start, 0))
                for _ in range(b.count):
                    b.run()
                check(d, d.cuEventRecord(stop, 0))
            self.wait()
            taken = [1e-3 * float(check(d, d.cuEventElapsedTime(*pair))) for pair in marks]
        finally:
            for event in (e for pair in marks for e in pair):
                d.cuEventDestroy(event)
        return [seconds / b.count for seconds, b in zip(taken, plan, strict=True)]

    def spin(self, seconds: float) -> None:
        """Enqueue a spin of ``seconds``."""
        d = self.driver
        cell = np.array([int(seconds * 1e9)], dtype=np.uint64)
        pointers = np.array([cell.ctypes.data], dtype=np.uint64)
        check(d, d.cuLaunchKernel(self._spin, 1, 1, 1, 1, 1, 1, 0, 0, pointers.ctypes.data, 0), "launching the spin")

    def wait(self) -> None:
        """Wait for all work.  Raises ToolchainError after a fault in a kernel."""
        check(self.driver, self.driver.cuCtxSynchronize(), "running a contender")

    def close(self) -> None:
        """Unload the kernel that spins."""
        self.driver.cuModuleUnload(self._module)
