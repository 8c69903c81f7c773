"""Prints stores that combine with what is in memory, and stores of rows that begin anywhere.

Registers that follow each other often meet at one element, because neighbouring terms have one key.  A thread combines
such a run, and writes where the next element begins.  Lanes whose elements may be the same combine what is left; lanes
along an axis that moves the element have nothing in common.

A vector of a row that is aligned in memory has elements of two vectors of the stage
(:mod:`nautilus.ma_tile.ir.row_store`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from math import prod

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, identity
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.cuda.atomics import COMBINED
from nautilus.cuda.ctypes import literal, memory_type
from nautilus.cuda.expr import CONDITION, SUM, Text, operand
from nautilus.cuda.ops.elementwise import print_cast
from nautilus.cuda.ops.movement import (
    element_offset,
    global_pointer,
    place_exprs,
    plus,
    print_global_store,
    register_strides,
    scaled,
    slot_offset,
    tile_byte,
    tile_row_col,
)
from nautilus.cuda.registers import times
from nautilus.cuda.writer import Printers, Writer
from nautilus.ma_tile.analysis.access import key_dimensions
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.row_store import threads_along
from nautilus.targets.limits import VECTOR_BYTES, WARP


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
    if op.scratch is not None:
        _print_in_block(w, op, frag, c)
        return
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


def _print_in_block(w: Writer, op: ma.GlobalStore, frag: ma.Frag, c: _Combiner) -> None:
    """Print a scatter into the scratch of the block."""
    assert op.scratch is not None
    layout, keys = w.layout(frag), key_dimensions(w.module.buffer(op.buffer), op.index, op.value.type.names)
    own = _scratch(w, op.scratch, c)
    if c.kind == "u32":  # one instruction combines all lanes with the same element
        with w.registers("r", layout.registers) as r:
            w.line(f"{w.speller.use('put_add')}({_in_block(w, op, frag, c, keys, r, f'{own} + ')});")
        return
    place, waiting, r = w.unique("place"), w.unique("waiting"), w.unique("term")
    with w.braces(""):
        w.line(f"{c.kind} {waiting} = 0;")
        w.line(f"int {place} = -1;")
        w.line("#pragma unroll")
        with w.braces(f"for (int {r} = 0; {r} < {layout.registers}; ++{r})"):
            call = w.speller.use(f"extend_at_{c.suffix}")
            w.line(f"{call}({own}, {place}, {waiting}, {_in_block(w, op, frag, c, keys, r, '')});")
        w.line(f"{w.speller.use(f'put_at_{c.suffix}')}({place} >= 0, {own} + {place}, {waiting});")


def _in_block(
    w: Writer, op: ma.GlobalStore, frag: ma.Frag, c: _Combiner, keys: Sequence[int], r: str, base: str
) -> str:  # fmt: skip
    """The last arguments of a call: whether register ``r`` counts, ``base`` with its place, and its value."""
    layout = w.layout(frag)
    at: Expr = Const(0, DType.I32)
    for e, n in zip(op.index[len(op.index) - len(keys) :], keys, strict=True):
        at = simplify(calc("add", calc("mul", at, n), e))
    count = _copies(w, op)
    with w.positions(frag.layout, [at] if op.mask is None else [at, op.mask], r):
        mask = "" if op.mask is None else w.expr(op.mask, layout, r)
        first = w.first_holder(layout)
        active = f"{first} && ({mask})" if first and mask else first or mask or "true"
        place = w.expr(at, layout, r)
    if count > 1:
        copy = w.lane if count == WARP else f"{w.lane} % {count}"
        place = f"{times(place, count)} + {copy}"
    value = f"({c.kind}){w.name(frag)}[{r}]" if c.kind.startswith("u") else f"{w.name(frag)}[{r}]"
    return f"{active}, {base}{operand(place, SUM) if base else place}, {value}"


def _scratch(w: Writer, name: str, c: _Combiner) -> str:
    """The pointer to the scratch of a block."""
    return f"reinterpret_cast<{c.kind}*>({w.pointer} + {w.place(name)})"


def print_block_start(w: Writer, ops: Iterable[ma.GlobalStore]) -> None:
    """Print what fills the scratch of a block with the identity."""
    for op in ops:
        assert op.scratch is not None and op.combiner is not None
        dtype = w.module.buffer(op.buffer).dtype
        i, start = w.unique("i"), literal(identity(op.combiner, dtype.compute).value, dtype.compute)
        own = _scratch(w, op.scratch, _combiner(op.combiner, dtype))
        with w.braces(_each_element(w, op, i)):
            w.line(f"({own})[{i}] = {start};")
    w.line("__syncthreads();")


def print_block_end(w: Writer, ops: Iterable[ma.GlobalStore]) -> None:
    """Print what combines the scratch of a block with memory."""
    w.line("__syncthreads();")
    for op in ops:
        assert op.scratch is not None and op.combiner is not None
        buffer = w.module.buffer(op.buffer)
        keys, count = key_dimensions(buffer, op.index, op.value.type.names), _copies(w, op)
        c, i, start = _combiner(op.combiner, buffer.dtype), w.unique("i"), identity(op.combiner, buffer.dtype.compute)
        leading = op.index[: len(op.index) - len(keys)]
        zero = tuple(Const(0, DType.I32) for _ in keys)
        own = _scratch(w, op.scratch, c)
        x = w.unique("x")  # the buffer, which the same statement names, may be another x
        with w.braces(_each_element(w, op, i, count)):
            if count == 1:
                w.line(f"const {c.kind} {x} = ({own})[{i}];")
            else:
                _print_combined(w, c, x, f"({own} + {times(i, count)})", count)
            at = element_offset(w, buffer, [w.expr(e) for e in (*leading, *zero)])
            target = f"reinterpret_cast<{c.kind}*>({w.env['&' + op.buffer]} + ({at})) + {i}"
            put = w.speller.use(f"put_{c.suffix}")
            w.line(f"{put}({x} != ({c.kind}){literal(start.value, buffer.dtype.compute)}, {target}, {x});")


def _print_combined(w: Writer, c: _Combiner, x: str, copies: str, count: int) -> None:
    """Print the variable ``x``, which combines ``count`` ``copies``; neighbouring threads begin with different ones."""
    n, (combined, needs) = w.unique("n"), COMBINED[c.suffix]
    for name in needs:
        w.speller.use(name)
    w.line(f"{c.kind} {x} = {copies}[threadIdx.x % {count}];")
    w.line("#pragma unroll")
    with w.braces(f"for (int {n} = 1; {n} < {count}; ++{n})"):
        w.line(f"const {c.kind} y = {copies}[(threadIdx.x + {n}) % {count}];")
        w.line(f"{x} = {combined.format(x=x)};")


def _copies(w: Writer, op: ma.GlobalStore) -> int:
    """The copies of each element of the scratch of a block."""
    return prod(a.size for a in w.smem[op.scratch or ""].axes[1:])


def _each_element(w: Writer, op: ma.GlobalStore, i: str, copies: int = 1) -> str:
    count = prod(a.size for a in w.smem[op.scratch or ""].axes) // copies
    return f"for (int {i} = threadIdx.x; {i} < {count}; {i} += {32 * w.kernel.warps})"


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


def print_rows(w: Writer, op: ma.RowStore) -> None:
    """Print the aligned vectors of all rows, then the elements before the first and after the last one of each row."""
    rows, layout = _Rows(w, op, *(w.unique(x) for x in ("at", "past", "place", "n", "m"))), w.kernel.layouts[op.threads]
    at, past, n, m, vec = rows.at, rows.past, rows.n, rows.m, rows.vec
    each = prod(x.size for x in layout.reg if x.axis == rows.axis.name)
    holder, exprs = w.first_holder(layout), place_exprs(w, op, op.threads)
    with w.registers("r", layout.registers, vec, holder) as r, w.braces(""), w.positions(op.threads, exprs, r):
        rows.declare(r)
        ends = [c for x in (f"{at} - {past}", f"{at} - {past} + {vec - 1}") if (c := rows.holds(r, x))]
        with w.braces(f"if ({' && '.join((f'{at} > 0', *ends))})"):
            two, skip = rows.staged(r, f"{at} - {vec}"), rows.bytes(f"{vec} - {past}")
            value = f"{w.speller.use('shifted_vector')}({two}, {skip})"
            w.line(f"*reinterpret_cast<uint4*>({rows.place} - {past}) = {value};")
        if ends:
            loop = f"for (int {n} = {at} - {past}; {n} < {at} - {past} + {vec}; ++{n})"
            with w.braces(f"else if ({at} > 0)"), w.braces(loop):
                rows.print_element(r)
    with w.registers("r", layout.registers, each, holder) as r, w.braces(""), w.positions(op.threads, exprs, r):
        rows.declare(r)
        step = threads_along(layout, rows.axis.name)
        with w.braces(f"for (int {m} = {at} / {vec}; {m} < {vec}; {m} += {step})"):
            w.line(f"const int {n} = {m} < {vec} - {past} ? {m} : {rows.axis.size - vec} + {m};")
            rows.print_element(r)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The names of the variables of a store of rows.

    ``at``: a position in the row; ``past``: elements by which the row begins after a multiple of 16 bytes; ``place``:
    the pointer to position ``at`` in memory.
    """

    w: Writer
    op: ma.RowStore
    at: str
    past: str
    place: str
    n: str
    m: str

    @property
    def stage(self) -> ma.Smem:
        return self.w.smem[self.op.slot.buffer]

    @property
    def axis(self) -> TileAxis:
        """The contiguous axis."""
        return self.stage.axes[-1]

    @property
    def vec(self) -> int:
        """Elements of a vector."""
        return VECTOR_BYTES // self.stage.dtype.bytes

    def bytes(self, elements: str) -> str:
        """Bytes of this many ``elements``, which are a sum."""
        return scaled(Text.of(elements, SUM), self.stage.dtype.bytes)

    def declare(self, r: str) -> None:
        """Print position and pointer of register ``r``."""
        w, op = self.w, self.op
        w.line(f"const int {self.at} = {w.position(op.threads, self.axis.name, r)};")
        pointer = global_pointer(w, op.buffer, op.index, op.threads, r)
        w.line(f"{memory_type(self.stage.dtype)}* const {self.place} = {pointer};")
        w.line(f"const int {self.past} = (int)((u64){self.place} % {VECTOR_BYTES}) / {self.stage.dtype.bytes};")

    def staged(self, r: str, column: str) -> str:
        """The pointer to position ``column`` of the row of register ``r`` in the stage."""
        w, slot = self.w, self.op.slot
        row, _ = tile_row_col(w, slot, {a.name: w.position(self.op.threads, a.name, r) for a in self.stage.axes[:-1]})
        return f"{w.pointer} + {slot_offset(w, slot)} + {tile_byte(w, slot, row, Text.of(column, SUM))}"

    def holds(self, r: str, column: str) -> str:
        """The condition at position ``column`` of the row of register ``r``; empty where there is none."""
        w, axis = self.w, self.axis.name
        if self.op.mask is None:
            return ""
        saved = dict(w.env)
        w.env[axis] = Text.of(column, SUM)
        text = operand(w.expr(self.op.mask, w.kernel.layouts[self.op.threads], r), CONDITION)
        w.env.clear()
        w.env.update(saved)
        return text

    def print_element(self, r: str) -> None:
        """Print the store of the element at position ``n`` of the row of register ``r``."""
        word = {1: "unsigned char", 2: "u16", 4: "u32"}[self.stage.dtype.bytes]
        target = f"*reinterpret_cast<{word}*>({self.place} + ({self.n} - {self.at}))"
        store = f"{target} = *reinterpret_cast<const {word}*>({self.staged(r, self.n)});"
        condition = self.holds(r, self.n)
        self.w.line(f"if ({condition}) {store}" if condition else store)


#: op class -> what prints it
PRINTERS: Printers = {ma.GlobalStore: print_store, ma.RowStore: print_rows}
