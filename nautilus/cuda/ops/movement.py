"""Prints loads, stores and copies between global memory, shared memory and registers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import Expr, Load, Op, Param, Var, free_vars, rewrite, walk
from nautilus.core.index.simplify import bounds
from nautilus.core.index.sizes import Extent, at_most, total, volume
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ctypes import memory_type, pack_of
from nautilus.cuda.expr import CONDITION, PRODUCT, Text, operand
from nautilus.cuda.ops.elementwise import print_cast
from nautilus.cuda.registers import group, register_offset
from nautilus.cuda.writer import Printers, Writer, calls
from nautilus.ma_tile.analysis.access import Nearest, affine, nearest_of
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import FragLayout, tile_shape

_WORDS = {16: "uint4", 8: "uint2", 4: "u32", 2: "u16", 1: "unsigned char"}
_BITWISE = {"and": "bit_and", "or": "bit_or"}
_FIELDS = ("x", "y", "z", "w")


def element_offset(w: Writer, buffer: Buffer, texts: list[str]) -> str:
    """Element offset of an index into a buffer; in 64 bits if the largest size of the buffer may need them."""
    wide = "(long long)" if buffer.strides is not None or at_most(volume(buffer.shape)) >= 2**31 else ""
    terms = list[str]()
    for n, text in enumerate(texts):
        if text != "0":
            stride = stride_text(w, buffer.stride(n))
            terms.append(scaled(Text.of(f"{wide}({text})", 14) if wide else text, stride))
    return " + ".join(terms) or "0"


def stride_text(w: Writer, stride: Extent) -> int | str:
    """A stride as a number, or as C text for an operand of a product; in 64 bits if its largest value needs them."""
    if isinstance(stride, int):
        return stride
    saved = dict(w.env)
    if at_most(stride) >= 2**31:
        w.env.update({n.name: Text.of(f"(long long){w.env[n.name]}", 14) for n in walk(stride) if isinstance(n, Param)})
    text = w.expr(stride)
    w.env = saved
    return operand(text, 14)


def scaled(text: str, stride: int | str) -> str:
    """``text * stride`` as a term of a sum, with parentheses if they are necessary."""
    atom = group(text) == text
    strength = text.strength if isinstance(text, Text) else 20 if atom else 12
    if strength < (12 if stride == 1 else 13):
        text = f"({text})"
    return text if stride == 1 else f"{text} * {stride}"


@dataclass(frozen=True, slots=True)
class Stride:
    """Elements between two positions along an axis, and the largest magnitude of this number."""

    step: Extent
    largest: int


def register_strides(buffer: Buffer, index: tuple[Expr, ...], axes: Sequence[str]) -> dict[str, Stride]:
    """The stride of each tile axis on which ``index`` depends linearly."""
    strides: dict[str, Stride] = {}
    inner = [buffer.stride(n) for n in range(len(index))]
    forms = [affine(e) for e in index]
    for axis in axes:
        inside = any(axis in free_vars(atom) and not isinstance(atom, Var) for f in forms for atom in f.terms)
        if not inside:
            slopes = [(f.slope(axis), n) for f, n in zip(forms, inner, strict=True) if f.slope(axis)]
            step: Extent = 0
            for slope, n in slopes:
                step = total(step, volume((slope, n)))
            most = abs(step) if isinstance(step, int) else sum(abs(slope) * at_most(n) for slope, n in slopes)
            strides[axis] = Stride(step, most)
    return strides


def place_exprs(w: Writer, op: ma.AsyncCopy | ma.GlobalLoad | ma.GlobalStore | ma.RowStore, layout: str) -> list[Expr]:
    """The expressions of an access whose positions in the tile must be printed for each register."""
    linear = register_strides(w.module.buffer(op.buffer), op.index, w.all_layouts[layout].axes)
    rest = [e for e in op.index if any(a in free_vars(e) for a in w.tile_axes if a not in linear)]
    return rest if op.mask is None else [*rest, op.mask]


def last_register(layout: FragLayout, axis: str) -> int:
    """The largest position along ``axis`` that a register adds to the thread's base."""
    return sum((m.size - 1) * m.stride for m in layout.reg if m.axis == axis)


def global_pointer(w: Writer, name: str, index: tuple[Expr, ...], within: str, r: str) -> str:
    """Address of an element: a part that depends on the thread, and one that depends on register ``r``.

    The two parts are added as pointers.  The second one is a constant when the loop is unrolled, and becomes an
    immediate of the access where the strides are numbers.
    """
    buffer, layout = w.module.buffer(name), w.all_layouts[within]
    strides = register_strides(buffer, index, layout.axes)
    saved = dict(w.env)
    w.env.update({axis: w.base(within, axis) for axis in strides if any(axis in free_vars(e) for e in index)})
    text = f"{w.env['&' + name]} + ({element_offset(w, buffer, [w.expr(e, layout, r) for e in index])})"
    w.env.clear()
    w.env.update(saved)
    steps = [(register_offset(layout, a, r), s.step) for a, s in strides.items() if s.step != 0 and r != "0"]
    reach = sum(s.largest * last_register(layout, a) for a, s in strides.items())
    wide = "(long long)" if reach >= 2**31 else ""
    moved = [scaled(Text.of(f"{wide}({o})", 14) if wide else o, stride_text(w, step)) for o, step in steps if o != "0"]
    return f"{text} + {group(' + '.join(moved))}" if moved else text


def slot_offset(w: Writer, slot: ma.Slot) -> str:
    """Byte offset of a stage of a shared buffer."""
    buffer = w.smem[slot.buffer]
    base, low, high = w.place(slot.buffer), *bounds(slot.stage, w.ranges)
    if low == high == 0:
        return base
    size = w.constant(f"{slot.buffer}_bytes", buffer.stage_bytes)
    if low == high:
        return f"{base} + {size if low == 1 else f'{low} * {size}'}"
    return f"{base} + {operand(w.expr(slot.stage), PRODUCT)} * {size}"


def tile_byte(w: Writer, slot: ma.Slot, row: str, col: str) -> str:
    """Byte offset of (row, col) inside a stage, with the swizzle of this access."""
    buffer = w.smem[slot.buffer]
    rows, cols = tile_shape(buffer.axes)
    size = buffer.dtype.bytes
    byte = "0" if col == "0" else scaled(col, size)
    if slot.swizzle == 0:
        terms = [*([] if row == "0" else [scaled(row, cols * size + buffer.pad)]), *([] if byte == "0" else [byte])]
        return " + ".join(terms) or "0"
    return f"{w.speller.use(f'swizzle_{slot.swizzle}')}<{rows}>({row}, {byte})"


def tile_row_col(w: Writer, slot: ma.Slot, at: dict[str, str]) -> tuple[str, str]:
    """The texts of row and column, from positions on the axes of the buffer."""
    axes = w.smem[slot.buffer].axes
    row, stride = list[str](), 1
    for axis in reversed(axes[:-1]):
        text = at.get(axis.name, "0")
        if text != "0":
            row.append(scaled(text, stride))
        stride *= axis.size
    return " + ".join(reversed(row)) or "0", at.get(axes[-1].name, "0") if axes else "0"


def print_async_copy(w: Writer, op: ma.AsyncCopy) -> None:
    """Print ``cp.async`` of a tile: each thread copies its vectors, and masked vectors are filled with zeros.

    Where a layout assigns a vector to several threads, the first one copies it: outstanding copies have no order.
    Raises UnsupportedError.
    """
    if op.mbar is not None:
        raise UnsupportedError("a cp.async that arrives on an mbarrier", op.slot.buffer, op.span)
    buffer = w.smem[op.slot.buffer]
    layout = w.kernel.layouts[op.threads]
    copy = w.speller.use(f"cp_async_{op.vec * buffer.dtype.bytes}" + "_cached" * op.cached)
    exprs = place_exprs(w, op, op.threads)
    slot = slot_offset(w, op.slot)
    with w.registers("r", layout.registers, op.vec, w.first_holder(layout)) as r, w.positions(op.threads, exprs, r):
        at = {a.name: w.position(op.threads, a.name, r) for a in buffer.axes}
        row, col = tile_row_col(w, op.slot, at)
        mask = "true" if op.mask is None else w.expr(_without_branches(op.mask), layout, r)
        pointer = global_pointer(w, op.buffer, op.index, op.threads, r)
        w.line(f"{copy}({w.shared} + {slot} + {tile_byte(w, op.slot, row, col)}, {pointer}, {mask});")


def _without_branches(mask: Expr) -> Expr:
    """``mask`` with all of its comparisons evaluated: alternatives in C are a branch around each copy."""
    if any(isinstance(e, Load) for e in walk(mask)) or not any(isinstance(e, Op) and e.op == "or" for e in walk(mask)):
        return mask
    return rewrite(mask, lambda e: replace(e, op=_BITWISE[e.op]) if isinstance(e, Op) and e.op in _BITWISE else None)


def print_async_wait(w: Writer, op: ma.AsyncWait) -> None:
    """Wait for groups of copies."""
    w.line(f"{w.speller.use('cp_async_wait')}<{op.pending}>();")


def print_global_load(w: Writer, op: ma.GlobalLoad) -> None:
    """Print a load from global memory to registers, ``vec`` elements an access."""
    dtype = op.result.type.dtype
    name = w.declare(op.result)
    layout, vec = w.layout(op.result), op.vec
    exprs = place_exprs(w, op, op.result.layout)
    if op.repeat is not None:
        _print_repeated_load(w, op, name, exprs)
        return
    if op.shift is not None:
        _print_shifted_load(w, op, name, exprs, op.shift)
        return
    near = nearest_of(op.index[-1]) if op.nearest else None
    if near is not None:
        op = replace(op, index=(*op.index[:-1], near.first(vec)))
        exprs = [*exprs, near.place]
    step = max(vec, pack_of(dtype, layout.registers))
    with w.registers("r", layout.registers, step) as r:
        for start in range(0, step, vec):
            at = plus(r, start)
            with w.braces("") if step > vec else nullcontext(), w.positions(op.result.layout, exprs, at):
                pointer = global_pointer(w, op.buffer, op.index, op.result.layout, at)
                mask = None if op.mask is None else operand(w.expr(op.mask, layout, at), CONDITION)
                beyond = None if near is None else _beyond(w, near, layout, at, vec)
                _load_words(w, op.result, name, at, start, vec, pointer, mask, op.volatile, beyond)


def _beyond(w: Writer, near: Nearest, layout: FragLayout, r: str, vec: int) -> tuple[str | None, str | None]:
    """Whether the vector at register ``r`` lies before the first one between the bounds, and after the last one."""
    place = operand(w.expr(near.place, layout, r), PRODUCT)
    low = None if near.low is None else f"{place} < {near.low}"
    return low, None if near.high is None else f"{place} > {near.high - vec + 1}"


def _print_shifted_load(w: Writer, op: ma.GlobalLoad, name: str, exprs: list[Expr], shift: int) -> None:
    """Print a load of vectors that lie ``shift`` elements after aligned ones, two of which have their bytes."""
    dtype, layout, vec = op.result.type.dtype, w.layout(op.result), op.vec
    count, word, pack = vec * dtype.bytes // 4, _WORDS[vec * dtype.bytes], w.array(op.result).pack
    fields = [""] if count == 1 else [f".{x}" for x in _FIELDS[:count]]
    zero = "0" if count == 1 else f"make_{word}({', '.join('0' * count)})"
    with w.registers("r", layout.registers, vec) as r, w.braces(""):
        w.line(f"{word} low = {zero}, high = {zero};")
        for part, at, back in (("low", r, shift), ("high", plus(r, vec - 1), shift - 1)):
            with w.braces(""), w.positions(op.result.layout, exprs, at):
                pointer = global_pointer(w, op.buffer, op.index, op.result.layout, at)
                mask = "" if op.mask is None else f"if ({w.expr(op.mask, layout, at)}) "
                w.line(f"{mask}{part} = *reinterpret_cast<const {word}*>({pointer} - {back});")
        words = [*(f"low{f}" for f in fields), *(f"high{f}" for f in fields)]
        first, bits = divmod(shift * dtype.bytes, 4)
        if pack * dtype.bytes < 4:  # registers that are not full hold an element each
            for n in range(vec):
                place, bits = divmod((shift + n) * dtype.bytes, 4)
                piece = f"({words[place]} >> {8 * bits})" if bits else words[place]
                w.line(f"{name}[{plus(r, n)}] = {from_word(piece, dtype)};")
            return
        for n in range(count):
            piece = words[n + first]
            if bits:
                piece = f"(u32)(((u64){words[n + first + 1]} << 32 | {piece}) >> {8 * bits})"
            at = plus(divided(r, pack), n) if pack > 1 else plus(r, n)
            w.line(f"{name}[{at}] = {piece if pack > 1 else from_word(piece, dtype)};")


def _print_ends(w: Writer, dtype: DType, size: int, beyond: tuple[str | None, str | None]) -> None:
    """Print the vector ``word`` of ``size`` bytes: all elements are the first or the last of ``part`` ``beyond`` it."""
    word, fields = _WORDS[size], ["part"] if size == 4 else [f"part.{x}" for x in _FIELDS[: size // 4]]
    ends = [fields[0], fields[-1]]
    if dtype.bytes < 4:
        selectors = (0x0000, 0x3333) if dtype.bytes == 1 else (0x1010, 0x3232)
        ends = [f"__byte_perm({x}, 0, {s:#06x})" for x, s in zip(ends, selectors, strict=True)]
    for name, condition in zip(("low", "high"), beyond, strict=True):
        if condition is not None:
            w.line(f"const bool {name} = {condition};")
    texts = list[str]()
    for field in fields:
        text = field
        for name, condition, other in (("high", beyond[1], ends[1]), ("low", beyond[0], ends[0])):
            text = text if condition is None or other == field else f"{name} ? {other} : {text}"
        texts.append(text)
    w.line(f"const {word} word = " + (f"{texts[0]};" if size == 4 else f"make_{word}({', '.join(texts)});"))


def _print_repeated_load(w: Writer, op: ma.GlobalLoad, name: str, exprs: list[Expr]) -> None:
    """Print a load whose elements are in several registers each, ``vec`` registers an access."""
    layout = w.layout(op.result)
    step = max(op.vec, w.array(op.result).pack)
    with w.registers("r", layout.registers, step) as r:
        for start in range(0, step, op.vec):
            at = plus(r, start)
            with w.braces("") if step > op.vec else nullcontext(), w.positions(op.result.layout, exprs, at):
                _print_shared_elements(w, op, name, at, start)


def _print_shared_elements(w: Writer, op: ma.GlobalLoad, name: str, r: str, start: int) -> None:
    """Print one access of a repeated load, whose registers begin at ``r``, number ``start`` of a packed register."""
    dtype, layout, repeat, pack = op.result.type.dtype, w.layout(op.result), op.repeat or 1, w.array(op.result).pack
    size = op.vec // repeat * dtype.bytes
    word = _WORDS[size]
    zero = f"make_{word}({', '.join('0' * (size // 4))})" if size > 4 else f"({word})0"
    pointer = global_pointer(w, op.buffer, op.index, op.result.layout, r)
    load = f"*reinterpret_cast<const {word}*>({pointer})"
    if op.mask is not None:
        load = f"{operand(w.expr(op.mask, layout, r), CONDITION)} ? {load} : {zero}"
    w.line(f"const {word} word = {load};")
    together = min(op.vec, pack)
    for n in range(0, op.vec, together):
        places = [(n + k) // repeat * dtype.bytes for k in range(together)]
        field = "word" if size <= 4 else f"word.{_FIELDS[places[0] // 4]}"
        pieces = [field if at % 4 == 0 else f"({field} >> {8 * (at % 4)})" for at in places]
        if pack == 1:
            w.line(f"{name}[{plus(r, n)}] = {from_word(pieces[0], dtype)};")
            continue
        mask, first = f"{(1 << dtype.bits) - 1:#x}", start % pack
        shifts = [dtype.bits * (first + k) for k in range(together)]
        terms = [f"((u32){p} & {mask})" + (f" << {s}" if s else "") for s, p in zip(shifts, pieces, strict=True)]
        w.line(f"{name}[{divided(plus(r, n), pack)}] {'|=' if first else '='} {' | '.join(terms)};")


def print_shared_load(w: Writer, op: ma.SharedLoad) -> None:
    """Print a load from shared memory to registers."""
    dtype = op.result.type.dtype
    name, layout = w.declare(op.result), w.layout(op.result)
    vec = op.vec if dtype.bytes <= 4 else 1
    step = max(vec, pack_of(dtype, layout.registers))
    slot = slot_offset(w, op.slot)
    with w.registers("r", layout.registers, step) as r:
        for start in range(0, step, vec):
            at = plus(r, start)
            pointer = _shared_pointer(w, op.slot, slot, op.result, at, first=op.start)
            with w.braces("") if step > vec else nullcontext():
                _load_words(w, op.result, name, at, start, vec, pointer, None)


def _shared_pointer(
    w: Writer, slot: ma.Slot, base: str, frag: ma.Frag, at: str, memory: str | None = None, first: int | None = None
) -> str:
    """The address of register ``at`` of ``frag``, whose elements begin at ``first`` along the first axis."""
    axes = w.smem[slot.buffer].axes
    places = {a.name: w.position(frag.layout, a.name, at) for a in axes}
    if first:
        moved = plus(places[axes[0].name], first)
        places[axes[0].name] = moved if moved.isdigit() else f"({moved})"
    row, col = tile_row_col(w, slot, places)
    return f"{memory or w.pointer} + {base} + {tile_byte(w, slot, row, col)}"


def _load_words(
    w: Writer,
    frag: ma.Frag,
    name: str,
    at: str,
    start: int,
    vec: int,
    pointer: str,
    mask: str | None,
    volatile: bool = False,
    beyond: tuple[str | None, str | None] | None = None,
) -> None:
    """Load ``vec`` elements at ``pointer`` into the registers from number ``at`` on.

    ``beyond``: conditions under which all are the first element, and the last one.
    """
    dtype, spelled = frag.type.dtype, w.array(frag)
    size = vec * dtype.bytes
    if dtype.bytes == 8:
        word, zero = _wide_word(dtype, vec, [w.zero(dtype)] * vec)
    else:
        word = _WORDS[size]
        zero = f"make_{word}({', '.join('0' * (size // 4))})" if size > 4 else "0"
    load = f"*reinterpret_cast<const {word}*>({pointer})"
    if volatile:
        load, mask = f"{w.speller.use(f'load_pinned_{size}')}({pointer}, {mask or 'true'})", None
    if size > 4 or spelled.pack > 1:
        loaded = f"{mask} ? {load} : {zero}" if mask else load
        w.line(f"const {word} {'word' if beyond is None else 'part'} = {loaded};")
        if beyond is not None:
            _print_ends(w, dtype, size, beyond)
    if size <= 4 and spelled.pack == 1:
        value = f"{mask} ? {load} : ({word})0" if mask else load
        for n in range(vec):
            piece = f"({value})" if vec == 1 else f"(({value}) >> {8 * dtype.bytes * n})"
            w.line(f"{name}[{plus(at, n)}] = {from_word(piece, dtype)};")
        return
    if dtype.bytes == 8:
        for n in range(vec):
            w.line(f"{name}[{plus(at, n)}] = word{f'.{_FIELDS[n]}' if vec > 1 else ''};")
        return
    if spelled.pack > 1 and vec < spelled.pack:
        shift = 8 * dtype.bytes * (start % spelled.pack)
        target = f"{name}[{divided(at, spelled.pack)}]"
        w.line(f"{target} = (u32)word;" if shift == 0 else f"{target} |= (u32)word << {shift};")
        return
    for n in range(size // 4):
        field = "word" if size == 4 else f"word.{_FIELDS[n]}"
        if spelled.pack > 1:
            index = divided(at, spelled.pack)
            w.line(f"{name}[{plus(index, n)}] = {field};")
            continue
        per = 4 // dtype.bytes
        for k in range(per):
            piece = field if per == 1 else f"({field} >> {8 * dtype.bytes * k})"
            w.line(f"{name}[{plus(at, n * per + k)}] = {from_word(piece, dtype)};")


def _wide_word(dtype: DType, vec: int, values: Sequence[str]) -> tuple[str, str]:
    """The C type of ``vec`` elements of 64 bits in memory, and its value of ``values``."""
    if vec == 1:
        return memory_type(dtype), values[0]
    word = "double2" if dtype.is_float else "longlong2"
    return word, f"make_{word}({', '.join(values)})"


def from_word(text: str, dtype: DType) -> str:
    """An element from its raw bits."""
    if dtype.is_float and dtype.bits == 32:
        return f"__uint_as_float({text})"
    if dtype is DType.BOOL:
        return f"(({text} & 0xff) != 0)"
    return f"(u16){text}" if dtype.is_half else f"({memory_type(dtype)}){text}"


def to_word(text: str, dtype: DType) -> str:
    """Raw bits of an element, zero-extended to 32."""
    if dtype.is_float and dtype.bits == 32:
        return f"__float_as_uint({text})"
    kind = {32: "", 16: "(u16)", 8: "(unsigned char)"}[dtype.bits]
    return f"(u32){kind}{text}"


def print_global_store(w: Writer, op: ma.GlobalStore) -> None:
    """Print a store of registers to global memory, rounded to the type of the buffer."""
    buffer = w.module.buffer(op.buffer)
    frag = op.value
    if frag.type.dtype is not buffer.dtype:
        frag = print_cast(w, frag, buffer.dtype)
    name, layout, vec = w.name(frag), w.layout(frag), op.vec
    exprs = place_exprs(w, op, frag.layout)
    with w.registers("r", layout.registers, vec) as r, w.positions(frag.layout, exprs, r):
        pointer = global_pointer(w, op.buffer, op.index, frag.layout, r)
        mask = "" if op.mask is None else w.expr(op.mask, layout, r)
        with w.braces(f"if ({mask})") if mask else nullcontext():
            w.line(_store_text(w, frag, name, r, vec, pointer))


def print_shared_store(w: Writer, op: ma.SharedStore) -> None:
    """Print a store of registers to shared memory.

    Where several warps hold an element, the first one stores it: their stores have no order.  Lanes of a warp store
    equal values with one instruction.
    """
    buffer = w.smem[op.slot.buffer]
    frag = op.value
    if frag.type.dtype is not buffer.dtype:
        frag = print_cast(w, frag, buffer.dtype)
    name, layout = w.name(frag), w.layout(frag)
    vec = op.vec if frag.type.dtype.bytes <= 4 else 1
    slot, memory = slot_offset(w, op.slot), None
    if op.block is not None:
        memory = f"{w.speller.use('shared_of_block')}({w.pointer}, {op.block})"
    with w.registers("r", layout.registers, vec, w.first_holder(layout, lanes=False)) as r:
        w.line(_store_text(w, frag, name, r, vec, _shared_pointer(w, op.slot, slot, frag, r, memory, op.start)))


def _store_text(w: Writer, frag: ma.Frag, name: str, r: str, vec: int, pointer: str) -> str:
    """The statement that stores ``vec`` elements from register ``r`` on."""
    dtype, spelled = frag.type.dtype, w.array(frag)
    size = vec * dtype.bytes
    if dtype.bytes == 8:
        word, value = _wide_word(dtype, vec, [f"{name}[{plus(r, n)}]" for n in range(vec)])
        return f"*reinterpret_cast<{word}*>({pointer}) = {value};"
    if size < 4:
        parts = [to_word(w.element_at(frag, plus(r, n)), dtype) for n in range(vec)]
        bits = " | ".join(p if n == 0 else f"{p} << {8 * dtype.bytes * n}" for n, p in enumerate(parts))
        return f"*reinterpret_cast<{_WORDS[size]}*>({pointer}) = ({_WORDS[size]})({bits});"
    words: list[str] = []
    per = 4 // dtype.bytes
    for n in range(size // 4):
        if spelled.pack > 1:
            index = divided(r, spelled.pack)
            words.append(f"{name}[{plus(index, n)}]")
        else:
            parts = [to_word(f"{name}[{plus(r, n * per + k)}]", dtype) for k in range(per)]
            words.append(" | ".join(p if k == 0 else f"{p} << {8 * dtype.bytes * k}" for k, p in enumerate(parts)))
    value = words[0] if size == 4 else f"make_{_WORDS[size]}({', '.join(words)})"
    return f"*reinterpret_cast<{_WORDS[size]}*>({pointer}) = {value};"


def divided(text: str, n: int) -> str:
    """``text / n``, computed if ``text`` is a number."""
    if text.isdigit():
        return str(int(text) // n)
    return f"{text} / {n}" if text.isidentifier() else f"({text}) / {n}"


def plus(text: str, n: int) -> str:
    """``text + n``, computed if ``text`` is a number."""
    if n == 0:
        return text
    return str(int(text) + n) if text.isdigit() else f"{text} + {n}"


#: op class -> what prints it
PRINTERS: Printers = {
    ma.GlobalLoad: print_global_load,
    ma.SharedLoad: print_shared_load,
    ma.SharedStore: print_shared_store,
    ma.AsyncCopy: print_async_copy,
    ma.AsyncCommit: calls("cp_async_commit"),
    ma.AsyncWait: print_async_wait,
}
