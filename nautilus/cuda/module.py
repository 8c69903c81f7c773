"""A CUDA module: the C++ text, and which kernel of the schedule each of its symbols is.

The kernel's name cannot be read from a symbol, because names of specs and of kernels may contain the separator.  The
mapping is therefore stored with the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from nautilus.core.records import dataclass
from nautilus.cuda.emit import emit_module
from nautilus.cuda.names import kernel_symbols
from nautilus.cuda.text.statements import Spec, Statements
from nautilus.cuda.text.wrapping import wrapped
from nautilus.ma_tile.ir import ops as ma

#: The lines of the leading comment, found when they are asked for: the error bound in them takes long.
Header: TypeAlias = Callable[[], Sequence[str]]


def no_header() -> Sequence[str]:
    """The header of a text without one."""
    return ()


@dataclass(frozen=True, slots=True)
class CudaModule:
    """``code``: the text without its leading comment ``header``; ``kernels``: symbol of a ``__global__`` function ->
    name of the kernel in the schedule."""

    code: str
    kernels: Mapping[str, str]
    header: Header = no_header

    @property
    def text(self) -> str:
        """The whole text."""
        comment = "".join(f"// {line}".rstrip() + "\n" for line in self.header())
        return "\n".join(p for p in (comment, self.code) if p)


def lower(module: ma.MemModule, header: Header = no_header, spec: Spec | None = None) -> CudaModule:
    """``module`` in CUDA C++. Raises UnsupportedError.

    ``spec``: the Spec, whose statements name values and stand in comments; None for a dump.
    """
    return CudaModule(wrapped(emit_module(module, Statements.of(spec))), kernel_symbols(module), header)


def format(module: CudaModule) -> str:
    """The text."""
    return module.text
