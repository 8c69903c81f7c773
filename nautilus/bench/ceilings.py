"""Measured ceilings of the GPU: a large cuBLAS GEMM and a device copy.

Both are timed among the contenders in the same shuffled rounds, because the clock of a GPU, and therefore every share
of a ceiling, differs from run to run.  The GEMM (8192^3, f16, random data, cuBLAS through PyTorch) needs PyTorch; the
copy (256 MiB to 256 MiB: 512 MiB of traffic) needs the driver alone.
"""

from __future__ import annotations

from typing import Any

from nautilus.bench.contenders import Contender
from nautilus.runtime.device import check

GEMM, COPY = "cublas 8192^3", "copy 512 MiB"
_SIZE = 8192
_COPIED = 256 << 20


class Copy:
    """Two buffers and the copy from one to the other."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.buffers: list[Any] = []
        for _ in range(2):
            self.buffers.append(check(driver, driver.cuMemAlloc(_COPIED), "allocating buffers of the copy"))
        check(driver, driver.cuMemsetD32(self.buffers[0], 0x3C5A3B17, _COPIED // 4))

    def contender(self) -> Contender:
        """The copy as a contender, with the bytes that it reads and writes."""
        return Contender(COPY, self.run, flops=0.0, bytes=2.0 * _COPIED)

    def run(self) -> None:
        """Start one copy on the default stream."""
        d = self.driver
        source, target = self.buffers
        check(d, d.cuMemcpyDtoDAsync(target, source, _COPIED, 0), "copying")

    def close(self) -> None:
        """Free both buffers."""
        for b in self.buffers:
            self.driver.cuMemFree(b)


def gemm(torch: Any) -> Contender:
    """The cuBLAS GEMM as a contender."""
    a, b = (torch.randn(_SIZE, _SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)

    def run() -> None:
        torch.mm(a, b, out=c)

    return Contender(GEMM, run, flops=2.0 * _SIZE**3, bytes=3.0 * a.element_size() * _SIZE**2)
