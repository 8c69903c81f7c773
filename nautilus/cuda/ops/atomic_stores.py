"""Prints stores that combine with what is in memory.

Registers that follow each other often meet at one element, because neighbouring terms have one key.  A thread combines
such a run, and writes where the next element begins.  Lanes whose elements may be the same combine what is left; lanes
along an axis that moves the element have nothing in common.
"""

from __future__ import annotations

from collections.abc import Set

from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ctypes import memory_type
from nautilus.cuda.ops.elementwise import print_cast
from nautilus.cuda.ops.movement import global_pointer, place_exprs, plus, print_global_store, register_strides
from nautilus.cuda.writer import Printers, Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import FragLayout


@dataclass(frozen=True, slots=True)
class _Combiner:
    """A combiner in C: its functions (``cuda.atomics``), and the type of an element that these take."""

    suffix: str
    kind: str


def print_store(w: Writer, op: ma.GlobalStore) -> None:
    """Print a store of registers to global memory, which may combine with what is there."""
    if op.combiner is None:
        print_global_store(w, op)
        return
    buffer = w.module.buffer(op.buffer)
    frag = op.value if op.value.type.dtype is buffer.dtype else print_cast(w, op.value, buffer.dtype)
    layout, c = w.layout(frag), _combiner(op.combiner, buffer.dtype)
    strides = register_strides(buffer, op.index, layout.axes)
    moving = {axis for axis, s in strides.items() if s.step != 0}
    call = f"combine_{c.suffix}" if _lanes_meet(layout, moving) else f"put_{c.suffix}"
    run = _run(layout, moving)
    if run == 1:
        with w.registers("r", layout.registers) as r:
            _print_term(w, op, frag, c, r, f"{w.speller.use(call)}(")
        return
    place, waiting, r = w.unique("place"), w.unique("waiting"), w.unique("term")  # loops inside have an r
    with w.registers("k", layout.registers, run) as k:
        w.line(f"{c.kind} {waiting} = 0, *{place} = nullptr;")
        w.line("#pragma unroll")
        with w.braces(f"for (int {r} = {k}; {r} < {plus(k, run)}; ++{r})"):
            _print_term(w, op, frag, c, r, f"{w.speller.use(f'extend_{c.suffix}')}({place}, {waiting}, ")
        w.line(f"{w.speller.use(call)}({place} != nullptr, {place}, {waiting});")


def _print_term(w: Writer, op: ma.GlobalStore, frag: ma.Frag, c: _Combiner, r: str, call: str) -> None:
    """Print ``call``, whose last arguments are whether register ``r`` counts, its element, and its value."""
    layout = w.layout(frag)
    with w.positions(frag.layout, place_exprs(w, op, frag.layout), r):
        pointer = global_pointer(w, op.buffer, op.index, frag.layout, r)
        mask = "" if op.mask is None else w.expr(op.mask, layout, r)
        first = w.first_holder(layout)
        active = f"{first} && ({mask})" if first and mask else first or mask or "true"
        value = f"{w.name(frag)}[{r}]"
        if c.kind.startswith("u"):  # sums, which wrap
            pointer, value = f"reinterpret_cast<{c.kind}*>({pointer})", f"({c.kind}){value}"
        w.line(f"{call}{active}, {pointer}, {value});")


def _combiner(combiner: str, dtype: DType) -> _Combiner:
    if dtype.is_float:
        return _Combiner(f"{combiner}_f32", "float")
    if combiner == "sum":
        return _Combiner("add", "u64" if dtype.bytes == 8 else "u32")
    return _Combiner(combiner, memory_type(dtype))


def _run(layout: FragLayout, moving: Set[str]) -> int:
    """The number of neighbouring registers whose elements differ by their keys alone."""
    run = 1
    for m in layout.reg:
        if m.size > 1 and m.axis in moving:
            break
        run *= m.size
    return run


def _lanes_meet(layout: FragLayout, moving: Set[str]) -> bool:
    """Whether lanes may have the same element."""
    return any(m.size > 1 and m.axis is not None and m.axis not in moving for m in layout.lane)


#: op class -> what prints it
PRINTERS: Printers = {ma.GlobalStore: print_store}
