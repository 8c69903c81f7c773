"""A CUDA module: the C++ text, and which kernel of the schedule each of its symbols is.

The kernel's name cannot be read from a symbol, because names of specs and of kernels may contain the separator.  The
mapping is therefore stored with the text.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.records import dataclass
from nautilus.cuda.emit import emit_module
from nautilus.cuda.names import kernel_symbols
from nautilus.cuda.text.statements import Spec, Statements
from nautilus.cuda.text.wrapping import wrapped
from nautilus.ma_tile.ir import ops as ma


@dataclass(frozen=True, slots=True)
class CudaModule:
    """``kernels``: symbol of a ``__global__`` function -> name of the kernel in the schedule."""

    text: str
    kernels: Mapping[str, str]


def lower(module: ma.MemModule, header: tuple[str, ...] = (), spec: Spec | None = None) -> CudaModule:
    """``module`` in CUDA C++. ``header``: lines of the leading comment. Raises UnsupportedError.

    ``spec``: the Spec, whose statements name values and stand in comments; None for a dump.
    """
    text = emit_module(module, header, Statements.of(spec))
    return CudaModule(wrapped(text), kernel_symbols(module))


def format(module: CudaModule) -> str:
    """The text."""
    return module.text
