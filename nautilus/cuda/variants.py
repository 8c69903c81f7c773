"""The text of several variants of a spec: the kernels of each, and host functions that choose among them."""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.cuda.emit import device_part, whole_text
from nautilus.cuda.host.choice import Choice, check_dispatch, host_part
from nautilus.cuda.module import CudaModule, Header, no_header
from nautilus.cuda.names import kernel_symbols
from nautilus.cuda.text.statements import Spec, Statements
from nautilus.cuda.text.wrapping import wrapped
from nautilus.ma_tile.ir.ops import MemKernel, MemModule


def lower_variants(choice: Choice, header: Header = no_header, spec: Spec | None = None) -> CudaModule:
    """Variants of one spec with names of their own in one text. Raises UnsupportedError.

    ``spec``: as :func:`.module.lower`.
    """
    check_dispatch(choice)
    statements = Statements.of(spec)
    text = whole_text([device_part(m, statements) for m in choice.modules], host_part(choice))
    kernels = {symbol: f"{m.name}.{kernel}" for m in choice.modules for symbol, kernel in kernel_symbols(m).items()}
    return CudaModule(wrapped(text), kernels, header)


def lower_kernels(parts: Sequence[tuple[MemModule, Sequence[MemKernel]]], spec: Spec | None = None) -> CudaModule:
    """Some kernels of each module with nothing that launches them, as :func:`lower_variants` prints them.

    ``spec``: as :func:`.module.lower`.
    """
    statements = Statements.of(spec)
    kernels = {symbol: f"{m.name}.{kernel}" for m, only in parts for symbol, kernel in kernel_symbols(m, only).items()}
    devices = [device_part(m, statements, only) for m, only in parts]
    return CudaModule(wrapped(whole_text(devices, "")), kernels)
