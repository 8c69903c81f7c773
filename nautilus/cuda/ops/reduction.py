"""Printing of ``reduce``: registers, then a butterfly over lanes, then warps through shared memory."""

from __future__ import annotations

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import COMBINERS
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal, memory_type
from nautilus.cuda.registers import (
    bare,
    digit,
    first_of_reduction,
    projected_register,
    shuffle_distances,
    times,
    warp_digits,
)
from nautilus.cuda.writer import Printers, Writer
from nautilus.ma_tile.ir import ops as ma


def print_reduce(w: Writer, op: ma.ReduceOp) -> None:
    """Print a reduction. Each step combines in one order, so that all copies of a result element have the same bits.

    Raises UnsupportedError.
    """
    layout, dtype = w.layout(op.arg), op.result.type.dtype
    name = w.declare(op.result)
    kept = tuple(a for a in layout.axes if a not in op.axes)  # lanes are combined below
    count = layout.project(kept).registers
    with w.registers("r", layout.registers) as r:
        at = projected_register(layout, kept, r)
        x = w.element(op.arg, layout, r)
        first = first_of_reduction(layout, op.axes, r) if r != "0" else "true"
        target = f"{name}[{bare(at)}]"
        combined = combine(w, op.combiner, target, x, dtype)
        if op.times is not None:
            factor = w.element(op.times, layout, r)
            combined = w.speller.op("fma", [x, factor, target], [dtype] * 3, dtype)
            x = w.speller.op("mul", [x, factor], [dtype] * 2, dtype)
        only = first == "true"
        value = x if only else f"{first} ? {x} : {combined}"
        if op.where is None:
            w.line(f"{target} = {value};")
        elif _converts(w.kernel, op):  # in both sides of a conditional expression, each would stand behind a branch
            ctype, zero = memory_type(dtype), literal(0.0, dtype)
            w.line(f"const {ctype} {name}_before = {zero if only else f'{first} ? {zero} : {target}'};")
            w.line(f"const {ctype} {name}_after = {value};")
            w.line(f"{target} = {w.element(op.where, layout, r)} ? {name}_after : {name}_before;")
        else:
            condition = w.element(op.where, layout, r)
            x, combined = f"({condition} ? {x} : 0)", f"({condition} ? {combined} : {target})"
            w.line(f"{target} = {x if only else f'{first} ? {x} : {combined}'};")
    if op.into is not None:
        return
    distances = shuffle_distances(layout, op.axes)
    if distances is None:
        raise UnsupportedError("a reduction over a number of lanes that is no power of two")
    for d in distances:
        with w.registers("r", count) as r:
            other = _shuffle(f"{name}[{r}]", d, dtype)
            if dtype is not DType.BOOL:
                w.line(f"{name}[{r}] = {combine(w, op.combiner, f'{name}[{r}]', other, dtype)};")
                continue
            with w.braces(""):  # every lane shuffles, whether its own value decides already or not
                w.line(f"const bool other = {other};")
                w.line(f"{name}[{r}] = {combine(w, op.combiner, f'{name}[{r}]', 'other', dtype)};")
    digits = warp_digits(layout, op.axes)
    if digits:
        across_warps(w, op, name, count, digits)


def _converts(kernel: ma.MemKernel, op: ma.ReduceOp) -> bool:
    """Whether the terms of ``op`` are computed from elements that are converted from fewer than 32 bits.

    NVRTC computes what a conditional expression needs behind a branch, unless it is few instructions.  Conversions are
    more, and it repeats them in each branch: a filter of 7 x 7 on f16 had 277 branches in each step of its loop.
    """
    made = {x.result.name: x for x in ma.walk_ops(kernel.body) if isinstance(x, ma.MapOp)}
    stack = [f for f in (op.arg, op.times) if f is not None]
    while stack:
        found = made.get(stack.pop().name)
        if found is not None:
            if found.op == "cast" and found.args[0].type.dtype.bits < DType.F32.bits:
                return True
            stack.extend(found.args)
    return False


def _shuffle(x: str, distance: int, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return f"(__shfl_xor_sync(0xffffffffu, (int){x}, {distance}) != 0)"
    return f"__shfl_xor_sync(0xffffffffu, {x}, {distance})"


def combine(w: Writer, combiner: str, a: str, b: str, dtype: DType) -> str:
    """C text of ``a op b``."""
    return w.speller.op(COMBINERS[combiner].binary, [a, b], [dtype, dtype], dtype)


def across_warps(w: Writer, op: ma.ReduceOp, name: str, count: int, digits: tuple[tuple[int, int], ...]) -> None:
    """Every warp writes its partials to scratch, a barrier, every warp combines all in one order."""
    assert op.scratch is not None, "the verifier demands scratch where warps split a reduced axis"
    dtype = op.result.type.dtype
    ctype = memory_type(dtype)
    total = 1
    for _, size in digits:
        total *= size
    with w.braces(""):
        w.line(f"{ctype}* partial = reinterpret_cast<{ctype}*>({w.pointer} + {w.place(op.scratch)});")
        with w.registers("r", count) as r:
            w.line(f"{scratch_element(w, w.warp, count, r)} = {name}[{r}];")
        w.line("__syncthreads();")
        own = " - ".join([w.warp, *(times(digit(w.warp, div, size, False), div) for div, size in digits)])
        w.line(f"const int first = {own};")
        with w.registers("r", count) as r:
            for p in range(total):
                offset, rest = 0, p
                for div, size in digits:
                    offset += (rest % size) * div
                    rest //= size
                load = scratch_element(w, f"(first + {offset})" if offset else "first", count, r)
                load = f"({load} != 0)" if dtype is DType.BOOL else load
                target = f"{name}[{r}]"
                text = load if p == 0 else combine(w, op.combiner, target, load, dtype)
                w.line(f"{target} = {text};")


def scratch_element(w: Writer, warp: str, count: int, r: str) -> str:
    """The element of scratch memory that register ``r`` of ``count``, of this lane in ``warp``, is written to."""
    place = warp if count == 1 else f"({warp} * {count})" if r == "0" else f"({warp} * {count} + {r})"
    return f"partial[{place} * 32 + {w.lane}]"


#: op class -> what prints it
PRINTERS: Printers = {
    ma.ReduceOp: print_reduce,
}
