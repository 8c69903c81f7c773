"""``prefetch-steps``: kernels that it leaves as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nautilus.ma_tile.passes.steps.prefetch_steps import _kernel


def test_a_kernel_of_several_consumers_stays() -> None:
    for consumers in (2, 3):
        kernel: Any = SimpleNamespace(consumers=consumers)
        assert _kernel(kernel, "sm_90a", None) is kernel
