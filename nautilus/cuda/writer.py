"""State of printing one kernel: lines, names, the arrays that fragments live in.

The emitter decides nothing about the kernel; what it chooses here is spelling only: which values
need a C array (those used outside the register loop that computes them) and which C names they get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import field, replace
from typing import Any, TypeAlias

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Ref, free_vars
from nautilus.core.index.sizes import at_most, extent_expr, volume
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.cuda.ctypes import RegisterArray, literal, register_array
from nautilus.cuda.expr import Speller
from nautilus.cuda.intrinsics import BITS, HALF
from nautilus.cuda.names import sanitize
from nautilus.cuda.registers import (
    bare,
    first_holder,
    group,
    projected_register,
    register_offset,
    thread_base,
    thread_parts,
)
from nautilus.cuda.text.statements import Statements, spelled
from nautilus.ma_tile.analysis.consumers import consumer_warps
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.layout import FragLayout


@dataclass
class Writer:
    """Lines of one kernel and everything needed to spell its values."""

    module: ma.MemModule
    kernel: ma.MemKernel
    speller: Speller
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    env: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    inline: dict[str, str] = field(default_factory=dict)
    filled: list[str] = field(default_factory=list)  # of ``inline``, those that are arrays in the scopes printed now
    scalars: dict[str, str] = field(default_factory=dict)
    bases: dict[tuple[str, str], str] = field(default_factory=dict)
    uses: Counter[str] = field(default_factory=Counter)
    taken: set[str] = field(default_factory=set)
    frags: dict[str, ma.Frag] = field(default_factory=dict)
    tile_axes: tuple[str, ...] = ()
    smem: dict[str, ma.Smem] = field(default_factory=dict)
    all_layouts: dict[str, FragLayout] = field(default_factory=dict)
    warp_bases: dict[str, str] = field(default_factory=dict)
    warp_keys: dict[tuple[str, str], str] = field(default_factory=dict)
    owned: frozenset[str] = frozenset()
    loop_args: frozenset[str] = frozenset()
    aliased: set[str] = field(default_factory=set)
    indices: dict[str, ma.IndexOp] = field(default_factory=dict)  # of the elementwise run printed now
    conditions: dict[str, str] = field(default_factory=dict)  # C texts of index ops (nautilus.cuda.positions.bounds)
    single: bool = False  # one thread runs what is printed now
    statements: Statements = field(default_factory=Statements)
    statement: str = ""  # the one that is printed now
    constants: dict[str, tuple[str, int]] = field(default_factory=dict)  # places in shared memory: C name and bytes
    hints: dict[str, str] = field(init=False)  # number of a value -> what its name begins with
    operands: frozenset[str] = field(init=False)  # arrays of an MMA, whose block mentions fragments and loops
    consumer_warps: int = field(init=False)  # warps of each consumer (:mod:`nautilus.ma_tile.analysis.consumers`)

    def __post_init__(self) -> None:
        self.all_layouts.update(self.kernel.layouts)
        self.consumer_warps = consumer_warps(self.kernel)
        self.hints = self.statements.names(self.kernel)
        mmas = [op for op in ma.walk_ops(self.kernel.body) if isinstance(op, ma.MmaOp)]
        of_warps = [MMA[op.instr] for op in mmas if op.instr in MMA]
        more = ("a_low", "b_low", "part", "bad") if any(i.parts > 1 for i in of_warps) else ()
        scalar = any(op.instr == "fma" and any(isinstance(x, ma.Slot) for x in (op.a, op.b)) for op in mmas)
        self.operands = frozenset(("a", "b", *more) if of_warps or scalar else ())

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self.lines.append("    " * self.depth + text if text else "")

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """``head {`` ... ``}``.  Arrays of constants that are declared in it are not known after it."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        outside = len(self.filled)
        yield
        while len(self.filled) > outside:
            del self.names[self.filled.pop()]
        self.depth -= 1
        self.line("}")

    def visible(self, name: str) -> str:
        """A fresh C identifier like ``name``, which no array in the block of an MMA hides."""
        return self.unique(f"{name}_" if name in self.operands else name)

    @contextmanager
    def registers(self, var: str, count: int, step: int = 1, when: str = "") -> Iterator[str]:
        """An unrolled loop over register numbers, run under the condition ``when``; yields the text of the number."""
        guard = f"if ({when})" if when else ""
        if count <= step:
            first = len(self.lines)
            with self.braces(guard):
                yield "0"
            if not guard and len(self.lines) == first + 3:  # one statement needs no block
                self.lines[first:] = [self.lines[first + 1].replace("    ", "", 1)]
            return
        advance = f"++{var}" if step == 1 else f"{var} += {step}"
        with self.braces(guard) if when else nullcontext():
            self.line("#pragma unroll")
            with self.braces(f"for (int {var} = 0; {var} < {count}; {advance})"):
                yield var

    def first_holder(self, layout: FragLayout, *, lanes: bool = True) -> str:
        """The condition that a thread is the first one that holds its elements; empty where no other one does.

        Without ``lanes``: that its warp is the first one.
        """
        conditions = first_holder(layout, lanes=lanes)
        self.speller.mentioned.update(conditions)
        return " && ".join(c for place in conditions.values() for c in place)

    def unique(self, name: str) -> str:
        """A fresh C identifier like ``name``."""
        out = unused(sanitize(spelled(name, self.hints)), self.taken, first=2)
        self.taken.add(out)
        return out

    def constant(self, name: str, value: int) -> str:
        """C name of a number of bytes, which the top of the kernel declares."""
        if name not in self.constants:
            kind, number = name[:2], name[2:]  # scratch memory of a value (r_12) has the name of the value
            named = kind + spelled(number, self.hints) if kind in ("r_", "x_") else name
            self.constants[name] = self.unique(named), value
        return self.constants[name][0]

    def place(self, buffer: str) -> str:
        """C name of the byte offset at which a shared buffer begins."""
        return self.constant(f"{buffer}_at", self.smem[buffer].offset)

    def mark(self, span: Span) -> None:
        """Print the statement that ``span`` lies in as a comment, if it is another one than before."""
        d = self.statements.at(span)
        if d is not None and d.name != self.statement:
            self.statement = d.name
            self.line(f"// {self.statements.comment(d)}")

    def value(self, name: str) -> str:
        """A value that the kernel declares at its top if it is used (``nautilus.cuda.emit``)."""
        self.speller.mentioned.add(name)
        return name

    @property
    def lane(self) -> str:
        """The variable that holds the lane of the thread."""
        return self.value("lane")

    @property
    def warp(self) -> str:
        """The variable that holds the warp of the thread in its role."""
        return self.value("warp")

    @property
    def block(self) -> str:
        """The variable that holds the number of the block."""
        return self.value("block")

    @property
    def shared(self) -> str:
        """Shared address of the dynamic shared memory."""
        return self.value("shared")

    @property
    def pointer(self) -> str:
        """Generic pointer to the dynamic shared memory."""
        return self.value("smem")

    def layout(self, frag: ma.Frag) -> FragLayout:
        """The layout of ``frag``."""
        return self.all_layouts[frag.layout]

    def array(self, frag: ma.Frag) -> RegisterArray:
        """The C array that holds ``frag``."""
        return register_array(frag.type.dtype, self.layout(frag).registers)

    def declare(self, frag: ma.Frag) -> str:
        """Declare the array of ``frag``; returns its C name."""
        name = self.names[frag.name] = self.visible(frag.name)
        spelled = self.array(frag)
        self.line(f"{spelled.type} {name}[{spelled.length}];")
        return name

    def name(self, frag: ma.Frag) -> str:
        """C array of ``frag``; a constant kept inline is given one now."""
        if frag.name not in self.names:
            text = self.inline[frag.name]
            self.filled.append(frag.name)
            name = self.declare(frag)
            spelled = self.array(frag)
            if spelled.pack > 1:
                text = self.packed_constant(text, frag.type.dtype)
            with self.registers("r", spelled.length) as r:
                self.line(f"{name}[{r}] = {text};")
        return self.names[frag.name]

    def packed_constant(self, text: str, dtype: DType) -> str:
        """A packed register that repeats one element, of which ``text`` gives the bits."""
        if dtype in HALF:
            bits = text.partition("0x")[2]
            return f"0x{bits}{bits}u" if bits else f"(u32){text} * 0x10001u"
        return f"{self.speller.use('pack_bytes')}({text}, {text}, {text}, {text})"

    def element(self, frag: ma.Frag, within: FragLayout, r: str) -> str:
        """Element of ``frag`` at register ``r`` of layout ``within`` (of which frag's is a projection)."""
        if frag.name in self.inline and frag.name not in self.names:
            return self.inline[frag.name]
        if frag.name in self.scalars:
            return self.scalars[frag.name]
        own = self.layout(frag)
        at = r if own.reg == within.reg else projected_register(within, frag.type.names, r)
        return self.element_at(frag, "0" if own.registers == 1 else at)

    def element_at(self, frag: ma.Frag, at: str) -> str:
        """Element number ``at`` of the array of ``frag``, in its storage type."""
        name, spelled = self.name(frag), self.array(frag)
        if spelled.pack == 1:
            return f"{name}[{bare(at)}]"
        at = group(at)
        if spelled.pack == 2:
            return f"{self.speller.use('half_of')}({name}[{at} / 2], {at} % 2)"
        byte = f"{self.speller.use('byte_of')}({name}[{at} / 4], {at} % 4)"
        return f"(signed char){byte}" if frag.type.dtype is DType.I8 else byte

    def in_f32(self, frag: ma.Frag, within: FragLayout, r: str, then: DType = DType.F32) -> str:
        """:meth:`element` in f32, which is rounded to ``then``; numbers of 8 bits that share a register are converted
        from there."""
        dtype = frag.type.dtype
        plain = frag.name in self.scalars or (frag.name in self.inline and frag.name not in self.names)
        if plain or not (dtype.is_float8 or dtype in (DType.I8, DType.U8)) or self.array(frag).pack == 1:
            return self.speller.before_rounding(self.element(frag, within, r), dtype, then)
        own = self.layout(frag)
        at = group(r if own.reg == within.reg else projected_register(within, frag.type.names, r))
        convert = self.speller.use(f"{BITS[dtype][0]}_of" if dtype.is_float8 else f"{dtype}_to_f32_of")
        return f"{convert}({self.name(frag)}[{at} / 4], {at} % 4)"

    def base(self, layout_name: str, axis: str) -> str:
        """C name of the thread's base position along ``axis``; declared once at the top of the kernel."""
        key = (layout_name, axis)
        parts = thread_parts(self.all_layouts[layout_name], axis)
        if key not in self.bases:
            self.bases[key] = self.unique(f"{layout_name}_{axis}") if parts else "0"
        self.speller.mentioned.update(parts, (self.bases[key],))
        return self.bases[key]

    def position(self, layout_name: str, axis: str, r: str) -> str:
        """Position along ``axis`` of register ``r`` under a layout."""
        base = self.base(layout_name, axis)
        offset = "0" if r == "0" else register_offset(self.all_layouts[layout_name], axis, r)
        parts = [p for p in (base, offset) if p != "0"]
        return " + ".join(parts) if parts else "0"

    @contextmanager
    def positions(self, layout_name: str, exprs: list[Expr], r: str) -> Iterator[None]:
        """Declare ``at_AXIS`` for the tile axes of ``exprs`` that the text reads, and bind the axes to them.

        A text that is spelled by thread and register parts reads none.
        """
        names = {a: f"at_{sanitize(a)}" for a in self.tile_axes if any(a in free_vars(e) for e in exprs)}
        saved, first = {a: self.env.get(a) for a in names}, len(self.lines)
        lines = []
        for axis, name in names.items():
            with self.speller.mentions() as needed:
                lines.append((name, f"const int {name} = {self.position(layout_name, axis, r)};", needed))
        self.env.update(names)
        with self.speller.mentions() as mentioned:
            yield
        self.speller.mentioned |= mentioned
        body, self.lines[first:] = self.lines[first:], []
        for name, line, needed in lines:
            if name in mentioned:
                self.line(line)
                self.speller.mentioned |= needed
        self.lines += body
        for axis, old in saved.items():
            if old is None:
                del self.env[axis]
            else:
                self.env[axis] = old

    def expr(self, e: Expr, within: FragLayout | None = None, r: str = "0") -> str:
        """C text of an index expression at register ``r`` of layout ``within``."""

        def ref(x: Ref) -> str:
            frag = self.frags[x.name]
            return self.element(frag, within or self.layout(frag), r)

        return self.speller.expr(e, self.env, self.ranges, ref, self.element_of_input)

    def element_of_input(self, x: Load) -> str:
        """The element that a ``let`` reads."""
        shape = self.module.buffer(x.buffer).shape
        wide = at_most(volume(shape)) >= 2**31
        dtype = DType.I64 if wide else DType.I32
        place: Expr = Const(0, dtype)
        for n, (i, size) in enumerate(zip(x.index, shape, strict=True)):
            at, step = (Op("cast", (e,), dtype) if wide else e for e in (i, extent_expr(size)))
            place = Op("add", (Op("mul", (place, step), dtype), at), dtype) if n else at
        return f"{self.env['&' + x.buffer]}[{self.expr(place)}]"

    def warp_base(self, layout_name: str, axis: str) -> str:
        """C name of the first position along ``axis`` of the warp's part of a tile."""
        key = (layout_name, axis)
        if key not in self.warp_keys:
            text = thread_base(replace(self.all_layouts[layout_name], lane=()), axis)
            if text != "0":
                self.value("warp")
            name = "0" if text == "0" else self.unique(f"warp_{axis}")
            self.warp_keys[key] = name
            if name != "0":
                self.warp_bases[name] = text
        return self.warp_keys[key]

    def projected_layout(self, layout_name: str, axes: tuple[str, ...]) -> str:
        """Name of the projection of a layout to ``axes`` (made known to this writer)."""
        name = "_".join([layout_name, *axes])
        self.all_layouts[name] = self.all_layouts[layout_name].project(axes)
        return name

    def may_overwrite(self, frag: ma.Frag) -> bool:
        """True where the array of ``frag`` is last used by its only reader, in the body that defines it."""
        name = self.names[frag.name]
        return frag.name in self.owned and self.uses[frag.name] == 1 and name not in self.aliased

    def zero(self, dtype: DType) -> str:
        """The literal 0 of ``dtype``."""
        return literal(0 if not dtype.is_float else 0.0, dtype)


#: what prints the ops inside of another op
Body: TypeAlias = "Callable[[Writer, tuple[ma.MemOp, ...]], None]"
#: op class -> what prints an op of it
Printers: TypeAlias = Mapping[type, Callable[[Writer, Any], None]]


def calls(helper: str) -> Callable[[Writer, Any], None]:
    """The printer of an op without operands: a call of ``helper``."""
    return lambda w, _: w.line(f"{w.speller.use(helper)}();")


def axis_ranges(kernel: ma.MemKernel) -> dict[str, tuple[int, int]]:
    """Ranges of every tile axis: 0 .. its largest position in any layout or shared buffer."""
    out: dict[str, tuple[int, int]] = {}
    for layout in kernel.layouts.values():
        for axis in layout.axes:
            out[axis] = (0, max(layout.extent(axis) - 1, out.get(axis, (0, 0))[1]))
    for buffer in kernel.smem:
        for a in buffer.axes:
            out[a.name] = (0, max(a.size - 1, out.get(a.name, (0, 0))[1]))
    return out
