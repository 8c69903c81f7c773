"""Layout assignment: which fragment layout a tile has, as a function of the axes it varies with.

One *preferred* layout exists per set of axes, chosen so that the layouts of sub-tiles are projections of
those of whole tiles; elementwise work and reductions then need no conversion.  Two families:

* the **template** of kernels without matrix instructions: every axis belongs to a class (axes that
  never occur in one tile may share a class), and every class owns some lanes and warps.  The column
  class runs along contiguous memory: ``vec`` consecutive elements in registers, then lanes, then warps,
  then further registers; row classes follow.
  Where a block has several rows that it reduces, as many lanes as fill a line or a sector run along a row.
  Terms of a scatter are the exception.  Neighbours along the axes of its keys often meet at one element, so they are
  registers of one thread, which combines them before it writes.  Lanes along another axis write neighbouring elements,
  so they have single ones: memory combines a whole 32-byte sector at once.
* **accumulators** of matrix instructions (:func:`accumulator`) and their projections.

Tile sizes may be any integer: an axis takes the lanes and warps that divide it, and the other
lanes and warps of its class hold copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import gcd, prod

from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis
from nautilus.ma_tile.analysis.sectors import LINE
from nautilus.ma_tile.ir.instruction_tables import WGMMA, a_layout, acc_layout, wg_a_layout, wg_acc_layout
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.lowering.dots import DotPlan
from nautilus.ma_tile.lowering.operands.access_costs import LayoutCost
from nautilus.targets.limits import VECTOR_BYTES, WORD
from nautilus.targets.memory_rates import SECTOR
from nautilus.vr_tile.ir import (
    DotOp,
    LoadOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    TileKernel,
    walk_ops,
)
from nautilus.vr_tile.rewriting.subtiles import combined

#: (place, axis or None for copies, size); strides grow in order of appearance.
Digit = tuple[str, str | None, int]


def assemble(digits: Iterable[Digit]) -> FragLayout:
    """A layout from digits; size-1 digits vanish and adjacent copies merge."""
    places: dict[str, list[Mode]] = {"reg": [], "lane": [], "warp": []}
    stride: dict[str, int] = {}
    for place, axis, size in digits:
        if size == 1:
            continue
        modes = places[place]
        if axis is None:
            if modes and modes[-1].axis is None:
                modes[-1] = Mode(modes[-1].size * size, None)
            else:
                modes.append(Mode(size, None))
            continue
        step = stride.get(axis, 1)
        modes.append(Mode(size, axis, step))
        stride[axis] = step * size
    return FragLayout(tuple(places["reg"]), tuple(places["lane"]), tuple(places["warp"]))


def canonical(layout: FragLayout) -> FragLayout:
    """The same map without size-1 modes and with adjacent copies merged; equal maps built alike compare equal."""

    def clean(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
        out: list[Mode] = []
        for m in modes:
            if m.size == 1:
                continue
            if m.axis is None and out and out[-1].axis is None:
                out[-1] = Mode(out[-1].size * m.size, None)
            else:
                out.append(m)
        return tuple(out)

    return FragLayout(clean(layout.reg), clean(layout.lane), clean(layout.warp))


def spread(axes: Sequence[TileAxis], vec: int, warps: int) -> FragLayout:
    """Threads over a tile whose last axis is contiguous: vectors, then lanes, then warps, then registers."""
    inner_first = list(reversed(axes)) or [TileAxis("?", 1)]
    lanes, left_warps = 32, warps
    digits: list[Digit] = []
    for n, a in enumerate(inner_first):
        size = a.size
        if n == 0:
            digits.append(("reg", a.name, vec))
            size //= vec
        take = gcd(lanes, size)
        lanes //= take
        digits.append(("lane", a.name, take))
        size //= take
        take = gcd(left_warps, size) if lanes == 1 or n == len(inner_first) - 1 else 1
        left_warps //= take
        digits += [("warp", a.name, take), ("reg", a.name, size // take)]
    digits += [("lane", None, lanes), ("warp", None, left_warps)]
    return assemble(digits)


def with_registers(layout: FragLayout, axes: Sequence[TileAxis]) -> FragLayout:
    """``layout`` of tiles that also have ``axes``, whose elements are registers of one thread."""
    return replace(layout, reg=(*layout.reg, *(Mode(a.size, a.name, 1) for a in axes)))


def outer_layout(m: TileAxis, n: TileAxis, warps: tuple[int, int]) -> FragLayout:
    """Scalar products: a thread owns 4 columns at a time, 8 lanes along ``n`` and 4 along ``m``."""
    vec = gcd(4, n.size)
    ln = gcd(8, n.size // vec)
    lm = gcd(32 // ln, m.size)
    wm = gcd(warps[0], m.size // lm)
    wn = gcd(warps[0] * warps[1] // wm, n.size // (vec * ln))
    extra = gcd(warps[0] * warps[1] // (wm * wn), m.size // (lm * wm))
    return assemble(
        [
            ("reg", n.name, vec), ("lane", n.name, ln), ("reg", n.name, n.size // (vec * ln * wn)),
            ("lane", m.name, lm), ("lane", None, 32 // (ln * lm)),
            ("reg", m.name, m.size // (lm * wm * extra)),
            ("warp", m.name, wm * extra), ("warp", n.name, wn),
            ("warp", None, warps[0] * warps[1] // (wm * wn * extra)),
        ]
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClassPlan:
    """A class of axes and the lanes and warps it owns (column class: after ``vec`` registers)."""

    axes: tuple[str, ...]
    lanes: int
    warps: int


@dataclass(frozen=True, slots=True)
class Template:
    """The blocked layout family of a kernel."""

    sizes: Mapping[str, int]
    vec: Mapping[str, int]
    columns: ClassPlan
    rows: tuple[ClassPlan, ...]
    spare_lanes: int
    warps: int
    # axes of scans, keys and windows are rows, so that a thread has neighbours in its registers
    scanned: frozenset[str] = frozenset()
    keyed: frozenset[str] = frozenset()  # of these, the axes of keys, whose registers come first
    across: frozenset[str] = frozenset()  # rows of 8-bit floats that are contiguous along the axis: a register has four
    states: frozenset[str] = frozenset()  # axes of states of a scan, all of which are registers of one thread

    def layout(self, axes: tuple[str, ...]) -> FragLayout:
        """Layout of a tile that varies with ``axes``."""
        digits: list[Digit] = []
        for plan in (self.columns, *self.rows):
            digits += self._class_digits(plan, axes)
        used = self.columns.warps * prod(r.warps for r in self.rows)
        digits += [("lane", None, self.spare_lanes), ("warp", None, self.warps // used)]
        digits.sort(key=lambda d: d[0] != "reg" or d[1] not in self.keyed)
        return assemble(digits)

    def _class_digits(self, plan: ClassPlan, axes: tuple[str, ...]) -> list[Digit]:
        axis = next((a for a in plan.axes if a in axes), None)
        if axis is None:
            return [("lane", None, plan.lanes), ("warp", None, plan.warps)]
        size = self.sizes[axis]
        if axis in self.states:
            return [("reg", axis, size), ("lane", None, plan.lanes), ("warp", None, plan.warps)]
        across = gcd(WORD, size) if axis in self.across else 1
        vec = gcd(self.vec.get(axis, 1), size) if plan is self.columns else across
        lanes = gcd(plan.lanes, size // vec)
        warps = gcd(plan.warps, size // (vec * lanes))
        if axis in self.scanned and plan is not self.columns:
            vec = size // (lanes * warps)
        return [
            ("reg", axis, vec),
            ("lane", axis, lanes), ("lane", None, plan.lanes // lanes),
            ("warp", axis, warps), ("warp", None, plan.warps // warps),
            ("reg", axis, size // (vec * lanes * warps)),
        ]  # fmt: skip


def make_template(kernel: TileKernel, cost: LayoutCost, warps: tuple[int, int], fixed_warps: int | None) -> Template:
    """Divide lanes and warps between the axes. ``warps``: the requested warps along rows and columns.

    ``fixed_warps`` keeps the number of warps; without it, idle warps are dropped.
    """
    sizes = {a.name: a.size for a in kernel.axes}
    columns, rows = _classes(kernel, cost)
    reduced = {x for op in walk_ops(kernel.body) if isinstance(op, ReduceOp | ScanOp) for x in combined(op)}
    # lanes that share a reduced axis must exchange values, so reduced axes get registers first, and then those along
    # which results share a value that takes long to compute
    costly = [tile for tile in cost.costly if not tile.isdisjoint(columns)]
    shared = {x for c in rows for x in c if costly and all(x not in tile for tile in costly)}
    # of the others, those come first along which every load differs: a thread uses an element several times where its
    # registers are along an axis that the load lacks
    rows.sort(
        key=lambda c: (
            not cost.shifts.isdisjoint(c),
            not cost.terms.isdisjoint(c),
            not reduced.isdisjoint(c),
            not shared.isdisjoint(c),
            not cost.sharing.isdisjoint(c),
        )
    )
    kept = sum(reduced.isdisjoint(c) for c in rows)
    vec = {a: gcd(cost.vec.get(a, 1), sizes[a]) for a in columns}
    scans = [op for op in walk_ops(kernel.body) if isinstance(op, ScanOp)]
    for op in scans:
        if op.axis in vec and op.into in vec:  # a scan keeps the layout
            vec[op.axis] = vec[op.into] = max(vec[op.axis], vec[op.into])
    lead = columns[0] if columns else None
    wanted = fixed_warps or warps[0] * warps[1]
    if cost.keyed:
        vec |= {x: gcd(sizes[x], sizes[x] // (32 * wanted) or 1) if x in cost.keyed else 1 for x in columns}
    kept_rows = {x for c in rows for x in c if reduced.isdisjoint(c)}
    across = frozenset() if cost.keyed else cost.bytes & kept_rows
    states = frozenset(op.states for op in scans if op.states is not None)
    row_sizes = [_row_size([a for a in c if a not in states], sizes, across) for c in rows]
    span = sizes[lead] if lead else 1
    while lead and vec[lead] > 1 and gcd(32, span // vec[lead]) * gcd(32, prod(row_sizes)) < 32:
        vec = {a: max(1, v // 2) for a, v in vec.items()}
    # elements that many positions share, such as scales of groups, leave no warp without work
    while lead and vec[lead] > cost.loaded.get(lead, vec[lead]) and span // vec[lead] * prod(row_sizes) < 32 * wanted:
        vec = {a: max(1, v // 2) for a, v in vec.items()}
    col_lanes = gcd(cost.lanes, span // vec[lead]) if lead else 1
    if kernel.spread > 1 and kept:  # what is computed from results is computed again by each lane of a reduction
        col_lanes = min(col_lanes, 32 // gcd(32, row_sizes[0] // gcd(wanted, row_sizes[0])))
    few = _lanes_along(kernel, lead, vec[lead], rows) if lead else 32
    if apart := few < col_lanes and row_sizes[0] % (32 // few * wanted) == 0:  # other lanes and warps have other rows
        col_lanes = few
    row_lanes, left = _shared_lanes(32 // col_lanes, row_sizes)
    along = span // (vec[lead] * col_lanes) if lead and not apart else 1
    across_rows = [s // n for s, n in zip(row_sizes, row_lanes, strict=True)]
    col_warps, row_warps = _share_warps(wanted, warps[0], along, across_rows, kept)
    return Template(
        sizes, vec, ClassPlan(tuple(columns), col_lanes, col_warps),
        tuple(ClassPlan(tuple(c), n, w) for c, n, w in zip(rows, row_lanes, row_warps, strict=True)),
        left, fixed_warps or col_warps * prod(row_warps),
        cost.keyed | cost.sliding | {x for op in scans for x in combined(op)}, cost.keyed, across, states,
    )  # fmt: skip


def _lanes_along(kernel: TileKernel, axis: str, vec: int, rows: Sequence[Sequence[str]]) -> int:
    """The lanes along the reduced ``axis`` that fill a line with whole vectors, or else a sector.

    More lanes would exchange more values for each row, and each of them would compute again what depends on a row.
    32 where no reduction over the axis has a result for each position along the first of ``rows``, where results along
    the axis are stored, and beside matrix products.
    """
    ops = list(walk_ops(kernel.body))
    widths = [op.result.type.dtype.bytes for op in ops if isinstance(op, LoadOp) and axis in op.result.type.names]
    found = [op.result.type.names for op in ops if isinstance(op, ReduceOp) and axis in op.axes]
    each = bool(found and rows) and all(not set(rows[0]).isdisjoint(names) for names in found)
    stored = any(isinstance(op, StoreOp) and axis in op.value.type.names for op in ops)
    if not each or kernel.spread > 1 or stored or not widths or any(isinstance(op, DotOp) for op in ops):
        return 32
    vector = vec * min(widths)
    return max(1, (LINE if vector >= VECTOR_BYTES else SECTOR) // vector)


def _shared_lanes(lanes: int, rows: Sequence[int]) -> tuple[list[int], int]:
    """The lanes along each class of ``rows``, whose sizes these are, and how many of ``lanes`` are left."""
    found = list[int]()
    for size in rows:
        found.append(gcd(lanes, size))
        lanes //= found[-1]
    return found, lanes


def _row_size(axes: Sequence[str], sizes: Mapping[str, int], across: frozenset[str]) -> int:
    """The elements of a class of rows that lanes and warps share: those along the longest of its axes."""
    return max((sizes[a] // (gcd(WORD, sizes[a]) if a in across else 1) for a in axes), default=1)


def _share_warps(wanted: int, want_rows: int, columns: int, rows: list[int], kept: int) -> tuple[int, list[int]]:
    """Warps along the columns and along each row class: rows up to ``want_rows``, columns, then rows again.

    The first ``kept`` classes of rows are not reduced; the others come last.
    """
    row_warps = [1] * len(rows)
    budget = gcd(wanted, want_rows)
    for n, size in enumerate(rows[: kept or None]):
        row_warps[n] = gcd(budget, size)
        budget //= row_warps[n]
    left = wanted // prod(row_warps)
    col_warps = gcd(left, columns)
    left //= col_warps
    for n, size in enumerate(rows):
        more = gcd(left, size // row_warps[n])
        row_warps[n] *= more
        left //= more
    return col_warps, row_warps


def _classes(kernel: TileKernel, cost: LayoutCost) -> tuple[list[str], list[list[str]]]:
    """Column axes (pairwise never in one tile, most contiguous traffic first) and classes of row axes.

    In a block that is spread, reduced axes come before all traffic: lanes combine what warps cannot, because there is
    no shared memory, and what the block loads again and again stays in registers.
    """
    spread_over = {x for op in walk_ops(kernel.body) if kernel.spread > 1 and isinstance(op, ReduceOp) for x in op.axes}
    together: dict[str, set[str]] = {a.name: set() for a in kernel.axes}
    for tile in cost.tiles:
        for a in tile:
            together[a] |= set(tile) - {a}
    position = {a.name: n for n, a in enumerate(kernel.axes)}
    ranked = sorted(position, key=lambda a: (a not in spread_over, -cost.weight.get(a, 0), -position[a]))
    columns: list[str] = []
    for a in ranked:
        if not together[a] & set(columns):  # also without traffic: a computed tile needs lanes too
            columns.append(a)
    rows: list[list[str]] = []
    for a in reversed(list(position)):
        if a in columns:
            continue
        fitting = next((c for c in rows if not together[a] & set(c)), None)
        if fitting is None:
            rows.append([a])
        else:
            fitting.append(a)
    return columns, rows


def accumulator(plan: DotPlan, sizes: Mapping[str, int]) -> FragLayout:
    """The layout of the result of the instruction of ``plan``."""
    if plan.instr in WGMMA:
        return wg_acc_layout(plan.m, plan.n, sizes[plan.m], sizes[plan.n])
    return in_slices(acc_layout(plan.m, plan.n, (sizes[plan.m], sizes[plan.n]), plan.warps), plan, sizes)


def in_slices(layout: FragLayout, plan: DotPlan, sizes: Mapping[str, int]) -> FragLayout:
    """``layout`` of one warp for all warps, of which each has one of the slices of ``plan``, if it has some."""
    return replace(layout, warp=(Mode(sizes[plan.slices], plan.slices, 1),)) if plan.slices else layout


def a_fragment(plan: DotPlan, sizes: Mapping[str, int]) -> FragLayout:
    """The layout in registers of the left operand of the instruction of ``plan``."""
    if plan.instr in WGMMA:
        return wg_a_layout(plan.instr, plan.m, plan.k, sizes[plan.m], sizes[plan.k])
    return a_layout(plan.instr, plan.m, plan.k, (sizes[plan.m], sizes[plan.k]), plan.warps)


@dataclass(slots=True)
class LayoutCandidates:
    """Preferred layouts of a kernel's tiles (mutable only as a cache)."""

    sizes: Mapping[str, int]
    template: Template
    fixed: dict[frozenset[str], FragLayout]
    operands: dict[frozenset[str], FragLayout]  # of tiles that are left operands of bytes
    rows: Mapping[str, DotPlan]  # M axes of dots -> one of the dots
    _memo: dict[frozenset[str], FragLayout] = field(default_factory=dict)

    def preferred(self, axes: tuple[str, ...]) -> FragLayout:
        """The preferred layout of a tile over ``axes``."""
        key = frozenset(axes)
        if key not in self._memo:
            self._memo[key] = self._find(axes, key)
        return self._memo[key]

    def _find(self, axes: tuple[str, ...], key: frozenset[str]) -> FragLayout:
        known = self.operands | self.fixed
        if key in known:
            return known[key]
        for whole, layout in (*self.fixed.items(), *self.operands.items()):
            if key <= whole:
                return layout.project(axes)
        rows = [a for a in axes if a in self.rows]
        if len(axes) == 2 and len(rows) == 1:
            plan = self.rows[rows[0]]
            n = axes[0] if axes[1] == plan.m else axes[1]
            if self.sizes[n] % (8 * plan.warps[1]) == 0:
                return accumulator(replace(plan, n=n), self.sizes)
        return self.template.layout(axes)


def make_layout_candidates(
    kernel: TileKernel, cost: LayoutCost, warps: tuple[int, int], dots: Mapping[str, DotPlan]
) -> LayoutCandidates:
    """Layouts for ``kernel`` given how its dots are computed."""
    sizes = {a.name: a.size for a in kernel.axes}
    tensor = [d for d in dots.values() if d.instr not in ("map", "fma") and not d.slices]
    scalar = [d for d in dots.values() if d.instr == "fma" and d.is_matrix]
    total = prod((tensor + scalar)[0].warps) if tensor or scalar else None
    total = next((sizes[d.slices] for d in dots.values() if d.slices), total)
    template = make_template(kernel, cost, warps, total)
    fixed: dict[frozenset[str], FragLayout] = {}
    operands: dict[frozenset[str], FragLayout] = {}
    for m, n, count in _beside_slices(kernel, [d for d in dots.values() if d.slices]):
        axes, threads = (TileAxis(m, sizes[m]), TileAxis(n, sizes[n])), 32 * count
        vec = gcd(max(1, sizes[m] * sizes[n] // threads), gcd(4, sizes[n]))
        fixed.setdefault(frozenset((m, n)), spread(axes, vec, count))
    for d in tensor:
        fixed.setdefault(frozenset((d.m, d.n)), accumulator(d, sizes))
    for d in tensor:
        if d.instr in WGMMA and WGMMA[d.instr].pack > 2:  # else the accumulator's layout is the operand's as well
            operands.setdefault(frozenset((d.m, d.k)), a_fragment(d, sizes))
    for d in scalar:
        layout = outer_layout(TileAxis(d.m, sizes[d.m]), TileAxis(d.n, sizes[d.n]), d.warps)
        fixed.setdefault(frozenset((d.m, d.n)), layout)
    return LayoutCandidates(sizes, template, fixed, operands, {d.m: d for d in tensor})


def _beside_slices(kernel: TileKernel, sliced: Sequence[DotPlan]) -> Iterator[tuple[str, str, int]]:
    """The tiles that are spread over all threads, as their axes and the warps: the sums of the slices of products.

    So are tiles of the same rows that are reduced, as those of the parts of a norm; the lanes and warps of the template
    lie along the terms of the products.
    """
    sizes = {a.name: a.size for a in kernel.axes}
    rows = {d.m: sizes[d.slices] for d in sliced}
    yield from ((d.m, d.n, sizes[d.slices]) for d in sliced)
    known = {x for d in sliced for x in (d.k, d.slices)}
    for op in walk_ops(kernel.body):
        names = op.arg.type.names if isinstance(op, ReduceOp) else ()
        for m in rows.keys() & {*names} if len(names) == 2 and known.isdisjoint(names) else ():
            yield m, next(x for x in names if x != m), rows[m]
