"""Printing of the MA-tile IR: ``parse(format(m)) == m`` for every module.

The ops are printed by their own assembly formats.  A fragment's type and layout stand at its definition only; a
carried argument has those of its initial value, a loop's results those of the arguments.
"""

from __future__ import annotations

from nautilus.core.text.assembly import DECLARATIONS, STEP, form_of, format_module, format_op, format_ops
from nautilus.core.text.assembly import grammar as _grammar
from nautilus.core.text.expressions import format_expr
from nautilus.core.text.syntax import format_type
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, Role
from nautilus.ma_tile.ir.values import MA, Frag, Mbar, PipelineState, Slot, Smem
from nautilus.ma_tile.text.parser import parse

__all__ = ["format", "format_op", "format_ops", "format_type", "grammar", "parse"]


def format(m: MemModule) -> str:
    """The text of a module."""
    return format_module(f"module {m.name} target {m.target}", m.buffers, m.params, map(_kernel, m.kernels))


def _kernel(k: MemKernel) -> list[str]:
    head = f"kernel {k.name} grid {format_expr(k.blocks)} warps {k.warps} min_blocks {k.min_blocks}"
    head += "".join(f" {word} {n}" for word, n in (("consumers", k.consumers), ("cluster", k.cluster)) if n != 1)
    head += " {"
    inner = [f"let {var} = {format_expr(e)}" for var, e in k.decode]
    inner += [f"layout #{name} = {layout}" for name, layout in k.layouts.items()]
    inner += [form_of(type(x)).text(x) for x in (*k.smem, *k.mbars, *k.pipelines)]
    return [head, *(STEP + line for line in inner), *format_ops(k.body, 1), "}"]


_START = {
    "module": "'module' NAME 'target' NAME '{' buffer* param* kernel* '}'",
    **DECLARATIONS,
    "kernel": "'kernel' NAME 'grid' expr 'warps' NUMBER 'min_blocks' NUMBER ['consumers' NUMBER]"
    " ['cluster' NUMBER] '{' let* layout* smem* mbar* pipeline* op* '}'",
    "let": "'let' NAME '=' expr",
    "layout": "'layout' '#'NAME '=' 'reg' modes 'lane' modes 'warp' modes",
    "modes": "'(' [mode, ...] ')'",
    "mode": "AXIS ':' NUMBER 'x' NUMBER | '*' ':' NUMBER",
    "value": "'%'NAME",
}
_PARTS = {
    "smem": Smem,
    "mbar": Mbar,
    "pipeline": PipelineState,
    "type": Frag,
    "slot": Slot,
    "role": Role,
}


def grammar() -> str:
    """The grammar of this text form, from the declarations of the ops."""
    return _grammar(_START, _PARTS, MA.ops)
