"""Loads the elements that overlapping windows of a thread share once, into registers of an axis of their own.

A thread with several neighbouring positions of a window reads most elements for several of them.  In a fragment along
positions and terms, each has a register and a load for each of these::

    %x = ld.global X[p * 4 + q, r] ..               %u = ld.global X[p * 4 + u, r] .. : f32[u: 14, r: 2]
        where q counts positions, and X            %x = window %u over u into q s by 1 1
        is read at q + s

An index may be a function of such a position, the nearest one inside the tensor or one that wraps around::

    %x = ld.global X[max(p + r - 1, 0)]             %u = ld.global X[max(p * 4 + u - 1, 0)]

A load is not changed if no index moves with one axis whose neighbouring positions are in registers and with another
axis, all of which is in registers; if another index or a part of the mask depends on either of them in another way; or
if its elements are not fewer.  Elements that are contiguous along the windows are loaded with vectors; the first and
the last one may have elements outside of the windows, as far as the tensor goes.  So are those at the nearest position
inside a row of whole vectors::

    %x = ld.global X[min(max(p + r - 1, 0), 63)]    %u = ld.global X[min(max(p * 4 + u - 4, 0), 63)] .. vec 4 nearest

Elements of less than 32 bits that are neighbours along the windows share registers.  Where only a conversion to 32 bits
reads the windows, it is done before them, so that no register is put together anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import COMPARISONS, Expr, Load, Op, Ref, Var, free_vars, substitute, walk
from nautilus.core.index.linear import Linear, linear, linear_parts
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import extent_expr
from nautilus.core.records import dataclass
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import nearest_of, nearest_width, vector_width
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import Frag, GlobalLoad, MapOp, MemKernel, MemModule, MemOp, WindowOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel, reads, rebuild
from nautilus.ma_tile.rewriting.renaming import Names, layout_name
from nautilus.targets.limits import VECTOR_BYTES, WORD

_WORD = 8 * WORD  # bits of a register


@dataclass(frozen=True, slots=True)
class ShareWindows:
    """The pass ``share-windows``, which has no options."""

    name = "share-windows"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose threads load the elements of overlapping windows once."""
        buffers = {b.name: b for b in module.buffers}
        return each_kernel(module, lambda k: _shared(k, buffers))


def _shared(kernel: MemKernel, buffers: Mapping[str, Buffer]) -> MemKernel:
    """``kernel`` with the loads of its windows shared."""
    work = _Windows(kernel, buffers, dict(kernel.layouts), Names(kernel), _conversions(kernel))
    body = rebuild(kernel.body, work.rule)
    if body == kernel.body:
        return kernel
    return replace(kernel, layouts=work.layouts, body=body)


def _conversions(kernel: MemKernel) -> dict[str, MapOp]:
    """By name of its operand, each conversion to 32 bits that is the only reader of narrower elements."""
    ops = list(walk_ops(kernel.body))
    uses = Counter(name for op in ops for name in reads(op))
    casts = [op for op in ops if isinstance(op, MapOp) and op.op == "cast" and op.result.type.dtype.bits == _WORD]
    narrow = [op for op in casts if op.args[0].type.dtype.bits < _WORD and uses[op.args[0].name] == 1]
    return {op.args[0].name: op for op in narrow if op.result.layout == op.args[0].layout}


@dataclass(frozen=True, slots=True)
class Along:
    """Windows along dimension ``dim`` of a tensor: their axes, and the slopes and registers of these.

    ``together``: positions in neighbouring registers; ``size``: elements of their windows.  Terms whose slope is
    negative, as in ``X[p - r]``, begin at the last element of a window.
    """

    dim: int
    positions: TileAxis
    terms: TileAxis
    step: int
    dilation: int
    together: int

    @property
    def size(self) -> int:
        """Elements of the windows of neighbouring positions."""
        return self.step * (self.together - 1) + abs(self.dilation) * (self.terms.size - 1) + 1

    @property
    def first(self) -> int:
        """The element of the first term of the first position."""
        return max(0, -self.dilation) * (self.terms.size - 1)

    @property
    def apart(self) -> int:
        """Groups of positions."""
        return self.positions.size // self.together

    def moved(self, e: Expr, axis: str) -> Expr | None:
        """``e`` by the element along ``axis``; None where it does not depend on the element alone."""
        places = {self.positions.name, self.terms.name}
        if not free_vars(e) & places:
            return e
        form = linear(e)
        slope, other = form.slope(self.positions.name), form.slope(self.terms.name)
        apart = (a for a in form.terms if not isinstance(a, Var) and free_vars(a) & places)
        if any(apart) or slope * self.dilation != other * self.step or slope % self.step:
            return self.function(e, axis)
        group: Expr = integer(0)
        if self.apart > 1:
            group = calc("mul", Var(self.positions.name, DType.I32), integer(self.together))
        lowest = integer(self.terms.size - 1 if self.dilation < 0 else 0)
        first = substitute(e, {self.positions.name: group, self.terms.name: lowest})
        more = calc("mul", Var(axis, DType.I32), integer(slope // self.step))
        return simplify(calc("add", first, more))

    def function(self, e: Expr, axis: str) -> Expr | None:
        """:meth:`moved` where ``e`` is a function of such positions: the nearest one inside the tensor, a remainder."""
        if not isinstance(e, Op):
            return None
        args = [self.moved(a, axis) for a in e.args]
        return None if any(a is None for a in args) else replace(e, args=tuple(a for a in args if a is not None))

    def condition(self, e: Expr, axis: str) -> Expr | None:
        """:meth:`moved` for conditions."""
        if not free_vars(e) & {self.positions.name, self.terms.name}:
            return e
        if not isinstance(e, Op) or e.op not in (*COMPARISONS, "and", "or", "not"):
            return None
        inner = self.moved if e.op in COMPARISONS else self.condition
        args = [inner(a, axis) for a in e.args]
        if any(a is None for a in args) and e.op in COMPARISONS and all(a.dtype is DType.I32 for a in e.args):
            args = [self.moved(simplify(calc("sub", *e.args)), axis), integer(0)]  # positions and terms on either side
        return None if any(a is None for a in args) else replace(e, args=tuple(a for a in args if a is not None))


@dataclass(frozen=True, slots=True)
class _Elements:
    """The elements of windows: how many, in vectors of how many, of which ``start`` are before the windows."""

    size: int
    vec: int
    start: int
    index: tuple[Expr, ...]
    mask: Expr | None
    nearest: bool = False

    def shifted(self, axis: str, start: int) -> _Elements:
        """These elements and as many before them."""
        place = calc("sub", Var(axis, DType.I32), integer(start))
        index = tuple(simplify(substitute(e, {axis: place})) for e in self.index)
        mask = None if self.mask is None else simplify(substitute(self.mask, {axis: place}))
        return replace(self, start=start, index=index, mask=mask)


@dataclass(slots=True)
class _Windows:
    """The loads of one kernel.

    ``layouts``: those of the kernel and of the new fragments; ``casts``: conversions that may be done before windows;
    ``moved``: the results of those that are.
    """

    kernel: MemKernel
    buffers: Mapping[str, Buffer]
    layouts: dict[str, FragLayout]
    names: Names
    casts: Mapping[str, MapOp]
    moved: set[str] = field(default_factory=set)

    def rule(self, op: MemOp) -> tuple[MemOp, ...]:
        """The ops that replace ``op``."""
        if isinstance(op, MapOp) and op.result.name in self.moved:
            return ()
        if not isinstance(op, GlobalLoad) or op.repeat is not None or op.shift or op.volatile:
            return (op,)
        if any(isinstance(x, Ref | Load) for e in op.index for x in walk(e)):
            return (op,)
        windows: list[WindowOp] = []
        while (found := self._first(op)) is not None:
            op, window = found
            windows.insert(0, window)
        return self._converted(op, windows)

    def _converted(self, op: GlobalLoad, windows: Sequence[WindowOp]) -> tuple[MemOp, ...]:
        """The load and its windows, after the conversion where registers of the windows would be put together anew."""
        cast = self.casts.get(windows[-1].result.name) if windows else None
        first = self.layouts[windows[-1].result.layout].reg[:1] if windows else ()
        if cast is None or first[0].axis not in {x for w in windows for x in (w.positions, w.terms)}:
            return (op, *windows)
        self.moved.add(cast.result.name)

        def wide(f: Frag) -> Frag:
            if f == windows[-1].result:
                return cast.result
            return replace(self.names.frag(f, "wide"), type=replace(f.type, dtype=cast.result.type.dtype))

        made = {f: wide(f) for f in (op.result, *(w.result for w in windows))}
        later = (replace(w, result=made[w.result], arg=made[w.arg]) for w in windows)
        return (op, replace(cast, result=made[op.result], args=(op.result,)), *later)

    def _first(self, op: GlobalLoad) -> tuple[GlobalLoad, WindowOp] | None:
        for along in _windows(op, self.layouts[op.result.layout]):
            if along.size < along.together * along.terms.size and (made := self._made(op, along)) is not None:
                return made
        return None

    def _made(self, op: GlobalLoad, along: Along) -> tuple[GlobalLoad, WindowOp] | None:
        """The load of the elements ``along`` windows, and the windows."""
        axes, layout = op.result.type.axes, self.layouts[op.result.layout]
        axis = fresh("u", {x for f in self.layouts.values() for x in f.axes} | self.names.variables)
        index = [along.moved(e, axis) for e in op.index]
        masks = [along.condition(c, axis) for c in conjuncts(op.mask)]
        if any(e is None for e in (*index, *masks)):
            return None
        places = tuple(e for e in index if e is not None)
        mask = conjunction(c for c in masks if c is not None)
        found = _Elements(along.size, op.vec, 0, places, mask)
        if along.dim == len(op.index) - 1 and op.vec == 1:
            found = self._vectors(op, found, axis, along)
        kept = [a for a in axes if a.name not in (along.positions.name, along.terms.name)]
        groups = [replace(along.positions, size=along.apart)] if along.apart > 1 else []
        type_ = TileType(op.result.type.dtype, (TileAxis(axis, found.size), *groups, *kept))
        own = _layout(layout, along, axis, found.size, first=found.vec > 1 and along.dim == len(op.index) - 1)
        frag = replace(self.names.frag(op.result, "once"), type=type_)
        frag = replace(frag, layout=layout_name(self.layouts, own, f"{op.result.layout}_once"))
        load = replace(op, result=frag, index=found.index, mask=found.mask, vec=found.vec)
        names, sizes = (axis, along.positions.name, along.terms.name), (along.step, along.dilation)
        load = replace(load, nearest=found.nearest)
        return load, WindowOp(op.result, frag, *names, *sizes, found.start + along.first or None, op.span)

    def _vectors(self, op: GlobalLoad, single: _Elements, axis: str, along: Along) -> _Elements:
        """The elements in vectors, where windows are along contiguous ones; ``single`` where there are none."""
        buffer = self.buffers[op.buffer]
        width = VECTOR_BYTES // buffer.dtype.bytes
        while width > 1:
            near = nearest_of(single.index[-1])
            start = linear(single.index[-1] if near is None else near.place).const % width
            size = -(-(along.size + start) // width) * width
            found = single if start == 0 else single.shifted(axis, start)
            mask = found.mask
            if size > along.size:
                mask = conjunction((*conjuncts(mask), calc("lt", found.index[-1], extent_expr(buffer.shape[-1]))))
            fewer = size < along.together * along.terms.size
            if fewer and vector_width(buffer, found.index, mask, axis, width, {}) == width:
                return replace(found, size=size, vec=width, mask=mask)
            inside = near is not None and near.low is not None and near.high is not None
            if fewer and inside and nearest_width(buffer, found.index, found.mask, axis, width, {}) == width:
                return replace(found, size=size, vec=width, nearest=True)
            width //= 2
        return single


def _windows(op: GlobalLoad, layout: FragLayout) -> Iterator[Along]:
    """The windows of ``op``, by dimension."""
    sizes = {a.name: a for a in op.result.type.axes}
    for dim, e in enumerate(op.index):
        for form in linear_parts(e):
            yield from (replace(w, dim=dim) for w in _windows_along(form, sizes, layout))


def _windows_along(form: Linear, sizes: Mapping[str, TileAxis], layout: FragLayout) -> Iterator[Along]:
    """The windows of a load of which an index is a function of ``form``, as if the index were the first one."""
    inside = [x for x in sizes if form.slope(x)]
    for terms in (x for x in inside if _whole(layout, sizes[x])):
        for positions in (x for x in inside if x != terms and form.slope(x) > 0):
            together = next((m.size for m in layout.reg if m.axis == positions and m.stride == 1), 1)
            alike = sum(m.axis == positions and m.stride < together for m in _modes(layout)) == 1
            if together > 1 and alike and form.slope(positions) < abs(form.slope(terms)) * sizes[terms].size:
                yield Along(0, sizes[positions], sizes[terms], form.slope(positions), form.slope(terms), together)


def _modes(layout: FragLayout) -> tuple[Mode, ...]:
    return tuple(m for m in (*layout.reg, *layout.lane, *layout.warp) if m.size > 1)


def _whole(layout: FragLayout, axis: TileAxis) -> bool:
    """Whether all of ``axis`` is in the registers of a thread, in one mode."""
    own = [m for m in _modes(layout) if m.axis == axis.name]
    return len(own) == 1 and own[0] in layout.reg and own[0].size == axis.size > 1 and own[0].stride == 1


def _layout(layout: FragLayout, along: Along, axis: str, size: int, first: bool) -> FragLayout:
    """``layout`` with the elements of windows in place of their positions and terms."""

    def changed(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
        out = list[Mode]()
        for m in modes:
            if m.axis == along.terms.name or (m.axis == along.positions.name and m.stride < along.together):
                continue
            apart = m.axis == along.positions.name
            out.append(replace(m, stride=m.stride // along.together) if apart else m)
        return tuple(out)

    own = Mode(size, axis, 1)
    rest = changed(layout.reg)
    return FragLayout((own, *rest) if first else (*rest, own), changed(layout.lane), changed(layout.warp))
