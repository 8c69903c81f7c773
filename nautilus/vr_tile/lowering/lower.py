"""Scalar IR in tiled form -> VR-tile IR (``scalar.ir``, "Tiled form"; ``vr_tile.ir``).

* A local is an SSA value.  A loop carries the locals that its body writes and that the next iteration
  or the code after the loop reads.
* A sum of products that is a contraction (``vr_tile.lowering.contraction``) becomes a ``dot`` of operands in their
  storage types with the running local as accumulator.  Every other update becomes a map and a reduce.
* A guard is split.  A load has its own bounds check (``vr_tile.lowering.build``), and a store has the whole guard.  In
  a reduction, the conjuncts over a reduced axis select the combiner's identity.  The other conjuncts select the local's
  old value; a conjunct is dropped if the elements that it excludes are not read
  (:func:`~nautilus.vr_tile.lowering.regions.unread`).
* The select of a *sum* is dropped where the excluded element is exactly 0: a product of loads whose masks imply the
  conjunct, or of such a load and a factor that is always finite (an integer).  A factor that could be inf or NaN does
  not qualify, because 0 * inf is NaN.
* In a ``dot``, every operand that has all axes of the conjunct is masked: a plain load by its own mask, at no cost, and
  a computed operand by a select.  An operand without those axes is not masked, and an inf or NaN in it at an excluded
  point would give 0 * inf: the ``dot`` has such a conjunct as its mask.
* Consecutive loops over adjoining ranges, in any order, share a ``chain`` if their bodies differ only in guards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeGuard

from nautilus.core.errors import InternalError, UnsupportedError, in_kernel
from nautilus.core.expr.build import integer
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.infer import make, stored_value
from nautilus.core.expr.nodes import COMBINERS, Const, Expr, Load, Op, identity, loads, substitute
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.simplify import TRUE, conjuncts
from nautilus.core.schedule import Schedule, mapping_of
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update
from nautilus.vr_tile.ir import ForOp, GridAxis, StoreOp, TileKernel, TileModule, Value
from nautilus.vr_tile.lowering.build import Builder
from nautilus.vr_tile.lowering.contraction import Axes, Contraction, addends, contraction, integers, stored, stripped
from nautilus.vr_tile.lowering.fills import fills
from nautilus.vr_tile.lowering.regions import (
    Node,
    Point,
    Region,
    chained,
    exposed,
    locals_of,
    prepare,
    unread,
    unwrapped,
    written,
    zero_of,
)
from nautilus.vr_tile.lowering.scans import Scan, recurrence, scan_along, scan_of


def lower(p: Program, vector_dots: bool = False, schedule: Schedule | None = None) -> TileModule:
    """The VR-tile module of a program in tiled form.

    ``schedule``: says which kernels have warpgroup MMAs, whose accumulators should have no select in a loop and
    whose operands are copied by TMA, which has no masks.
    ``vector_dots``: matrix-vector products, in which one side has no axis of its own, also become ``dot``.
    Raises UnsupportedError or InternalError where ``p`` is not in tiled form.
    """
    before = fills(p)
    engines = {k.name: mapping.engine for k in p.kernels if (mapping := mapping_of(schedule, k.name)) is not None}

    def one(k: Kernel) -> TileKernel:
        return _kernel(p, k, vector_dots, engines.get(k.name) == "warpgroup")

    kernels = (x for k in p.kernels for x in (*before.get(k.name, ()), one(k)))
    buffers = tuple(replace(b, initial=None, support=None) for b in p.buffers)
    return TileModule(p.name, buffers, p.params, tuple(kernels), p.facts)


def _kernel(p: Program, k: Kernel, vector_dots: bool, warpgroup: bool) -> TileKernel:
    grid: list[GridAxis] = []
    body: tuple[Stmt, ...] = k.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.GRID:
        loop = body[0]
        if loop.lo != Const(0, loop.lo.dtype):
            raise UnsupportedError("a grid loop that does not start at 0", loop.var, loop.span)
        grid.append(GridAxis(loop.var, loop.hi))
        body = loop.body
    with in_kernel(k.name):
        return _Lower(p, k, tuple(grid), body, vector_dots, warpgroup).run()


class _Lower:
    """The lowering of one kernel. ``b`` emits ops; ``types`` has the full tile type of each local."""

    def __init__(
        self, p: Program, k: Kernel, grid: tuple[GridAxis, ...], body: tuple[Stmt, ...], vector_dots: bool,
        warpgroup: bool,
    ) -> None:  # fmt: skip
        known: dict[str, Expr] = {g.var: integer(0) for g in grid if g.extent == integer(1)}
        axes, self.nodes = prepare(body, known, {x.name for x in k.locals})
        self.kernel = k
        self.grid = grid
        self.vector_dots, self.warpgroup = vector_dots, warpgroup
        self.b = Builder(axes, {x.name: x for x in p.buffers})
        self.stored = {x.name: x.dtype for x in p.buffers}
        self.locals = {x.name: x for x in k.locals}
        self.types = {
            name: self.b.type(self.locals[name].dtype, names)
            for name, names in locals_of(self.nodes, self.locals.keys(), axes.keys()).items()
        }
        self.vars = {g.var for g in grid}
        self.shapes = {n: set(t.names) for n, t in self.types.items()}
        self.unread = unread(self.nodes, self.vars, self.shapes, axes.keys())
        self.constants: dict[str, int | float | bool] = {}
        self.chains = 0

    def run(self) -> TileKernel:
        for g in self.grid:
            zero = Const(0, g.extent.dtype)
            self.b.assumptions = self.b.assumptions.within(g.var, zero, g.extent, loop=False)
        self.block(self.nodes, frozenset())
        k = self.kernel
        return TileKernel(k.name, self.grid, tuple(self.b.axes.values()), tuple(self.b.out), k.span, k.spread, k.team)

    # -- structure ----------------------------------------------------------------------------
    def block(self, nodes: Sequence[Node], live_out: frozenset[str]) -> None:
        names = {i: f"c{self.chains + n}" for i, n in chained(nodes).items()}
        self.chains += len(set(names.values()))
        for i, node in enumerate(nodes):
            if isinstance(node, Point):
                self.point(node)
                continue
            gen, kill = exposed(nodes[i + 1 :], self.locals.keys())
            self.loop(node, gen | (live_out - kill), names.get(i))

    def loop(self, r: Region, live_after: frozenset[str], chain: str | None) -> None:
        b, loop = self.b, r.loop
        gen, _ = exposed(r.body, self.locals.keys())
        carried = [n for n in written(r.body) if n in self.locals and (n in gen or n in live_after)]
        b.statement(loop.span)
        inits = [self.whole(n) for n in carried]
        args = [b.fresh(self.types[n], n) for n in carried]
        outer, env, outside = b.out, dict(b.env), b.assumptions
        b.out = []
        b.env.update(zip(carried, args, strict=True))
        b.assumptions = outside.within(loop.var, loop.lo, loop.hi, loop=True)
        known, self.unread = self.unread, self.unread | self.dead_elements(r, gen | live_after)
        self.block(r.body, gen | live_after)
        self.unread = known
        b.statement(loop.span)
        yields = tuple(self.whole(n) for n in carried)
        body, b.out, b.env, b.assumptions = tuple(b.out), outer, env, outside
        results = tuple(b.fresh(self.types[n], n) for n in carried)
        for n in written(r.body):
            b.env.pop(n, None)
        b.env.update(zip(carried, results, strict=True))
        pairs = tuple(zip(args, inits, strict=True))
        b.emit(ForOp(results, loop.var, loop.lo, loop.hi, pairs, body, yields, chain, loop.span))

    def dead_elements(self, r: Region, kept: frozenset[str]) -> frozenset[tuple[Expr, str]]:
        """The result of :func:`unread` for one iteration and the locals that no other iteration reads."""
        inner = {n: t for n, t in self.shapes.items() if n not in kept}
        return unread(r.body, {*self.vars, *self.b.assumptions.ranges, r.loop.var}, inner, self.b.axes.keys())

    def whole(self, name: str) -> Value:
        """The local over all its axes. A local that is not written yet is 0, which no result uses."""
        t = self.types[name]
        if name not in self.b.env:
            return self.b.const(zero_of(t.dtype), t, name)
        v = self.b.env[name]
        if v.name in self.constants and v.type != t:
            return self.b.const(self.constants[v.name], t, name)
        return self.b.spread(v, t.names, name)

    # -- statements ---------------------------------------------------------------------------
    def point(self, p: Point) -> None:
        self.b.statement(p.stmt.span)
        match p.stmt:
            case Store(buffer=buffer) if buffer in self.locals and p.ordered:
                self.states(p.stmt, p.ordered, p.states)
            case Store(buffer=buffer) if buffer in self.locals:
                self.assign(p.stmt)
            case Store():
                self.store(p.stmt)
            case Update(buffer=buffer) if buffer in self.locals:
                self.update(p, p.stmt)
            case Update(atomic=True):
                self.scatter(p, p.stmt)
            case Update(buffer=buffer):
                raise UnsupportedError("an update of a buffer in global memory", buffer, p.stmt.span)

    def store(self, s: Store) -> None:
        b = self.b
        index = tuple(map(b.index, s.index))
        names = frozenset[str]().union(*map(b.index_names, index))
        if isinstance(s.value, Const):
            v = b.const(s.value.value, b.type(s.value.dtype, names))
        else:
            v = b.spread(b.value(self._written(s)), names)
        mask = TRUE if s.guard is None else b.index(s.guard)
        b.emit(StoreOp(s.buffer, index, v, None if mask == TRUE else mask, s.span))

    def _written(self, s: Store) -> Expr:
        """What is stored; a float that others read in f32 is rounded from that again, as both forms take registers."""
        v = stored_value(s.value, self.stored[s.buffer])
        return s.value if isinstance(v, Load) and v.dtype.is_float and v.buffer in self.locals else v

    def scatter(self, p: Point, s: Update) -> None:
        """An atomic store of every iteration, also along axes that neither the element nor its position has."""
        b = self.b
        index = tuple(b.index(e) for e in s.index)
        mask = TRUE if s.guard is None else b.index(s.guard)
        v = b.spread(b.value(s.value), p.axes)
        b.emit(StoreOp(s.buffer, index, v, None if mask == TRUE else mask, s.span, s.op))

    def assign(self, s: Store) -> None:
        b, t = self.b, self.types[s.buffer]
        if isinstance(s.value, Const):
            value = float(s.value.value) if t.dtype.is_float else s.value.value
            v = b.const(value, t, s.buffer)
            self.constants[v.name] = value
        else:
            v = b.value(stored_value(s.value, t.dtype))
            if v.type.dtype is not t.dtype:
                v = b.map("cast", (v,), t.dtype, s.buffer)
        keep = [c for c in conjuncts(s.guard or TRUE) if (c, s.buffer) not in self.unread]
        self.set(s.buffer, v, keep)

    def states(self, s: Store, axis: str, states: str) -> None:
        """The states of a linear recurrence along ``axis``, one of which ``s`` stores in each step.

        ``states``: the axis of several that need each other.
        """
        t = self.types[s.buffer]
        keep = [c for c in conjuncts(s.guard or TRUE) if (c, s.buffer) not in self.unread]
        if keep:
            raise UnsupportedError("a scan that is no linear recurrence of whole rows", s.buffer, s.span)
        self.b.env[s.buffer] = recurrence(self.b, s, t.names, axis, states)

    def set(self, name: str, v: Value, guard: Sequence[Expr]) -> None:
        """Assign ``v`` to the local where ``guard`` holds."""
        cond = self.condition(guard)
        if cond is not None and name in self.b.env:
            v = self.b.select(cond, v, self.b.env[name], name)
        self.b.env[name] = v

    def condition(self, parts: Sequence[Expr]) -> Value | None:
        """The conjunction as a value, with one index op for all parts without loads; None if it always holds."""
        b = self.b
        plain = b.known(conjunction([c for c in parts if b.is_index(c)]) or TRUE)
        total = None if plain == TRUE else b.value(plain)
        for c in parts:
            if not b.is_index(c):
                v = b.value(c)
                total = v if total is None else b.map("and", (total, v), DType.BOOL)
        return total

    # -- reductions ---------------------------------------------------------------------------
    def update(self, p: Point, s: Update) -> None:
        b = self.b
        value, more = unwrapped(s.op, s.value)
        guard = [c for c in (*conjuncts(s.guard or TRUE), *more) if b.known(c) != TRUE]
        outer = [c for c in guard if not b.names(c) & p.reduced and (c, s.buffer) not in self.unread]
        outer = [c for c in outer if not self.is_free(s, value, c, p.reduced)]
        inner = [c for c in guard if c not in outer and (b.names(c) & p.reduced or (c, s.buffer) not in self.unread)]
        old = self.b.env.get(s.buffer)
        if old is None:
            raise InternalError(f"local {s.buffer} is updated before it is written")
        start: Value | None = old
        if self.constants.get(old.name) == identity(s.op, self.types[s.buffer].dtype).value:
            start = None
        outer, inner = ([], guard) if p.bound is not None else (outer, inner)
        scan = scan_along(p.ordered, p.bound) or scan_of(b, value, p.reduced, inner)
        if scan is not None:
            rest = [c for c in inner if c is not scan.condition]
            new = self.combined(s.op, start, self.scanned(s.op, value, p.reduced, rest, scan), s.buffer)
        elif s.op == "sum" and p.reduced:
            new = self.sums(s, value, p.reduced, inner, start)
        else:
            element = self.element(s.op, value, p.reduced, inner)
            new = self.combined(s.op, start, element, s.buffer)
        self.set(s.buffer, new, outer)

    def combined(self, op: str, old: Value | None, new: Value, hint: str) -> Value:
        if old is None:
            return new
        return self.b.map(COMBINERS[op].binary, (old, new), new.type.dtype, hint)

    def element(self, op: str, e: Expr, reduced: frozenset[str], guard: Sequence[Expr]) -> Value:
        """The reduction ``op`` of ``e`` over ``reduced`` where ``guard`` holds."""
        b = self.b
        v = self.masked(op, e, guard)
        if not reduced:
            return v
        if op in ("sum", "prod"):
            v = b.spread(v, reduced)
        over = [n for n in v.type.names if n in reduced]
        return b.reduce(op, v, over) if over else v

    def masked(self, op: str, e: Expr, guard: Sequence[Expr]) -> Value:
        """``e``, and the identity of ``op`` where ``guard`` does not hold."""
        b = self.b
        v = b.value(e)
        cond = self.condition([c for c in guard if not (op in ("sum", "any") and self.vanishes(e, c))])
        if cond is None:
            return v
        rest = identity(op, v.type.dtype)
        return b.select(cond, v, b.const(rest.value, TileType(rest.dtype)))

    def scanned(self, op: str, e: Expr, reduced: frozenset[str], guard: Sequence[Expr], scan: Scan) -> Value:
        """The running results of ``e`` where ``guard`` holds, reduced over all other axes of ``reduced`` first."""
        b = self.b
        v = self.masked(op, e, guard)
        v = b.spread(v, reduced if op in ("sum", "prod") else {scan.axis})
        others = [n for n in v.type.names if n in reduced and n != scan.axis]
        v = b.reduce(op, v, others) if others else v
        return b.scan(op, v, (scan.axis, scan.into), scan.bound.reverse, scan.bound.exclusive)

    def vanishes(self, e: Expr, cond: Expr) -> bool:
        """Whether ``e`` is exactly 0 (false) wherever ``cond`` is false, because its loads are masked there."""
        b = self.b
        match e:
            case Load(buffer=buffer, index=index) if buffer in b.buffers and all(map(b.is_index, index)):
                mask = b.nonzero(b.buffers[buffer], index)
                return bool(mask) and b.implied(cond, mask)
            case Op(op="mul", args=(x, y)):
                zero_x, zero_y = self.vanishes(x, cond), self.vanishes(y, cond)
                return (zero_x and (zero_y or self.finite(y))) or (zero_y and self.finite(x))
            case Op(op=op, args=(x,)) if op in _KEEP_ZERO:
                return self.vanishes(x, cond)
            case Op(op="add" | "sub" | "min" | "max", args=(x, y)):
                return self.vanishes(x, cond) and self.vanishes(y, cond)
        return False

    def finite(self, e: Expr) -> bool:
        """Whether ``e`` is neither inf nor NaN for any inputs."""
        match e:
            case Const(value=value):
                return abs(value) < float("inf")
            case Op(op="cast" | "neg", args=(x,)):
                return not x.dtype.is_float or self.finite(x)
        return not e.dtype.is_float

    def sums(self, s: Update, e: Expr, reduced: frozenset[str], guard: list[Expr], start: Value | None) -> Value:
        """The running sum ``start`` plus the sum of ``e``, with a dot for every term that is a contraction."""
        terms = addends(e)
        if not any(self.matched(t, reduced, guard) for _, t in terms):
            terms = [(True, e)]
        total = start
        for plus, term in terms:
            inner, more = unwrapped("sum", term)
            conds = [*guard, *more]
            found = self.matched(term, reduced, guard)
            if found is None:
                part = self.element("sum", inner, reduced, conds)
            else:
                part = self.contracted(found, conds, total if plus else None, s.buffer)
                if plus and total is not None and not found.after and part.type == total.type:
                    total = part
                    continue
            total = self.added(total, part, plus, s.buffer)
        assert total is not None
        return total

    def added(self, total: Value | None, part: Value, plus: bool, hint: str) -> Value:
        if total is None:
            return part if plus else self.b.map("neg", (part,), part.type.dtype, hint)
        return self.b.map("add" if plus else "sub", (total, part), part.type.dtype, hint)

    def matched(self, term: Expr, reduced: frozenset[str], guard: Sequence[Expr]) -> Contraction | None:
        """``term`` as a contraction, if every condition can be applied to one of its operands; else None."""
        b = self.b
        inner, more = unwrapped("sum", term)
        found = contraction(inner, reduced, b.names, self.vector_dots)
        if found is None:
            return None
        for c in (*guard, *more):
            names = b.names(c)
            if not (names <= found.a_axes or names <= found.b_axes):
                return None
        if not all(self.holds_first(c, reduced) for c in (*guard, *more) if b.names(c)):
            return self.inside(found)
        return found

    def is_free(self, s: Update, term: Expr, cond: Expr, reduced: frozenset[str]) -> bool:
        """Whether ``cond``, over other axes of the tile or none, masks an operand of the dot ``term`` at no cost.

        The dot then adds 0 where it is false, because an operand is outside of its tensor there.
        """
        if not self.warpgroup or s.op != "sum" or not reduced or self.matched(term, reduced, ()) is None:
            return False
        return any(
            bool(inside := self.b.nonzero(self.b.buffers[e.buffer], e.index)) and self.b.implied(cond, inside)
            for e in loads(term)
            if self.is_loaded(e)
        )

    def holds_first(self, c: Expr, reduced: frozenset[str]) -> bool:
        """Whether ``c`` certainly holds where the reduced axes are 0, so that no row has an empty domain."""
        zero = integer(0)
        return not loads(c) and self.b.known(substitute(c, dict.fromkeys(reduced, zero))) == TRUE

    def inside(self, c: Contraction) -> Contraction | None:
        """``c`` without factors after the sum that an empty domain would make NaN: 0 / 0, and 0 * inf.

        They become factors of an operand that has their axes; None where neither operand has them.
        """
        after: list[tuple[str, Expr | None]] = []
        for op, arg in c.after:
            names = frozenset[str]() if arg is None else self.b.names(arg)
            if arg is None or (self.finite(arg) and (op != "div" or (isinstance(arg, Const) and arg.value != 0))):
                after.append((op, arg))
            elif names <= c.a_axes:
                c = replace(c, a=make(op, c.a, arg))
            elif names <= c.b_axes:
                c = replace(c, b=make(op, c.b, arg))
            else:
                return None
        return replace(c, after=tuple(after))

    def contracted(self, c: Contraction, guard: Sequence[Expr], acc: Value | None, hint: str) -> Value:
        """The dot of ``c``, accumulating into ``acc`` if the types are equal (otherwise the caller adds)."""
        b = self.b
        whole = integers(c, prod(b.axes[a].size for a in c.axes))
        x, y = whole or stored(c)
        own = {g: side for g in guard if (side := self.outside(g, x, y) or self.computed(g, c, x, y)) is not None}
        left, right = (
            self.operand(e, axes, [g for g in guard if own.get(g, e) is e])
            for e, axes in ((x, c.a_axes), (y, c.b_axes))
        )
        wider = DType.I64 if c.a.dtype is DType.I64 else None  # than the integers whose products it has
        kept = b.type(wider or left.type.dtype.compute, (c.a_axes | c.b_axes) - c.axes)
        use = acc if acc is not None and not c.after and acc.type == kept else None
        last = b.terms(c.axes, guard, (x, y))
        v = b.dot(left, right, use, sorted(c.axes), hint, self.absent(c, guard, own), last, wider)
        if whole is not None:
            v = b.map("cast", (v,), c.a.dtype, hint)
        for op, arg in c.after:
            args = (v,) if arg is None else (v, b.value(arg))
            v = b.map(op, args, v.type.dtype, hint)
        return v

    def outside(self, cond: Expr, *sides: Expr) -> Expr | None:
        """The one of ``sides`` that is 0 where ``cond`` is false, because it then lies outside of its tensor.

        Only for a condition on the whole tile, or where both sides are loaded for warpgroup MMAs; None where there is
        no such side, or more than one.  A computed side keeps its masks, which it may share with other updates: an
        exponential is then computed once for its sum and for the product.
        """
        b = self.b
        if b.names(b.known(cond)) and not (self.warpgroup and all(map(self.is_loaded, sides))):
            return None
        checks = ((e, b.nonzero(b.buffers[e.buffer], e.index)) for e in sides if self.is_loaded(e))
        found = [e for e, inside in checks if inside and b.implied(cond, inside)]
        return found[0] if len(found) == 1 else None

    def computed(self, cond: Expr, c: Contraction, x: Expr, y: Expr) -> Expr | None:
        """The one of ``x`` and ``y`` that ``cond`` masks alone, because a TMA copy of the other one has no mask.

        Only for a condition on elements of tensors and on axes of both, and where one of them is computed.  The other
        one is an element of a tensor at any place, such as in a page.
        """
        loaded = [isinstance(e, Load) and e.buffer in self.b.buffers for e in (x, y)]
        if not self.warpgroup or not loads(cond) or not self.b.names(cond) <= c.a_axes & c.b_axes:
            return None
        return (y if loaded[0] else x) if loaded[0] != loaded[1] else None

    def is_loaded(self, e: Expr) -> TypeGuard[Load]:
        """Whether ``e`` is an element of a tensor at a computed place."""
        return isinstance(e, Load) and e.buffer in self.b.buffers and all(map(self.b.is_index, e.index))

    def absent(self, c: Contraction, guard: Sequence[Expr], own: Mapping[Expr, Expr]) -> Value | None:
        """The mask of the products of ``c``: the conjuncts that an operand of possible inf or NaN is not masked by.

        These have axes that the operand lacks, or are in ``own``, which has the other operand for them.
        """
        sides = ((c.a, c.a_axes), (c.b, c.b_axes))

        def passes(g: Expr, e: Expr, axes: Axes) -> bool:
            masked = self.b.names(g) <= axes and own.get(g) in (None, e, stripped(e))
            return not (masked or self.finite(e))

        return self.condition([g for g in guard if any(passes(g, e, axes) for e, axes in sides)])

    def operand(self, e: Expr, axes: frozenset[str], guard: Sequence[Expr]) -> Value:
        """An operand of a dot, which is 0 where a conjunct of ``guard`` over its axes is false."""
        b = self.b
        mine = [c for c in guard if b.names(c) <= axes]
        if isinstance(e, Load) and e.buffer in b.buffers:
            support = conjuncts(b.buffers[e.buffer].supported(e.index) or TRUE)
            mine = [c for c in mine if not support or not b.implied(c, support)]
            return b.spread(b.load(e, [b.index(c) for c in mine]), axes)
        if isinstance(e, Op) and e.op in ("cast", "narrow"):  # conversions map 0 to 0
            return b.map(e.op, (self.operand(e.args[0], axes, guard),), e.dtype)
        v = b.value(e)
        cond = self.condition(mine)
        if cond is not None:
            v = b.select(cond, v, b.const(zero_of(v.type.dtype), TileType(v.type.dtype)))
        return b.spread(v, axes)


_KEEP_ZERO = frozenset(f.name for f in FUNCTIONS.values() if f.keeps_zero)
