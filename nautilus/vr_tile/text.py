"""The text form of the VR-tile IR: ``parse(format(m)) == m`` for every module.

The ops are written by their own assembly formats.  Types of operands are not repeated at their uses: a value's type
stands at its definition, a carried argument has the type of its initial value, a loop's results those of the arguments.
"""

from __future__ import annotations

from nautilus.core.source import Source
from nautilus.core.text.assembly import DECLARATIONS, Reader, form_of, format_module, format_op, format_ops
from nautilus.core.text.assembly import grammar as _grammar
from nautilus.core.text.declarations import Declarations
from nautilus.core.text.syntax import format_axes, read_axis
from nautilus.core.text.tokens import TokenStream
from nautilus.vr_tile.ir import VR, GridAxis, TileKernel, TileModule, TileOp, Value

__all__ = ["format", "format_op", "format_ops", "grammar", "parse"]

_START = {
    "module": "'module' NAME '{' buffer* param* kernel* '}'",
    **DECLARATIONS,
    "kernel": "'kernel' NAME 'grid' '(' [grid, ...] ')' 'axes' '(' axes ')' '{' op* '}'",
    "axes": "[AXIS ':' NUMBER, ...]",
    "value": "'%'NAME",
}


def grammar() -> str:
    """The grammar of this text form, from the declarations of the ops."""
    return _grammar(_START, {"grid": GridAxis, "type": Value}, VR.ops)


def format(m: TileModule) -> str:
    """The text of a module."""
    return format_module(f"module {m.name}", m.buffers, m.params, map(_format_kernel, m.kernels))


def _format_kernel(k: TileKernel) -> list[str]:
    grid = ", ".join(form_of(GridAxis).text(g) for g in k.grid)
    return [f"kernel {k.name} grid({grid}) axes({format_axes(k.axes)}) {{", *format_ops(k.body, 1), "}"]


def parse(text: str, name: str = "<vr-tile>") -> TileModule:
    """The module that ``text`` is, whole. Raises IRParseError."""
    r = Reader(TokenStream(Source(name, text)), VR.forms)
    r.ts.expect("module")
    module = r.ts.name()
    declared = Declarations(r.ts, r.params)
    kernels = r.module(_kernel, declared)
    return TileModule(module, declared.buffers, declared.params, kernels)


def _kernel(r: Reader) -> TileKernel:
    ts, span = r.ts, r.ts.span()
    ts.expect("kernel")
    name = ts.name()
    ts.expect("grid")
    grid = ts.brackets(lambda: GridAxis(**form_of(GridAxis).read(r)), "()")
    ts.expect("axes")
    axes = ts.brackets(lambda: read_axis(r), "()")
    body: list[TileOp] = []
    with ts.braces() as more:
        while more():
            body.append(r.op())
    return TileKernel(name, grid, axes, tuple(body), span)
