"""Prints ``mma``: the loop over k-steps, and operand fragments from shared memory or from registers.

An operand in shared memory is read into small arrays, one k-step at a time.  Operands of 16 bits are read by ldmatrix:
each lane gives the address of one 16-byte row of an 8x8 block (PTX ISA, "ldmatrix").  The transposing form of ldmatrix
reads a tile whose contiguous axis is not k.  Operands of other types are read by ordinary loads.
"""

from __future__ import annotations

from collections.abc import Callable

from nautilus.core.errors import UnsupportedError
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal, memory_type
from nautilus.cuda.intrinsics import HELPERS
from nautilus.cuda.ops.elementwise import pack_text
from nautilus.cuda.ops.movement import plus, scaled, slot_offset, tile_byte, tile_row_col, to_word
from nautilus.cuda.registers import digit, projected_register
from nautilus.cuda.writer import Printers, Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import MMA, MmaInstr
from nautilus.ma_tile.ir.layout import FragLayout, tile_shape

if missing := sorted(n for n, i in MMA.items() if i.parts == 1 and "mma_" + n.replace(".", "_") not in HELPERS):
    raise TypeError(f"no helpers of {', '.join(missing)}")

_A_REGS, _B_REGS = 4, 2  # registers of one A and one B fragment, of 32 bits (64 of f64), the same for every instruction


@dataclass(frozen=True, slots=True)
class Tiling:
    """How one warp's part of an MMA is cut: 16-row tiles, 8-column tiles, k-steps."""

    m: str
    n: str
    k: str
    row_tiles: int
    col_tiles: int
    steps: int
    instr: MmaInstr


def print_mma(w: Writer, op: ma.MmaOp) -> None:
    """Print one ``mma`` op, in place if this is the last use of the accumulator."""
    acc = accumulator(w, op)
    if op.instr == "fma":
        print_fma(w, op, acc)
        return
    t = tiling(w, op)
    call = w.speller.use("mma_" + op.instr.replace(".", "_"))
    with w.braces(""):
        lanes = lane_addresses(w, op, t)
        if op.ahead and t.steps > 1 and _any_slot(op):
            print_steps_ahead(w, op, t, lanes, call, acc)
        else:
            print_steps(w, op, t, lanes, call, acc)


def print_steps(w: Writer, op: ma.MmaOp, t: Tiling, lanes: dict[str, Lane], call: str, acc: str) -> None:
    """Print each k-step: load A, then load and use B by one or two column tiles, so that few registers are live."""
    a = "a[m]" if isinstance(op.a, ma.Slot) else _registers(w, op.a, f"(k + {t.steps} * m) * {_A_REGS}")
    w.line("#pragma unroll")
    with w.braces(f"for (int k = 0; k < {t.steps}; ++k)"):
        if isinstance(op.a, ma.Slot):
            w.line(f"{_word(t)} a[{t.row_tiles}][{_A_REGS}];")
            fetch_a(w, op.a, t, lanes, op.result.layout, "k", "a")
        count = 2 if op.paired else 1
        for first, last in ((0, t.col_tiles // count * count), (t.col_tiles // count * count, t.col_tiles)):
            if first == last:
                continue
            group = min(count, last - first)
            w.line("#pragma unroll")
            with w.braces(f"for (int n = {first}; n < {last}; n += {group})"):
                if isinstance(op.b, ma.Slot):
                    w.line(f"{_word(t)} b[{group}][{_B_REGS}];")
                    _fetch_group(w, op.b, t, lanes, op.result.layout, group)
                for offset in range(group):
                    n = plus("n", offset)
                    b = (
                        f"b[{offset}]"
                        if isinstance(op.b, ma.Slot)
                        else _registers(w, op.b, f"(k + {t.steps} * ({n})) * {_B_REGS}")
                    )
                    w.line("#pragma unroll")
                    with w.braces(f"for (int m = 0; m < {t.row_tiles}; ++m)"):
                        w.line(f"{call}(&{acc}[({n} + {t.col_tiles} * m) * 4], {a}, {b});")


def _word(t: Tiling) -> str:
    """The C type of a register of an operand."""
    return "double" if t.instr.acc is DType.F64 else "u32"


def _registers(w: Writer, operand: ma.Frag, at: str) -> str:
    """The registers of a fragment from ``at`` on; those of tf32 are declared as floats."""
    text = f"&{w.name(operand)}[{at}]"
    return text if w.array(operand).type in ("u32", "double") else f"reinterpret_cast<const u32*>({text})"


def _fetch_group(w: Writer, slot: ma.Slot, t: Tiling, lanes: dict[str, Lane], layout: str, group: int) -> None:
    """B fragments of column tiles n .. n + group - 1 at k-step k."""
    if "b" in lanes:
        at = {t.n: "n * 8", t.k: "k * 16"}
        load_matrix(w, slot, lanes["b"], at, t.k, "b[0]", 2 * group)
    else:
        fetch_plain(w, slot, t, layout, "k", "b[0]", is_a=False)


def print_steps_ahead(w: Writer, op: ma.MmaOp, t: Tiling, lanes: dict[str, Lane], call: str, acc: str) -> None:
    """Print the k-steps so that the fragments of step k + ahead are read before the MMAs of step k."""
    ahead, stages = op.ahead, op.ahead + 1
    if isinstance(op.a, ma.Slot):
        w.line(f"{_word(t)} a[{stages}][{t.row_tiles}][{_A_REGS}];")
    if isinstance(op.b, ma.Slot):
        w.line(f"{_word(t)} b[{stages}][{t.col_tiles}][{_B_REGS}];")
    for n in range(ahead):
        fetch(w, op, t, lanes, str(n), str(n))
    a = f"a[k % {stages}][m]" if isinstance(op.a, ma.Slot) else _registers(w, op.a, f"(k + {t.steps} * m) * {_A_REGS}")
    b = f"b[k % {stages}][n]" if isinstance(op.b, ma.Slot) else _registers(w, op.b, f"(k + {t.steps} * n) * {_B_REGS}")
    w.line("#pragma unroll")
    with w.braces(f"for (int k = 0; k < {t.steps}; ++k)"):
        with w.braces(f"if (k + {ahead} < {t.steps})"):
            fetch(w, op, t, lanes, f"(k + {ahead})", f"(k + {ahead}) % {stages}")
        w.line("#pragma unroll")
        with w.braces(f"for (int m = 0; m < {t.row_tiles}; ++m)"):
            w.line("#pragma unroll")
            with w.braces(f"for (int n = 0; n < {t.col_tiles}; ++n)"):
                w.line(f"{call}(&{acc}[(n + {t.col_tiles} * m) * 4], {a}, {b});")


def _any_slot(op: ma.MmaOp) -> bool:
    return isinstance(op.a, ma.Slot) or isinstance(op.b, ma.Slot)


def accumulator(w: Writer, op: ma.MmaOp) -> str:
    """The C array of the result, which is that of the accumulator if nothing else reads the accumulator."""
    layout = w.layout(op.result)
    if op.acc is not None and op.acc.name in w.names and w.may_overwrite(op.acc):
        w.names[op.result.name] = w.names[op.acc.name]
        return w.names[op.result.name]
    source = None if op.acc is None else op.acc
    name = w.declare(op.result)
    with w.registers("r", layout.registers) as r:
        value = literal(0 if not op.result.type.dtype.is_float else 0.0, op.result.type.dtype)
        w.line(f"{name}[{r}] = {value if source is None else w.element(source, layout, r)};")
    return name


def tiling(w: Writer, op: ma.MmaOp) -> Tiling:
    """Tile counts of one warp, from the accumulator's layout."""
    layout, instr = w.layout(op.result), MMA[op.instr]
    n, m = layout.reg[0].axis, layout.reg[1].axis
    assert n is not None and m is not None, "an accumulator layout has (n, m, n, m) register modes"
    k = _k_extent(w, op)
    return Tiling(m, n, op.over, layout.reg[3].size, layout.reg[2].size, k // instr.k, instr)


def _k_extent(w: Writer, op: ma.MmaOp) -> int:
    for x in (op.a, op.b):
        axes = x.type.axes if isinstance(x, ma.Frag) else w.smem[x.buffer].axes
        for axis in axes:
            if axis.name == op.over:
                return axis.size
    raise AssertionError(f"no operand of mma has axis {op.over}")


@dataclass(frozen=True, slots=True)
class Lane:
    """The operands of a lane for ldmatrix: its positions in the first block, and a C variable with the address.

    ``variable`` is None if one xor of column bits does not lead to the later blocks, because the first column of a
    warp is not aligned to its width.  Every address is then computed in full.
    """

    at: dict[str, str]
    variable: str | None


def lane_addresses(w: Writer, op: ma.MmaOp, t: Tiling) -> dict[str, Lane]:
    """Operand name -> the part of its addresses that depends on the lane, for 16-bit operands in shared memory."""
    out: dict[str, Lane] = {}
    for name, slot in (("a", op.a), ("b", op.b)):
        if isinstance(slot, ma.Slot) and w.smem[slot.buffer].dtype.bytes == 2:
            out[name] = lane_address(w, slot, op.result.layout, t, name == "a", paired=op.paired)
    return out


def lane_address(w: Writer, slot: ma.Slot, layout: str, t: Tiling, is_a: bool, *, paired: bool) -> Lane:
    """Declare the address that a lane gives to ldmatrix for the first block of its warp's part.

    ``is_a``: the fragment is one of A, else of B.  ``paired``: one ldmatrix loads two column tiles of B.

    Later blocks are multiples of 8 rows and 16 columns away.  One xor therefore applies their column bytes to the
    swizzled chunk, and all other terms of their addresses are constants.
    """
    buffer = w.smem[slot.buffer]
    major = buffer.axes[-1].name == t.k
    axis = t.m if is_a else t.n
    base = w.warp_base(layout, axis)
    if is_a:
        lane = {axis: f"{w.lane} % 16", t.k: f"{w.lane} / 16 * 8"}
        if not major:
            lane = {axis: f"{w.lane} / 8 % 2 * 8", t.k: f"{w.lane} % 8 + {w.lane} / 16 * 8"}
    elif major:
        lane = {axis: f"{w.lane} % 8 + {w.lane} / 16 * 8" if paired else f"{w.lane} % 8", t.k: f"{w.lane} / 8 % 2 * 8"}
    else:
        lane = {axis: f"{w.lane} / 16 * 8" if paired else "0", t.k: f"{w.lane} % 16"}
    if base != "0":
        lane[axis] = f"{base} + {lane[axis]}"
    if not (major or base == "0" or _aligned(w, slot, layout, axis)):
        return Lane(lane, None)
    name = w.unique(f"{slot.buffer}_lane")
    row, col = tile_row_col(w, slot, lane)
    w.line(f"const u32 {name} = {w.shared} + {slot_offset(w, slot)} + {tile_byte(w, slot, row, col)};")
    return Lane(lane, name)


def _aligned(w: Writer, slot: ma.Slot, layout: str, axis: str) -> bool:
    """Whether the first column byte of each warp has no bit in common with the columns inside its part."""
    own = w.all_layouts[layout]
    size = w.smem[slot.buffer].dtype.bytes
    widths = [m.stride * size for m in own.warp if m.axis == axis and m.size > 1]
    return slot.swizzle == 0 or all(n % slot.swizzle == 0 or n & (n - 1) == 0 for n in widths)


def block_address(w: Writer, slot: ma.Slot, lane: Lane, at: dict[str, str]) -> str:
    """Address of the block at constant positions ``at`` (multiples of 8 rows, 16 columns)."""
    buffer = w.smem[slot.buffer]
    rows, cols = tile_shape(buffer.axes)
    if lane.variable is None:
        row, col = tile_row_col(w, slot, {a: f"{at[a]} + {lane.at[a]}" for a in at})
        return f"{w.shared} + {slot_offset(w, slot)} + {tile_byte(w, slot, row, col)}"
    row, col = tile_row_col(w, slot, at)
    byte = scaled(col, buffer.dtype.bytes)
    if slot.swizzle == 0:
        return f"{lane.variable} + {scaled(row, cols * buffer.dtype.bytes + buffer.pad)} + {byte}"
    width = slot.swizzle
    flipped = f"({lane.variable} ^ {byte} % {width})" if byte != "0" else lane.variable
    slab = f" + {byte} / {width} * {rows * width}" if byte != "0" and cols * buffer.dtype.bytes > width else ""
    return f"{flipped} + {scaled(row, width)}{slab}"


def fetch(w: Writer, op: ma.MmaOp, t: Tiling, lanes: dict[str, Lane], k: str, stage: str) -> None:
    """Load the operands of k-step ``k`` from shared memory into stage ``stage`` of the operand arrays."""
    layout = op.result.layout
    if isinstance(op.a, ma.Slot):
        fetch_a(w, op.a, t, lanes, layout, k, f"a[{stage}]")
    if isinstance(op.b, ma.Slot):
        if "b" in lanes:
            load_tiles(w, op.b, lanes["b"], t, k, lambda n: f"b[{stage}][{n}]", is_a=False, paired=op.paired)
            return
        w.line("#pragma unroll")
        with w.braces(f"for (int n = 0; n < {t.col_tiles}; ++n)"):
            fetch_plain(w, op.b, t, layout, k, f"b[{stage}][n]", is_a=False)


def fetch_a(w: Writer, slot: ma.Slot, t: Tiling, lanes: dict[str, Lane], layout: str, k: str, target: str) -> None:
    """Load the A fragments of k-step ``k``, one row tile after another."""
    if "a" in lanes:
        load_tiles(w, slot, lanes["a"], t, k, lambda m: f"{target}[{m}]", is_a=True, paired=False)
        return
    w.line("#pragma unroll")
    with w.braces(f"for (int m = 0; m < {t.row_tiles}; ++m)"):
        fetch_plain(w, slot, t, layout, k, f"{target}[m]", is_a=True)


def load_tiles(
    w: Writer,
    slot: ma.Slot,
    lane: Lane,
    t: Tiling,
    k: str,
    target: Callable[[str | int], str],
    *,
    is_a: bool,
    paired: bool,
) -> None:
    """Load all fragments of k-step ``k`` by ldmatrix; ``target(tile)`` is the first register of the tile.

    One instruction reads a row tile of A, or one or (``paired``) two column tiles of B; the last one may be alone.
    """
    if is_a:
        w.line("#pragma unroll")
        with w.braces(f"for (int m = 0; m < {t.row_tiles}; ++m)"):
            at = {t.m: "m * 16", t.k: f"{k} * 16"}
            load_matrix(w, slot, lane, at, t.k, target("m"), _A_REGS)
        return
    step = 2 if paired else 1
    whole = t.col_tiles // step * step
    if whole:
        w.line("#pragma unroll")
        with w.braces(f"for (int n = 0; n < {whole}; n += {step})"):
            at = {t.n: "n * 8", t.k: f"{k} * 16"}
            load_matrix(w, slot, lane, at, t.k, target("n"), step * _B_REGS)
    if whole < t.col_tiles:
        at = {t.n: str(8 * whole), t.k: f"{k} * 16"}
        load_matrix(w, slot, lane, at, t.k, target(whole), _B_REGS)


def load_matrix(w: Writer, slot: ma.Slot, lane: Lane, at: dict[str, str], k: str, target: str, count: int) -> None:
    """Print one ldmatrix, which transposes if k is not the contiguous axis in memory."""
    trans = "" if w.smem[slot.buffer].axes[-1].name == k else "_trans"
    helper = w.speller.use(f"ldmatrix_x{count}{trans}")
    w.line(f"{helper}({target}, {block_address(w, slot, lane, at)});")


def print_matrix_load(w: Writer, op: ma.MatrixLoad) -> None:
    """Print ``ld.matrix``: operand fragments of one or several k-steps into the array of the fragment."""
    layout = w.layout(op.result)
    name = w.declare(op.result)
    is_a = layout.reg[1].axis != op.axis
    other = next(a for a in op.result.type.names if a != op.axis)
    tiles = layout.reg[-1].size
    steps = layout.reg[3 if is_a else 2].size
    t = Tiling(other, other, op.axis, tiles, tiles, steps, MMA["m16n8k16.f16"])
    width = _A_REGS if is_a else _B_REGS

    def target(tile: str | int) -> str:
        return f"&{name}[{tile * width if isinstance(tile, int) else f'{tile} * {width}'}]"

    with w.braces(""):
        lane = lane_address(w, op.slot, op.result.layout, t, is_a, paired=op.paired)
        if steps == 1:
            load_tiles(w, op.slot, lane, t, str(op.start // 16), target, is_a=is_a, paired=op.paired)
            return
        w.line("#pragma unroll")
        with w.braces(f"for (int k = 0; k < {steps}; ++k)"):
            x, size = ("m", 16) if is_a else ("n", 8)
            at = {other: f"{x} * {size}", op.axis: f"({plus('k', op.start // 16)}) * 16"}
            w.line("#pragma unroll")
            with w.braces(f"for (int {x} = 0; {x} < {tiles}; ++{x})"):
                load_matrix(w, op.slot, lane, at, op.axis, target(f"(k + {steps} * {x})"), width)


def fetch_plain(w: Writer, slot: ma.Slot, t: Tiling, layout: str, k: str, target: str, *, is_a: bool) -> None:
    """Load operand registers by ordinary loads; each of them holds ``pack`` consecutive k of one row."""
    p = t.instr.pack
    buffer = w.smem[slot.buffer]
    axis, tile = (t.m, "m * 16") if is_a else (t.n, "n * 8")
    base = w.warp_base(layout, axis)
    contiguous = buffer.axes[-1].name == t.k
    for x in range(4 if is_a else 2):
        half, upper = (x % 2, x // 2) if is_a else (0, x)
        rows = ("" if base == "0" else f"{base} + ") + f"{tile} + {w.lane} / 4" + (" + 8" if half else "")
        member = f"{w.lane} % 4" if p == 1 else f"{w.lane} % 4 * {p}"
        first = f"{k} * {t.instr.k} + {member}" + (f" + {4 * p}" if upper else "")
        if contiguous and p * buffer.dtype.bytes == 4:
            w.line(f"{target}[{x}] = *reinterpret_cast<const u32*>({_generic(w, slot, {axis: rows, t.k: first})});")
            continue
        parts = []
        for n in range(p):
            pointer = _generic(w, slot, {axis: rows, t.k: plus(first, n)})
            parts.append(f"*reinterpret_cast<const {memory_type(buffer.dtype)}*>({pointer})")
        if _word(t) == "double":
            text = parts[0]
        else:
            text = pack_text(w, parts, buffer.dtype, buffer.dtype) if p > 1 else to_word(parts[0], buffer.dtype)
        w.line(f"{target}[{x}] = {text};")


def _generic(w: Writer, slot: ma.Slot, at: dict[str, str]) -> str:
    row, col = tile_row_col(w, slot, at)
    return f"{w.pointer} + {slot_offset(w, slot)} + {tile_byte(w, slot, row, col)}"


def print_fma(w: Writer, op: ma.MmaOp, acc: str) -> None:
    """Print a dot by scalar instructions: for each k, one fused multiply-add for each accumulator."""
    pragma = "#pragma unroll" if op.unroll is None else f"#pragma unroll {op.unroll}"
    print_scalar_steps(w, op, acc, "0", str(_k_extent(w, op)), pragma)


def print_scalar_steps(w: Writer, op: ma.MmaOp, acc: str, first: str, last: str, pragma: str) -> None:
    """Print the loop of :func:`print_fma` for k from ``first`` to before ``last`` into the array ``acc``."""
    layout, dtype = w.layout(op.result), op.result.type.dtype
    w.line(pragma)
    with w.braces(f"for (int k = {first}; k < {last}; ++k)"):
        texts = [_fma_operand(w, op, x, name, dtype, layout) for x, name in ((op.a, "a"), (op.b, "b"))]
        with w.registers("r", layout.registers) as r:
            a, b = (t.replace("$r", r) for t in texts)
            if dtype is DType.F32:
                w.line(f"{acc}[{r}] = fmaf({a}, {b}, {acc}[{r}]);")
            else:
                w.line(f"{acc}[{r}] += {a} * {b};")


def _fma_operand(w: Writer, op: ma.MmaOp, x: ma.Frag | ma.Slot, name: str, dtype: DType, layout: FragLayout) -> str:
    """Print the load of one operand at k, if it needs one; the text of the element, with ``$r`` for the register."""
    if isinstance(x, ma.Frag):
        at = _register_with_k(w.layout(x), layout, op.over)
        return w.speller.cast(w.element_at(x, at), x.type.dtype, dtype)
    buffer = w.smem[x.buffer]
    axes = tuple(a.name for a in buffer.axes if a.name != op.over)
    own = layout.project(axes)
    ctype = memory_type(dtype)
    w.line(f"{ctype} {name}[{own.registers}];")
    proj = w.projected_layout(op.result.layout, axes)
    with w.registers("r", own.registers) as r:
        place = {a: w.position(proj, a, r) for a in axes}
        pointer = _generic(w, x, {**place, op.over: "k"})
        load = f"*reinterpret_cast<const {memory_type(buffer.dtype)}*>({pointer})"
        w.line(f"{name}[{r}] = {w.speller.cast(load, buffer.dtype, dtype)};")
    at_r = "0" if own.registers == 1 else projected_register(layout, axes, "$r")
    return f"{name}[{at_r}]"


def _register_with_k(own: FragLayout, result: FragLayout, over: str) -> str:
    """Register of an operand fragment for result register ``$r`` and position ``k`` along ``over``."""
    if any(m.axis == over for m in (*own.lane, *own.warp)):
        raise UnsupportedError("a scalar product whose operand splits k between threads")
    digits = _result_digits(result, frozenset(own.axes))
    terms, stride = list[str](), 1
    for m in own.reg:
        if m.size == 1:
            continue
        text = f"k / {m.stride} % {m.size}" if m.axis == over else digits.pop(0)
        if text != "0":
            terms.append(f"({text}) * {stride}" if stride > 1 else text)
        stride *= m.size
    return " + ".join(terms) or "0"


def _result_digits(layout: FragLayout, keep: frozenset[str]) -> list[str]:
    out, div = list[str](), 1
    for n, m in enumerate(layout.reg):
        if m.axis in keep and m.size > 1:
            out.append(digit("$r", div, m.size, all(x.size == 1 for x in layout.reg[n + 1 :])))
        div *= m.size
    return out


#: op class -> what prints it
PRINTERS: Printers = {
    ma.MatrixLoad: print_matrix_load,
}
