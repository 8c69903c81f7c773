"""``partition``: splits a reduction loop into dead, mixed and full ranges of blocks.

For every guarded statement of a ``seq`` loop, each conjunct on the loop variable has spans in which it can hold
(*live*) and spans in which it holds for the whole tile (*full*; ``analysis.blocks.spans``).  Only blocks in a few
ranges around the live spans are executed, and one loop visits these ranges (``analysis.blocks.several``).  Blocks in
which every conjunct is full run without guards.  The other blocks run unchanged before and after the full range,
unless ``iteration_order`` selects another order.

Bounds are expressions of the variables around the loop, and of elements of inputs where a conjunct compares with them
(``analysis.blocks.tensor_ends``), also at positions of outer loops.  A conjunct that depends on other data makes every
block mixed and none dead.

A loop of one iteration whose position depends on outer variables (a chunk of one tile) is replaced by its body.

Where the guards of all statements whose effect lasts hold in every n-th block only, ``var % n == r``, the loop visits
only these (interleaved chunks).

Statements without a guard have an effect in every block, unless the iteration provably changes
nothing when no guarded statement runs: ``rolling-update`` repairs by ``r_new``, which then is ``r``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import permutations

from nautilus.core.buffers import Space
from nautilus.core.errors import ScheduleError, in_kernel
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import FALSE, conjunction, conjuncts, without_implications
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, free_vars, loads, rewrite, walk
from nautilus.core.index.linear import Linear, build, constant, divided
from nautilus.core.index.linear_bounds import Ranges, bounds
from nautilus.core.index.order import certainly_less
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import Extent
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.blocks.cover import full_part, largest, smallest
from nautilus.scalar.analysis.blocks.several import concatenation, live_ranges
from nautilus.scalar.analysis.blocks.spans import Blocks, Span, common, conjunctions, invariant, meet, spans
from nautilus.scalar.analysis.blocks.tensor_ends import Readable
from nautilus.scalar.analysis.definitions import extent_of
from nautilus.scalar.analysis.derived_names import plan_of
from nautilus.scalar.analysis.iteration_order import obstacle, ordered
from nautilus.scalar.analysis.symbolic import linear_form
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, computed, extent, statements
from nautilus.scalar.rewriting import map_statements, substituted


@dataclass(frozen=True, slots=True)
class Partition:
    """Split the reduction loops of every kernel whose plan requests it."""

    schedule: Schedule

    name = "partition"

    def apply(self, program: Program) -> Program:
        """The program with its loops split into ranges of blocks, without dead ranges."""
        plans = [(k, plan_of(self.schedule, k.name)) for k in program.kernels]
        shapes = {b.name: b.shape for b in program.buffers}
        before = {b.name for b in program.buffers if b.space is Space.INPUT}
        kernels = []
        for k, plan in plans:
            readable = {name: shapes[name] for name in before}
            made = _kernel(k, plan.iteration_order, readable) if plan.partition else k
            kernels.append(replace(made, body=map_statements(made.body, _plain)))
            before |= {s.buffer for _, s in statements(k.body)} & shapes.keys()
        return replace(program, kernels=tuple(kernels))


@dataclass(frozen=True, slots=True)
class _Around:
    """What is around a loop: the locals of the kernel, the requested order, and what bounds may read.

    ``loops``: the variables of the loops, at whose positions bounds may read too.
    """

    locals: frozenset[str]
    order: str
    readable: Readable
    loops: frozenset[str] = frozenset()

    def inside(self, loop: Loop) -> _Around:
        """The surroundings of the body of ``loop``, which is a loop over all positions or one piece of it."""
        if loop.lo != integer(0) or extent_of(loop) is None:
            return self
        readable = replace(self.readable, extents={**self.readable.extents, loop.var: loop.hi})
        return replace(self, readable=readable, loops=self.loops | {loop.var})

    def is_read(self, c: Expr) -> bool:
        """Whether ``c`` reads a tensor at the position of a loop."""
        return any(free_vars(ld) & self.loops for ld in loads(c))


def _plain(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
    """``s`` without what is known about its condition, which loops have now."""
    return s if s.guard is None else replace(s, guard=without_implications(s.guard))


def _kernel(kernel: Kernel, order: str, readable: Mapping[str, tuple[Extent, ...]]) -> Kernel:
    grid = {loop.var: loop.hi for loop in _grid(kernel.body)}
    around = _Around(frozenset(b.name for b in kernel.locals), order, Readable(readable, grid))
    with in_kernel(kernel.name):
        return replace(kernel, body=_body(kernel.body, {}, around))


def _grid(body: tuple[Stmt, ...]) -> Iterator[Loop]:
    for s in body:
        if isinstance(s, Loop) and s.kind is Kind.GRID:
            yield s
            yield from _grid(s.body)


def _body(body: tuple[Stmt, ...], ranges: Ranges, around: _Around) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        if not isinstance(s, Loop) or s.kind.is_tile:
            out.append(s)
            continue
        pieces = _pieces(s, ranges, around) if s.kind is Kind.SEQ else (s,)
        for piece in pieces:
            lo, hi = bounds(divided(piece.lo), ranges)[0], bounds(divided(piece.hi), ranges)[1]
            inner = {**ranges, s.var: (lo, None if hi is None else hi - 1)}
            body = _body(piece.body, inner, around.inside(piece))
            if body:
                out += (_single(piece, body) if len(pieces) == 1 else []) or [replace(piece, body=body)]
    return tuple(out)


def _single(loop: Loop, body: tuple[Stmt, ...]) -> list[Stmt]:
    """``body`` of a loop with one iteration whose position depends on outer variables; empty for any other loop."""
    trips = divided(loop.hi) - divided(loop.lo)
    if isinstance(loop.lo, Const) or trips != constant(1):
        return []
    return list(substituted(body, {loop.var: loop.lo}))


def _pieces(loop: Loop, ranges: Ranges, around: _Around) -> tuple[Loop, ...]:
    """The pieces of ``loop`` in the requested order.  Raises ScheduleError where the loop does not permit the order."""
    loop, pieces, block = _split(_picked(loop, ranges, around.locals), ranges, around)
    if around.order != "ascending" and len(pieces) > 1:
        reason = obstacle(loop, around.locals)
        if reason is not None:
            raise ScheduleError(f"iteration_order {around.order}: {reason}", f"loop {loop.var}")
        mixed = tuple(p.body == loop.body for p in pieces)
        certain = tuple(_certain(p, ranges, around.readable.extents) for p in pieces)
        pieces = ordered(pieces, mixed, certain)
    if block == Var(loop.var):
        return pieces
    return tuple(replace(p, body=substituted(p.body, {loop.var: block})) for p in pieces)


def _picked(loop: Loop, ranges: Ranges, locals_: frozenset[str]) -> Loop:
    """``loop`` over the iterations with ``var % n == r`` alone, if all lasting statements require that."""
    known = {name: (lo, hi) for name, (lo, hi) in ranges.items() if lo is not None and hi is not None}
    found: dict[Expr, tuple[int, Expr]] = {}
    common: set[Expr] | None = None
    for loops, s in statements(loop.body):
        if _lasting(s, loop, locals_):
            tiles = {t.var: (0, n - 1) for t in loops if (n := _trips(t))}
            inside = {t.var for t in loops}  # all positions of them share an iteration
            own = {**known, **tiles}
            every = {c: _every(simplify(c, own), loop.var, own) for c in _atoms(s.guard)}
            picks = {c: p for c, p in every.items() if p is not None and not inside & free_vars(p[1])}
            found.update(picks)
            common = set(picks) if common is None else common & set(picks)
    if not common or not _idle(loop, locals_):
        return loop
    pick = next(c for c in found if c in common)
    n, first = found[pick]

    def picked_before(bound: Expr) -> Expr:
        """The number of picked iterations before ``bound``."""
        return simplify(calc("floordiv", calc("add", calc("sub", bound, first), n - 1), n), known)

    step = calc("add", calc("mul", Var(loop.var), n), first)
    body = substituted(_without(loop.body, {pick}), {loop.var: step})
    return replace(loop, lo=picked_before(loop.lo), hi=picked_before(loop.hi), body=body)


def _every(c: Expr, var: str, ranges: Ranges) -> tuple[int, Expr] | None:
    """``n`` and ``r`` where ``c`` says ``var % n == r`` or ``r == var % n``, with ``r`` in 0 .. n - 1."""
    for a, r in permutations(c.args) if isinstance(c, Op) and c.op == "eq" else ():
        match a:
            case Op(op="mod", args=(Var(name=name), Const(value=n))) if name == var and var not in free_vars(r):
                low, high = bounds(divided(r), ranges)
                inside = low is not None and high is not None and low >= 0 and high < n
                return (int(n), r) if inside else None
    return None


def _certain(piece: Loop, ranges: Ranges, extents: Mapping[str, Expr]) -> bool:
    """Whether ``piece`` has an iteration for every value of the variables around it, which are below ``extents``."""
    known = {name: (lo, hi) for name, (lo, hi) in ranges.items() if lo is not None and hi is not None}
    return certainly_less(piece.lo, piece.hi, known, extents)


def _split(loop: Loop, ranges: Ranges, around: _Around) -> tuple[Loop, tuple[Loop, ...], Expr]:
    """``loop`` without the conditions that hold in every block it visits; and as up to three consecutive loops.

    The block of an iteration is the third result, an expression of the loop variable.
    """
    found: dict[tuple[Expr, tuple[tuple[str, int], ...]], Blocks] = {}
    live: list[tuple[Span, ...]] = []
    low, high = bounds(divided(loop.lo), ranges)[0], bounds(divided(loop.hi), ranges)[1]
    own = {**ranges, loop.var: (low, None if high is None else high - 1)}
    for loops, s in statements(loop.body):
        # Outer loops first, so that loops inside still have their whole, constant range, as tiles have.
        tiles = {t.var: _trips(t) for t in loops}
        mine = []
        for c in _atoms(s.guard):
            changes = loop.var in free_vars(c)
            if changes:
                info: Blocks | None = spans(c, loop.var, tiles, own, around.readable)
            else:
                info = invariant(c, _trips(loop), tiles, ranges)
                if info is None and around.is_read(c):
                    info = spans(c, loop.var, tiles, own, around.readable)
            if info is not None:
                found[c, tuple(tiles.items())] = info
                mine.append(info.live)
        if _lasting(s, loop, around.locals):
            live.append(conjunctions(mine, subset=False))
    if not found:
        return loop, (loop,), Var(loop.var)
    whole = Span((divided(loop.lo),), (divided(loop.hi),))
    parts = _visited(live, whole, ranges) if live and _idle(loop, around.locals) else (whole,)
    bare = {c for c, _ in found}
    held = bare - {c for (c, _), known in found.items() if not all(_covered(known.full, p) for p in parts)}
    loop = replace(loop, body=_without(loop.body, held))
    full = conjunctions((known.full for (c, _), known in found.items() if c not in held), subset=True)
    visit, inside = parts[0], full_part(full, parts[0], ranges)
    block: Expr = Var(loop.var)
    if len(parts) > 1:
        several = concatenation(parts, ranges)
        visit, block = several.visit, several.block(loop.var)
        inside = visit if bare == held else several.full(full, ranges)
    if inside is None:
        lo, hi = largest(visit.lo, ranges), smallest(visit.hi, ranges)
        return loop, (replace(loop, lo=lo, hi=hi),), block
    certain = len(parts) == 1 and not held and visit != inside and _by_scalars(visit, inside) and _trips(loop)
    made = _with_a_block(loop, visit, inside, bare, ranges) if certain else _ranges(loop, visit, inside, bare, ranges)
    return loop, tuple(made), block


def _by_scalars(*spans: Span) -> bool:
    """Whether a number that the caller gives decides where one of ``spans`` begins or ends."""
    atoms = {a for s in spans for x in (*s.lo, *s.hi) for a in x.terms}
    return any(isinstance(n, Param) and n.most is None for a in atoms for n in walk(a))


def _visited(live: list[tuple[Span, ...]], whole: Span, ranges: Ranges) -> tuple[Span, ...]:
    """Ranges of blocks that have those of every statement, disjoint and in ascending order."""
    if all(len(s) == 1 and not s[0].when for s in live):
        return (meet(whole, common([s for (s,) in live])),)
    return live_ranges(list(dict.fromkeys(s for spans in live for s in spans)), whole, ranges)


def _covered(full: tuple[Span, ...], visit: Span) -> bool:
    """Whether one of ``full`` certainly has every block of ``visit``: each bound of it is one of these."""
    return any(visit.within(s) for s in full)


def _trips(loop: Loop) -> int:
    """The size of a loop from 0 to a constant; 0 for any other (then nothing is concluded from it)."""
    return (extent(loop) or 0) if loop.lo == integer(0) else 0


def _ranges(loop: Loop, visit: Span, inside: Span, bare: set[Expr], ranges: Ranges) -> Iterable[Loop]:
    """The loops over a mixed, a full and a mixed range, without those that are certainly empty.

    Each range begins where the one before it ends, the full one also where it is empty: passes that let the loops share
    a pipeline of copies take the next block of one loop from the next loop.
    """
    extra_lo = [x for x in inside.lo if x not in visit.lo]
    extra_hi = [x for x in inside.hi if x not in visit.hi]
    lo, hi = largest(visit.lo, ranges), smallest(visit.hi, ranges)
    start = lo
    if extra_lo:
        start = smallest((divided(largest((*visit.lo, *extra_lo), ranges)), divided(hi)), ranges)
        if start != lo:
            yield from _nonempty(replace(loop, lo=lo, hi=start), ranges)
    end = hi
    if extra_hi:
        end = largest((divided(start), divided(smallest((*visit.hi, *extra_hi), ranges))), ranges)
    yield from _nonempty(replace(loop, lo=start, hi=end, body=_without(loop.body, bare)), ranges)
    if end != hi:
        yield from _nonempty(replace(loop, lo=end, hi=hi), ranges)


def _with_a_block(loop: Loop, visit: Span, inside: Span, bare: set[Expr], ranges: Ranges) -> Iterator[Loop]:
    """The loops of :func:`_ranges`, of which a mixed one has a block whatever the bounds are.

    Scalars of the caller may leave any range empty, but a pipeline needs a loop that certainly runs
    (:mod:`nautilus.scalar.analysis.iteration_order`).  So a block under a mask is visited where no other one is.
    """

    def most(*xs: Linear) -> Linear:
        return divided(largest(xs, ranges))

    def least(*xs: Linear) -> Linear:
        return divided(smallest(xs, ranges))

    hi = most(divided(loop.lo).shift(1), least(*visit.hi))
    lo = least(most(*visit.lo), hi.shift(-1))
    extra_lo = [x for x in inside.lo if x not in visit.lo]
    extra_hi = [x for x in inside.hi if x not in visit.hi]
    end = most(lo, least(*extra_hi, hi.shift(-1))) if extra_hi else hi
    start = least(most(lo if extra_hi else lo.shift(1), *extra_lo), end) if extra_lo else lo
    ends = [build(x, DType.I32) for x in (lo, start, end, hi)]
    for a, b, body in zip(ends, ends[1:], (loop.body, _without(loop.body, bare), loop.body), strict=False):
        if a != b:
            yield from _nonempty(replace(loop, lo=a, hi=b, body=body), ranges)


def _nonempty(loop: Loop, ranges: Ranges) -> tuple[Loop, ...]:
    _, most = bounds(divided(loop.hi) - divided(loop.lo), ranges)
    return () if most is not None and most <= 0 else (loop,)


def _atoms(guard: Expr | None) -> tuple[Expr, ...]:
    """The conjuncts of a guard, with those inside of ``select(bound, inner, false)``."""
    out: list[Expr] = []
    for c in conjuncts(guard):
        match c:
            case Op(op="select", args=(bound, inner, last)) if last == FALSE:
                out += [*_atoms(bound), *_atoms(inner)]
            case _:
                out.append(c)
    return tuple(out)


def _without(body: tuple[Stmt, ...], bare: set[Expr]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop):
            out.append(replace(s, body=_without(s.body, bare)))
        else:
            out.append(replace(s, guard=_drop(s.guard, bare)))
    return tuple(out)


def _drop(guard: Expr | None, bare: set[Expr]) -> Expr | None:
    kept: list[Expr] = []
    for c in conjuncts(guard):
        match c:
            case Op(op="select", args=(bound, inner, last)) if last == FALSE:
                b, i = _drop(bound, bare), _drop(inner, bare)
                if b is not None and i is not None:
                    kept.append(replace(c, args=(b, i, last)))
                else:
                    kept.extend(x for x in (b, i) if x is not None)
            case _ if c not in bare:
                kept.append(c)
    return conjunction(kept)


def _lasting(s: Store | Update, loop: Loop, locals_: frozenset[str]) -> bool:
    """Whether the effect of guarded ``s`` outlives the iteration of ``loop``."""
    if s.guard is None:
        return False
    fresh = _fresh(loop)
    return s.buffer not in locals_ or s.buffer not in fresh or bool(fresh[s.buffer] & _renewed(loop))


def _fresh(loop: Loop) -> dict[str, frozenset[str]]:
    """Locals written afresh in every iteration -> the locals their first store copies."""
    seen: dict[str, frozenset[str]] = {}
    for _, s in statements(loop.body):
        if isinstance(s, Store) and s.guard is None and s.buffer not in seen:
            reads = frozenset(ld.buffer for ld in loads(s.value))
            if s.buffer not in reads:
                seen[s.buffer] = reads if isinstance(s.value, Load) else frozenset()
    return seen


def _renewed(loop: Loop) -> frozenset[str]:
    """Locals that an iteration ends by overwriting: ``r = r_new``."""
    stores = (s for _, s in statements(loop.body) if isinstance(s, Store))
    return frozenset(s.buffer for s in stores if isinstance(s.value, Load))


def _idle(loop: Loop, locals_: frozenset[str]) -> bool:
    """Whether an iteration in which no guarded statement runs changes nothing that lasts.

    The unguarded statements are evaluated symbolically.  ``select(r == identity, c, r)`` counts as
    ``r``: in the other case the accumulators hold the identity, which every repair keeps (``repair``).
    """
    env: dict[str, Expr] = {}
    ok = True

    def value(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer in env:
            return env[n.buffer]
        match n:
            case Op(op="select", args=(Op(op="eq", args=(a, Const())), Const(), b)) if a == b:
                return b
        return None

    last: dict[str, Expr] = {}
    for _, s in statements(loop.body):
        if s.guard is not None:
            continue
        if isinstance(s, Update):
            # A block-local sum may run: it is stored afresh in each iteration.
            if s.buffer in last and s.buffer not in env:
                continue
            ok &= s.buffer in env and isinstance(env[s.buffer], Const)
            env.pop(s.buffer, None)
            continue
        ok &= s.buffer in locals_
        new = _neutral(rewrite(s.value, value))
        same = isinstance(new, Load) and new.buffer == s.buffer
        if not same:
            env[s.buffer] = last[s.buffer] = new
        else:  # it has the value of the iteration before, to which an update adds
            env.pop(s.buffer, None)
            last.pop(s.buffer, None)
    carried = _carried(loop)
    return ok and not (carried & env.keys())


def _carried(loop: Loop) -> frozenset[str]:
    """Locals whose value at the start of an iteration matters: read before they are stored."""
    stored: set[str] = set()
    carried: set[str] = set()
    for _, s in statements(loop.body):
        reads = {ld.buffer for e in computed(s) for ld in loads(e)}
        if isinstance(s, Update):
            reads.add(s.buffer)
        carried |= reads - stored
        if isinstance(s, Store):
            stored.add(s.buffer)
    return frozenset(carried)


def _neutral(e: Expr) -> Expr:
    """``a * exp(0)``, ``a * (b / b)``, ``a + 0``, ``select(b == b, a, c)`` and ``select(c, a, a)`` are ``a``.

    Anything else is itself.  A factor may be such a choice too: ``select(c, exp(0), 1)``.

    So is ``select(b == b or b != b, a, c)``.  Where ``b`` is NaN, an accumulator over the elements that equal it is
    ``c``, its identity, already.
    """
    match e:
        case Op(op="select", args=(test, a, _)) if _is_same(test):
            return a
        case Op(op="select", args=(_, a, b)) if _neutral(a) == b:
            return b
        case Op(op="mul", args=(a, b)) if _is_one(b):
            return a
        case Op(op="add", args=(a, b)) if _is_zero(b):
            return a
    return e


def _is_same(e: Expr) -> bool:
    match e:
        case Op(op="or", args=(a, _)):
            return _is_same(a)
        case Op(op="eq", args=(a, b)):
            return a == b
    return False


def _is_zero(e: Expr) -> bool:
    lin = linear_form(e, lambda _: False)
    match e:
        case Op(op="mul", args=(a, b)):
            return _is_zero(a) or _is_zero(b)
        case Op(op="add", args=(a, b)):
            return (_is_zero(a) and _is_zero(b)) or not lin.terms
        case Op(op="select", args=(_, a, b)):
            return _is_zero(a) and _is_zero(b)
    return not lin.terms


def _is_one(e: Expr) -> bool:
    match e:
        case Const(value=v):
            return v == 1.0
        case Op(op="exp" | "exp2", args=(a,)):
            return _is_zero(a)
        case Op(op="div", args=(a, b)):
            return a == b
        case Op(op="mul", args=(a, b)) | Op(op="select", args=(_, a, b)):
            return _is_one(a) and _is_one(b)
    return False
