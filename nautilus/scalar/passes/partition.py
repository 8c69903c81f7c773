"""``partition``: splits a reduction loop into dead, mixed and full ranges of blocks.

For every guarded statement of a ``seq`` loop, each conjunct that is affine in the loop variable has a range in which it
can hold (*live*) and one in which it holds for the whole tile (*full*).  Blocks without a live statement of lasting
effect are not executed.  Blocks in which every conjunct is full run without guards.  The other blocks run unchanged
before and after the full range, unless ``iteration_order`` selects another order.

A conjunct that is not affine, or depends on data, makes every block mixed and none dead.  Bounds are
expressions of the variables around the loop.  Exact: integer division rounds the right way, tile
variables are replaced by the end of their range that decides.

A loop of one iteration whose position depends on outer variables (a chunk of one tile) is replaced by its body.

Where all lasting statements hold in every n-th block only, ``var % n == r``, the loop visits only these (interleaved
chunks).

Statements without a guard have an effect in every block, unless the iteration provably changes
nothing when no guarded statement runs: ``rolling_update`` repairs by ``r_new``, which then is ``r``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nautilus.core.errors import ScheduleError, in_kernel
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import FALSE, conjunction, conjuncts
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, loads, rewrite, walk
from nautilus.core.index.linear import Linear, atom, build, constant, divide, divided
from nautilus.core.index.linear_bounds import Ranges, bounds
from nautilus.core.index.order import certainly_less
from nautilus.core.index.simplify import simplify
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.derived_names import plan_of
from nautilus.scalar.analysis.iteration_order import obstacle, ordered
from nautilus.scalar.analysis.symbolic import linear_form
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, extent, statements
from nautilus.scalar.rewriting import substituted


@dataclass(frozen=True, slots=True)
class Partition:
    """Split the reduction loops of every kernel whose plan requests it."""

    schedule: Schedule

    name = "partition"

    def apply(self, program: Program) -> Program:
        """The program with its loops split into ranges of blocks, without dead ranges."""
        plans = [(k, plan_of(self.schedule, k.name)) for k in program.kernels]
        kernels = (_kernel(k, plan.iteration_order) if plan.partition else k for k, plan in plans)
        return replace(program, kernels=tuple(kernels))


@dataclass(frozen=True, slots=True)
class _Span:
    """Bounds of a range of blocks: the largest of ``lo`` to the smallest of ``hi``, half-open."""

    lo: tuple[Linear, ...] = ()
    hi: tuple[Linear, ...] = ()


@dataclass(frozen=True, slots=True)
class _Conjunct:
    live: _Span
    full: _Span | None  # None: never provably full


def _kernel(kernel: Kernel, order: str) -> Kernel:
    names = frozenset(b.name for b in kernel.locals)
    with in_kernel(kernel.name):
        return replace(kernel, body=_body(kernel.body, {}, names, order))


def _body(body: tuple[Stmt, ...], ranges: Ranges, locals_: frozenset[str], order: str) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        if not isinstance(s, Loop) or s.kind.is_tile:
            out.append(s)
            continue
        pieces = _pieces(s, ranges, locals_, order) if s.kind is Kind.SEQ else (s,)
        for piece in pieces:
            lo, hi = bounds(divided(piece.lo), ranges)[0], bounds(divided(piece.hi), ranges)[1]
            inner = {**ranges, s.var: (lo, None if hi is None else hi - 1)}
            body = _body(piece.body, inner, locals_, order)
            if body:
                out += (_single(piece, body) if len(pieces) == 1 else []) or [replace(piece, body=body)]
    return tuple(out)


def _single(loop: Loop, body: tuple[Stmt, ...]) -> list[Stmt]:
    """``body`` of a loop with one iteration whose position depends on outer variables; empty for any other loop."""
    trips = divided(loop.hi) - divided(loop.lo)
    if isinstance(loop.lo, Const) or trips != constant(1):
        return []
    return list(substituted(body, {loop.var: loop.lo}))


def _pieces(loop: Loop, ranges: Ranges, locals_: frozenset[str], order: str) -> tuple[Loop, ...]:
    """The pieces of ``loop`` in the requested order.  Raises ScheduleError where the loop does not permit the order."""
    loop, pieces = _split(_picked(loop, ranges, locals_), ranges, locals_)
    if order == "ascending" or len(pieces) == 1:
        return pieces
    reason = obstacle(loop, locals_)
    if reason is not None:
        raise ScheduleError(f"iteration_order {order}: {reason}", f"loop {loop.var}")
    mixed = tuple(p.body == loop.body for p in pieces)
    certain = tuple(_certain(p, ranges) for p in pieces)
    return ordered(pieces, mixed, certain)


def _picked(loop: Loop, ranges: Ranges, locals_: frozenset[str]) -> Loop:
    """``loop`` over the iterations with ``var % n == r`` alone, if all lasting statements require that."""
    known = {name: (lo, hi) for name, (lo, hi) in ranges.items() if lo is not None and hi is not None}
    found: dict[Expr, tuple[int, Expr]] = {}
    common: set[Expr] | None = None
    for loops, s in statements(loop.body):
        if _lasting(s, loop, locals_):
            tiles = {t.var: (0, n - 1) for t in loops if (n := _trips(t))}
            picks = {c: p for c in _atoms(s.guard) if (p := _every(simplify(c, {**known, **tiles}), loop.var))}
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


def _every(c: Expr, var: str) -> tuple[int, Expr] | None:
    """``n`` and ``r`` where ``c`` says ``var % n == r``, with ``r`` in 0 .. n - 1."""
    match c:
        case Op(op="eq", args=(Op(op="mod", args=(Var(name=name), Const(value=n))), r)) if name == var:
            same = isinstance(r, Var) or (isinstance(r, Op) and r.op == "mod" and r.args[1] == Const(n, DType.I32))
            return (int(n), r) if same and var not in free_vars(r) else None
    return None


def _certain(piece: Loop, ranges: Ranges) -> bool:
    """Whether ``piece`` has an iteration for every value of the variables around it."""
    known = {name: (lo, hi) for name, (lo, hi) in ranges.items() if lo is not None and hi is not None}
    return certainly_less(piece.lo, piece.hi, known)


def _split(loop: Loop, ranges: Ranges, locals_: frozenset[str]) -> tuple[Loop, tuple[Loop, ...]]:
    """``loop`` without the conditions that hold in every block it visits; and as up to three consecutive loops."""
    found: dict[tuple[Expr, tuple[tuple[str, int], ...]], _Conjunct] = {}
    live: list[_Span] = []
    for loops, s in statements(loop.body):
        # Outer loops first, so that loops inside still have their whole, constant range, as tiles have.
        tiles = {t.var: _trips(t) for t in loops}
        mine = []
        for c in _atoms(s.guard):
            info = _conjunct(c, loop.var, tiles) if loop.var in _used(c) else _invariant(c, loop, tiles)
            if info is not None:
                found[c, tuple(tiles.items())] = info
                mine.append(info.live)
        if _lasting(s, loop, locals_):
            live.append(_Span(tuple(x for m in mine for x in m.lo), tuple(x for m in mine for x in m.hi)))
    if not found:
        return loop, (loop,)
    whole = _Span((divided(loop.lo),), (divided(loop.hi),))
    visit = _meet(whole, _hull(live)) if live and _idle(loop, locals_) else whole
    held = {c for c, _ in found} - {c for (c, _), known in found.items() if not _covers(known.full, visit)}
    loop = replace(loop, body=_without(loop.body, held))
    full = [known.full for (c, _), known in found.items() if c not in held]
    lo, hi = _expr(visit.lo, "max", ranges), _expr(visit.hi, "min", ranges)
    if any(f is None for f in full):
        return loop, (replace(loop, lo=lo, hi=hi),)
    inside = _meet(visit, *(f for f in full if f is not None))
    bare = {c for c, _ in found}
    return loop, tuple(_ranges(loop, visit, inside, bare, ranges))


def _covers(full: _Span | None, visit: _Span) -> bool:
    """Whether ``full`` certainly has every block of ``visit``: each bound of it is one of these."""
    return full is not None and set(full.lo) <= set(visit.lo) and set(full.hi) <= set(visit.hi)


def _trips(loop: Loop) -> int:
    """The size of a loop from 0 to a constant; 0 for any other (then nothing is concluded from it)."""
    return (extent(loop) or 0) if loop.lo == integer(0) else 0


def _ranges(loop: Loop, visit: _Span, inside: _Span, bare: set[Expr], ranges: Ranges) -> Iterable[Loop]:
    """Mixed, full, mixed; a range that is certainly empty is left out.

    Each range begins where the one before it ends, the full one also where it is empty: passes that let the loops share
    a pipeline of copies take the next block of one loop from the next loop.
    """
    extra_lo = [x for x in inside.lo if x not in visit.lo]
    extra_hi = [x for x in inside.hi if x not in visit.hi]
    lo, hi = _expr(visit.lo, "max", ranges), _expr(visit.hi, "min", ranges)
    start = lo
    if extra_lo:
        start = _fold("min", _expr((*visit.lo, *extra_lo), "max", ranges), hi, ranges)
        if start != lo:
            yield from _nonempty(replace(loop, lo=lo, hi=start), ranges)
    end = hi
    if extra_hi:
        end = _fold("max", start, _expr((*visit.hi, *extra_hi), "min", ranges), ranges)
    yield from _nonempty(replace(loop, lo=start, hi=end, body=_without(loop.body, bare)), ranges)
    if end != hi:
        yield from _nonempty(replace(loop, lo=end, hi=hi), ranges)


def _nonempty(loop: Loop, ranges: Ranges) -> tuple[Loop, ...]:
    _, most = bounds(divided(loop.hi) - divided(loop.lo), ranges)
    return () if most is not None and most <= 0 else (loop,)


def _atoms(guard: Expr | None) -> tuple[Expr, ...]:
    """The conjuncts of a guard, looking inside ``select(bound, inner, false)``."""
    out: list[Expr] = []
    for c in conjuncts(guard):
        match c:
            case Op(op="select", args=(bound, inner, last)) if last == FALSE:
                out += [*_atoms(bound), *_atoms(inner)]
            case _:
                out.append(c)
    return tuple(out)


def _used(e: Expr) -> frozenset[str]:
    return free_vars(e)


def _conjunct(c: Expr, var: str, tiles: dict[str, int]) -> _Conjunct:
    """Where ``c`` can hold, and where it holds throughout the tile."""
    forms = _at_least_zero(c)
    spans = [_solve(f, var, tiles) for f in forms]
    if not forms or any(s is None for s in spans):
        return _Conjunct(_Span(), None)
    known = [s for s in spans if s is not None]
    live = _meet(*(s[0] for s in known))
    return _Conjunct(live, None if len(known) > 1 else known[0][1])


def _invariant(c: Expr, loop: Loop, tiles: dict[str, int]) -> _Conjunct | None:
    """Where ``c``, which no loop from ``loop`` on changes, can hold and holds: in all iterations, or in none."""
    forms, trips = _at_least_zero(c), _trips(loop)
    if len(forms) != 1 or not trips or free_vars(c) & {*tiles} or any(isinstance(n, Load) for n in walk(c)):
        return None
    span = _Span(hi=(forms[0].shift(1).scale(trips),))
    return _Conjunct(span, span)


def _at_least_zero(c: Expr) -> tuple[Linear, ...]:
    """Forms that are all >= 0 exactly where comparison ``c`` holds; none for anything else.

    A comparison in i64 has none: the bounds of a loop are i32.
    """
    if not isinstance(c, Op) or len(c.args) != 2 or not all(a.dtype is DType.I32 for a in c.args):
        return ()
    a, b = (divided(x) for x in c.args)
    match c.op:
        case "le":
            return (b - a,)
        case "lt":
            return ((b - a).shift(-1),)
        case "ge":
            return (a - b,)
        case "gt":
            return ((a - b).shift(-1),)
        case "eq":
            return (a - b, b - a)
    return ()


def _solve(form: Linear, var: str, tiles: dict[str, int]) -> tuple[_Span, _Span] | None:
    """(live, full) of ``form >= 0`` for ``var``; None where it is not affine in it and the tile."""
    k = form.slope(var)
    rest = form.without(Var(var))
    low = high = constant(rest.const)
    for a, c in rest.terms.items():
        if isinstance(a, Var) and tiles.get(a.name):
            top = (tiles[a.name] - 1) * c
            low, high = low.shift(min(0, top)), high.shift(max(0, top))
        elif free_vars(a) & {var, *tiles} or any(isinstance(n, Load) for n in walk(a)):
            return None
        else:
            low, high = low + atom(a).scale(c), high + atom(a).scale(c)
    if k == 0:
        return None
    return _side(k, high), _side(k, low)


def _side(k: int, rest: Linear) -> _Span:
    """The range of v with ``k*v + rest >= 0``."""
    if k > 0:
        return _Span(lo=(divide(rest, k, DType.I32).scale(-1),))
    return _Span(hi=(divide(rest, -k, DType.I32).shift(1),))


def _meet(*spans: _Span) -> _Span:
    lo = dict.fromkeys(x for s in spans for x in s.lo)
    hi = dict.fromkeys(x for s in spans for x in s.hi)
    return _Span(tuple(lo), tuple(hi))


def _hull(spans: list[_Span]) -> _Span:
    """A range that holds them all: bounds common to every one."""
    first = spans[0]
    return _Span(
        tuple(x for x in first.lo if all(x in s.lo for s in spans)),
        tuple(x for x in first.hi if all(x in s.hi for s in spans)),
    )


def _expr(terms: Iterable[Linear], op: str, ranges: Ranges) -> Expr:
    """The max (min) of ``terms``, without those that never decide it."""
    kept: list[Linear] = []
    for t in terms:
        if any(_dominates(k, t, op, ranges) for k in kept):
            continue
        kept = [k for k in kept if not _dominates(t, k, op, ranges)] + [t]
    out = build(kept[0], DType.I32)
    for t in kept[1:]:
        out = Op(op, (out, build(t, DType.I32)), DType.I32)
    return out


def _dominates(a: Linear, b: Linear, op: str, ranges: Ranges) -> bool:
    """Whether ``b`` never changes ``op(a, b)``."""
    return _never_positive(b - a if op == "max" else a - b, ranges)


def _never_positive(x: Linear, ranges: Ranges) -> bool:
    """Whether ``x <= 0`` for all values of its variables; looks at the cases of a min or a max."""
    _, hi = bounds(x, ranges)
    if hi is not None and hi <= 0:
        return True
    for a, c in x.terms.items():
        if isinstance(a, Op) and a.op in ("min", "max"):
            cases = (x.without(a) + divided(arg).scale(c) for arg in a.args)
            decide = all if (a.op == "max") is (c > 0) else any
            return decide(_never_positive(case, ranges) for case in cases)
    return False


def _fold(op: str, a: Expr, b: Expr, ranges: Ranges) -> Expr:
    return _expr((divided(a), divided(b)), op, ranges)


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
            env[s.buffer] = new
        else:
            env.pop(s.buffer, None)
        last[s.buffer] = new
    carried = _carried(loop)
    return ok and not (carried & env.keys())


def _carried(loop: Loop) -> frozenset[str]:
    """Locals whose value at the start of an iteration matters: read before they are stored."""
    stored: set[str] = set()
    carried: set[str] = set()
    for _, s in statements(loop.body):
        exprs = (s.value,) if s.guard is None else (s.value, s.guard)
        reads = {ld.buffer for e in exprs for ld in loads(e)}
        if isinstance(s, Update):
            reads.add(s.buffer)
        carried |= reads - stored
        if isinstance(s, Store):
            stored.add(s.buffer)
    return frozenset(carried)


def _neutral(e: Expr) -> Expr:
    """``a * exp(0)``, ``a * (b / b)`` and ``a + 0`` are ``a``; anything else is itself."""
    match e:
        case Op(op="mul", args=(a, b)) if _is_one(b):
            return a
        case Op(op="add", args=(a, b)) if _is_zero(b):
            return a
    return e


def _is_zero(e: Expr) -> bool:
    lin = linear_form(e, lambda _: False)
    match e:
        case Op(op="mul", args=(a, b)):
            return _is_zero(a) or _is_zero(b)
        case Op(op="add", args=(a, b)):
            return (_is_zero(a) and _is_zero(b)) or not lin.terms
    return not lin.terms


def _is_one(e: Expr) -> bool:
    match e:
        case Const(value=v):
            return v == 1.0
        case Op(op="exp" | "exp2", args=(a,)):
            return _is_zero(a)
        case Op(op="div", args=(a, b)):
            return a == b
        case Op(op="mul", args=(a, b)):
            return _is_one(a) and _is_one(b)
    return False
