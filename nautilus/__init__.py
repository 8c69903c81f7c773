"""nautilusc: from mathematics to a CUDA kernel, every step printed and every step checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nautilus.api.kernel import Kernel

__version__ = "0.1.0"


def compile(spec: Any, dims: Any = None, **options: Any) -> Kernel:
    """The kernel of a spec, as a function on arrays of the device: ``compile("s.naut", dims={"N": 64})(q, k, v)``.

    :func:`nautilus.api.compile.compile_kernel` describes the options.
    """
    from nautilus.api.compile import compile_kernel

    return compile_kernel(spec, dims, **options)
