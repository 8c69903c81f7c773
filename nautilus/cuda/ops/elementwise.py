"""Printing of runs of elementwise ops: one unrolled register loop for each run, with scalars inside it.

A run is a maximal sequence of ``const``, ``index``, ``param`` and map ops over one register layout, in which
the positions of all ``index`` ops are those of one layout: layouts with equal registers may differ in their lanes.
Values read only inside the run are C scalars; the others get arrays.  Results packed several to a
register (16-bit floats, bytes) end a run and are packed by a loop of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.expr.nodes import free_vars
from nautilus.core.functions import FUNCTIONS
from nautilus.core.types import DType
from nautilus.cuda import positions
from nautilus.cuda.ctypes import literal, memory_type
from nautilus.cuda.expr import UNARY, Text, operand
from nautilus.cuda.intrinsics import BYTES, HALF, PACKED
from nautilus.cuda.registers import register_offset, thread_parts
from nautilus.cuda.writer import Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.traverse import reads

_BYTES = 4  # in a register
Elementwise = ma.ConstOp | ma.IndexOp | ma.ParamOp | ma.MapOp


def count_uses(body: tuple[ma.MemOp, ...]) -> Counter[str]:
    """How many places read each fragment."""
    return Counter(name for op in ma.walk_ops(body) for name in reads(op))


def is_packed(w: Writer, frag: ma.Frag) -> bool:
    """Whether a register of ``frag`` holds two elements."""
    return w.array(frag).pack > 1


def split_run(w: Writer, ops: tuple[ma.MemOp, ...]) -> list[Elementwise]:
    """The run at the head of ``ops`` (not empty: the first op is elementwise)."""
    run: list[Elementwise] = []
    shape = place = None
    for op in ops:
        if not isinstance(op, Elementwise) or is_skippable(op):
            break
        if not isinstance(op, ma.ConstOp | ma.ParamOp):
            layout = w.layout(op.result).reg
            if shape is not None and layout != shape:
                break
            if is_packed(w, op.result):
                return run if run else [op]
            if isinstance(op, ma.IndexOp) and place is not None and not _has_positions(w, op, place):
                break
            place = place or _place(w, [op])
            shape = layout
        run.append(op)
    return run


def _axes(w: Writer, op: ma.IndexOp) -> list[str]:
    """The tile axes whose positions the op reads."""
    return [a for a in w.tile_axes if a in free_vars(op.expr)]


def _place(w: Writer, ops: Sequence[ma.MemOp]) -> str | None:
    """Name of the layout of the first op that reads a position, or None."""
    return next((op.result.layout for op in ops if isinstance(op, ma.IndexOp) and _axes(w, op)), None)


def _has_positions(w: Writer, op: ma.IndexOp, place: str) -> bool:
    """Whether the positions that the op reads are those that each thread and register has under ``place``."""
    own, other = w.layout(op.result), w.all_layouts[place]
    if own == other:
        return True
    return all(
        thread_parts(own, a) == thread_parts(other, a)
        and register_offset(own, a, "r") == register_offset(other, a, "r")
        for a in _axes(w, op)
    )


def is_skippable(op: ma.MemOp) -> bool:
    """Whether the op is one that a warp skips if all its second operands are neutral."""
    return isinstance(op, ma.MapOp) and FUNCTIONS[op.op].skips is not None


def print_skippable(w: Writer, op: ma.MapOp) -> None:
    """Print the operation under a warp vote, in place if this is the last use of the first operand."""
    skips = FUNCTIONS[op.op].skips
    assert skips is not None
    plain, neutral = skips
    value, factor = op.args
    layout = w.layout(op.result)
    ones = w.layout(factor).registers
    if value.name in w.names and w.may_overwrite(value):
        name = w.names[op.result.name] = w.names[value.name]
    else:
        name = w.declare(op.result)
        with w.registers("r", layout.registers) as r:
            w.line(f"{name}[{r}] = {w.element(value, layout, r)};")
    one = literal(neutral, factor.type.dtype)
    changed = " || ".join(f"{w.element_at(factor, str(n))} != {one}" for n in range(ones))
    with w.braces(f"if (__any_sync(0xffffffffu, {changed}))"), w.registers("r", layout.registers) as r:
        scale = w.element(factor, layout, r)
        w.line(
            f"{name}[{r}] = {w.speller.op(plain, [f'{name}[{r}]', scale], [value.type.dtype] * 2, value.type.dtype)};"
        )


def print_run(w: Writer, run: list[Elementwise]) -> None:
    """Print one run; constants and params are spelled where they are used."""
    body: list[ma.IndexOp | ma.MapOp] = []
    for op in run:
        match op:
            case ma.ConstOp(result=result, value=value):
                w.inline[result.name] = literal(value, result.type.dtype)
            case ma.ParamOp(result=result, param=param):
                w.inline[result.name] = w.env[param]
            case _:
                body.append(op)
    if not body:
        return
    if is_packed(w, body[0].result):
        print_packed(w, body[0])
        return
    inside = Counter(name for op in body for name in reads(op))
    w.indices = {op.result.name: op for op in body if isinstance(op, ma.IndexOp)}
    place = _place(w, body) or body[0].result.layout
    body = [op for op in body if not _only_cast(w, op, body, inside)]
    outside = [op.result for op in body if w.uses[op.result.name] > inside[op.result.name]]
    arrays = {frag.name: w.declare(frag) for frag in outside}
    layout = w.layout(body[0].result)
    exprs = [op.expr for op in body if isinstance(op, ma.IndexOp)]
    for op in body:
        if isinstance(op, ma.IndexOp) and op.split and (bounds := positions.bounds(w, op)) is not None:
            w.conditions[op.result.name] = bounds
    with w.registers("r", layout.registers) as r:
        saved = dict(w.scalars)
        with w.positions(place, exprs, r):
            for op in body:
                w.mark(op.span)
                _print_op(w, op, r, arrays)
        w.scalars = saved


def _only_cast(w: Writer, op: ma.IndexOp | ma.MapOp, body: list[ma.IndexOp | ma.MapOp], inside: Counter[str]) -> bool:
    """A position that only conversions to f32 read, which print it themselves."""
    if not isinstance(op, ma.IndexOp) or w.uses[op.result.name] > inside[op.result.name]:
        return False
    readers = [x for x in body if op.result.name in reads(x)]
    return (
        all(
            isinstance(x, ma.MapOp)
            and x.op == "cast"
            and x.result.type.dtype is DType.F32
            and x.result.layout == op.result.layout
            for x in readers
        )
        and op.split
        and positions.as_float(w, op.expr, op.result.layout, "r") is not None
    )


def _print_op(w: Writer, op: ma.IndexOp | ma.MapOp, r: str, arrays: dict[str, str]) -> None:
    result = op.result
    text = value_text(w, op, r)
    local = w.unique(result.name) if result.name not in arrays else arrays[result.name]
    if result.name in arrays:
        w.line(f"{local}[{r}] = {text};")
        w.scalars[result.name] = f"{local}[{r}]"
    else:
        ctype = "bool" if result.type.dtype is DType.BOOL else memory_type(result.type.dtype)
        w.line(f"const {ctype} {local} = {text};")
        w.scalars[result.name] = local


def value_text(w: Writer, op: ma.IndexOp | ma.MapOp, r: str) -> str:
    """C text of one element of an elementwise op's result."""
    layout = w.layout(op.result)
    if isinstance(op, ma.IndexOp):
        if op.result.name in w.conditions:
            return w.conditions[op.result.name]
        cut = positions.condition(w, op.expr, op.result.layout, r) if op.split else None
        if cut is None:
            return positions.whole(w, op.expr, op.result.layout, r) if op.split else w.expr(op.expr, layout, r)
        return cut
    source = w.indices.get(op.args[0].name)
    if source is not None and source.split and op.op == "cast" and op.result.type.dtype is DType.F32:
        cut = positions.as_float(w, source.expr, op.result.layout, r)
        if cut is not None:
            return Text.of(cut, 12)
    if op.op == "cast" and op.result.type.dtype is DType.F32:
        return w.in_f32(op.args[0], layout, r)
    args = [w.element(a, layout, r) for a in op.args]
    return w.speller.op(op.op, args, [a.type.dtype for a in op.args], op.result.type.dtype)


def print_packed(w: Writer, op: ma.IndexOp | ma.MapOp) -> None:
    """Print an op whose results share registers: each array element is built from its neighbours."""
    name, spelled = w.declare(op.result), w.array(op.result)
    dtype = op.result.type.dtype
    pair = _pair_of_bytes(w, op)
    with w.registers("r", spelled.length) as r:
        if isinstance(op, ma.MapOp) and pair is not None:
            w.line(f"{name}[{r}] = {pair}({w.name(op.args[0])}[{r} / 2], {r} % 2);")
        else:
            parts = [packed_part(w, op, _nth(r, spelled.pack, n)) for n in range(spelled.pack)]
            w.line(f"{name}[{r}] = {pack_text(w, parts, dtype, _packed_source(op))};")


def _pair_of_bytes(w: Writer, op: ma.IndexOp | ma.MapOp) -> str | None:
    """The helper that converts two of four numbers of 8 bits in a register to f16 at once; None for other ops."""
    if not (isinstance(op, ma.MapOp) and op.op in ("cast", "narrow") and op.result.type.dtype is DType.F16):
        return None
    (arg,) = op.args
    form = BYTES.get(arg.type.dtype)
    plain = arg.name in w.scalars or (arg.name in w.inline and arg.name not in w.names)
    if form is None or plain or w.array(arg).pack != _BYTES or w.layout(arg).reg != w.layout(op.result).reg:
        return None
    return w.speller.use(f"{form}_to_f16x2")


def _packed_source(op: ma.IndexOp | ma.MapOp) -> DType:
    """The type whose numbers :func:`packed_part` gives, those of 8 bits as f32.

    What is narrowed to 8 bits is in the range of its type.
    """
    dtype = op.result.type.dtype
    if not isinstance(op, ma.MapOp):
        return dtype
    converts = op.op in ("cast", "narrow") and dtype in HALF
    if converts and op.args[0].type.dtype in BYTES:
        return op.args[0].type.dtype
    return DType.F32 if converts or (op.op == "narrow" and dtype in PACKED) else dtype


def packed_part(w: Writer, op: ma.IndexOp | ma.MapOp, at: str) -> str:
    """One element: in f32 where a two-element conversion follows, else in the result's type."""
    if isinstance(op, ma.MapOp) and _packed_source(op) is not op.result.type.dtype:
        (source,) = op.args
        return w.in_f32(source, w.layout(op.result), at, op.result.type.dtype)
    return value_text(w, op, at)


def pack_text(w: Writer, parts: list[str], dtype: DType, source: DType) -> str:
    """A packed register of ``dtype`` from the texts of its elements, which are of type ``source``."""
    if dtype in HALF:
        if source in (DType.F32, *BYTES):
            pack = "truncate_bf16" if dtype is DType.BF16 and source in BYTES else HALF[dtype][2]
            return f"{w.speller.use(pack)}({', '.join(p for p in parts)})"
        low, high = (operand(p, UNARY) for p in parts)
        return f"(u32){low} | (u32){high} << 16"
    if source is DType.F32:
        return f"{w.speller.use(PACKED[dtype])}({', '.join(parts)})"
    return f"{w.speller.use('pack_bytes')}({', '.join(parts)})"


def _nth(r: str, pack: int, n: int) -> str:
    if r == "0":
        return str(n)
    return f"({r} * {pack} + {n})" if n else f"({r} * {pack})"


def print_cast(w: Writer, frag: ma.Frag, dtype: DType) -> ma.Frag:
    """Print a conversion of ``frag`` to ``dtype`` (a store's rounding); returns the new fragment."""
    result = ma.Frag(f"{frag.name}_{dtype}", replace(frag.type, dtype=dtype), frag.layout)
    op = ma.MapOp(result, "cast", (frag,))
    w.uses[result.name] += 1
    w.frags[result.name] = result
    print_run(w, [op])
    return result
