"""Domains of reductions: those that are prefixes, and when a domain is not empty.

A *scan* is a reduction over a prefix (``u <= t``) or a suffix of its axis for each position ``t`` of an axis of the
same extent, whose element does not depend on ``t``.  Its results are running results of one reduction.  A condition on
``t`` alone says which of them there are.

The condition that a domain is not empty, ``exists r in [0, n): guard(r, p)`` for the reduced variables ``r``, has a
closed form if its guard permits one.  Four ways lead to it, in order:

* if every conjunct is affine in at most one ``r`` with an integer coefficient, the condition is the conjunction of
  ``lower <= upper`` over all pairs of a lower and an upper bound on that ``r``.  The bounds are rounded to integers, so
  the condition is exact;
* if that does not give ``true``, but one of a few points certainly is in the domain (a *witness*), such as the first
  one, the last one, or ``r = i`` for a parallel axis ``i``, the condition is ``true``;
* if the guard has a few exact alternatives (:mod:`nautilus.core.index.alternatives`) of the first kind, the condition
  is the disjunction of theirs;
* if each comparison bounds one ``r`` from one side, by anything that does not depend on ``r``, the least point that
  satisfies the lower bounds is in the domain if any point is.  The condition is the guard at that point.  Where the
  guard has ``or``, such as a sink or a window under a length, it is a disjunction of such conditions.

Where there is no closed form, the first alternative of the guard may have one (:func:`first_alternative`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from itertools import islice, product

import numpy as np

from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.conditions import all_conjuncts, conjunction, negated, short_circuit, without_implications
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Param, Var, free_vars, loads, rewrite, substitute
from nautilus.core.index.alternatives import Alternative, alternatives
from nautilus.core.index.intervals import UNKNOWN, fits
from nautilus.core.index.linear import Interval, build, linear
from nautilus.core.index.prefixes import Prefix, only_prefix, prefix
from nautilus.core.index.simplify import TRUE, Ranges, conjuncts, linear_in, simplify
from nautilus.core.index.sizes import extent_expr
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.blocks.spans import solve
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.rewriting import axis_assumptions

_I32 = DType.I32
_CASES = 4  # most alternatives of a guard
_POINTS = 12  # points that are tried as witnesses
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True, slots=True)
class Scan:
    """Running results along ``axis``, numbered by ``into``; ``condition`` is the part of the guard that says so.

    ``chunk``: the number of results after which they start anew, 0 where they do not.
    """

    axis: str
    into: str
    bound: Prefix
    condition: Expr
    chunk: int = 0


def scan_of(d: Def) -> Scan | None:
    """The scan that ``d`` is, with or without the element itself; None if it is none.

    ``u <= t % C`` with an element that depends on ``t // C`` is a scan in chunks of ``C``, the extent of ``u``.
    """
    for u in d.red:
        for t in d.par:
            found = _bound(d, u.name, t.name)
            if found is not None and found.bound.scans and u.extent == t.extent:
                return found
            chunks = _in_chunks(d, t.name, u.extent) if isinstance(u.extent, int) else None
            local = None if chunks is None else _bound(chunks, u.name, _PLACE)
            if local is not None and local.bound.scans and isinstance(u.extent, int):
                return replace(local, into=t.name, chunk=u.extent)
    return None


def prefix_of(d: Def) -> Scan | None:
    """The bound of a reduced axis by a parallel one, on which nothing else of ``d`` depends; None if there is none."""
    return next((s for u in d.red for t in d.par if (s := _bound(d, u.name, t.name)) is not None), None)


def running(guard: Expr | None, u: Axis, par: Sequence[Axis], lag: int = 0) -> tuple[Axis, bool] | None:
    """The axis ``t`` of ``par`` where ``guard`` is ``u <= t - lag``, in any form, and nothing else, and False.

    True: it is ``t <= u - lag``.  None where it is another condition.
    """
    for t in par:
        bound = None if guard is None or t.extent != u.extent else prefix(guard, u.name, t.name)
        if bound is not None and bound.shift == -lag:
            return t, bound.reverse
    return None


_CHUNK, _PLACE = "chunk of", "place in"  # no names of variables


def _bound(d: Def, u: str, t: str) -> Scan | None:
    found = only_prefix(u, t, d.value, split_guard(d)[0])
    return None if found is None else Scan(u, t, found[1], found[0])


def split_guard(d: Def) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The parts of the guard that depend on a reduced axis, and those that include a whole reduction or exclude it."""
    red = {a.name for a in d.red}
    parts = () if d.guard is None else conjuncts(d.guard)
    inner = tuple(p for p in parts if free_vars(p) & red)
    return inner, tuple(p for p in parts if p not in inner)


def _in_chunks(d: Def, t: str, size: int) -> Def | None:
    """``d`` with variables for the number of the chunk of ``t`` and for the place in it; None if no guard has it."""
    names = {"floordiv": _CHUNK, "mod": _PLACE}

    def rule(n: Expr) -> Expr | None:
        match n:
            case Op(op=op, args=(Var(name=name), Const(value=value))) if op in names and (name, value) == (t, size):
                return Var(names[op], n.dtype)
        return None

    guard = None if d.guard is None else rewrite(d.guard, rule)
    if guard is None or guard == d.guard:
        return None
    return replace(d, value=rewrite(d.value, rule), guard=guard)


@dataclass(slots=True)
class _Range:
    """Inclusive bounds on one reduced variable."""

    lower: list[Expr] = field(default_factory=list)
    upper: list[Expr] = field(default_factory=list)


def nonempty(d: Def) -> Expr | None:
    """The condition on the parallel axes that the domain of reduction ``d`` is not empty; None if it is not known.

    It is ``true`` where the domain is never empty.
    """
    d = replace(d, guard=None if d.guard is None else without_implications(d.guard))
    known, assumptions = axis_assumptions(d.par)
    wide = {v: (lo, hi if lo < hi else hi + 1) for v, (lo, hi) in known.items()}
    affine = _affine(d, known)
    found = None if affine is None else simplify(affine, wide, assumptions)
    if found == TRUE or _witness(d, known, assumptions):
        return TRUE
    some = _disjunction(d, known)
    other = None if some is None else simplify(some, wide, assumptions)
    known_form = other if found is None or other == TRUE else found
    if known_form is not None:
        return known_form
    least = [_at_least_point(replace(d, guard=case)) for case in _cases(d.guard)]
    if not least or None in least:
        return None
    return simplify(reduce(lambda a, b: calc("or", a, b), (c for c in least if c is not None)), wide, assumptions)


def first_alternative(d: Def) -> tuple[Expr | None, Expr | None]:
    """When the first alternative of the guard of reduction ``d`` has an element, and the guard of the other elements.

    A length before a tree of new tokens, ``j < len[b] or tree[i, j - len[b]]``, leaves a reduction over the tree.
    (None, the guard) where no first alternative has a closed form.
    """
    parts = conjuncts(TRUE if d.guard is None else without_implications(d.guard))
    for n, part in enumerate(parts):
        match part:
            case Op(op="or", args=(first, second)):
                beside: Expr = calc("and", negated(first), second)
            case Op(op="select", args=(first, Const(value=True), second)):
                beside = short_circuit(negated(first), second)
            case _:
                continue
        own, others = (conjunction((*parts[:n], x, *parts[n + 1 :])) for x in (first, beside))
        closed = nonempty(replace(d, guard=own))
        if closed is not None:
            return closed, others
    return None, d.guard


def _cases(guard: Expr | None) -> list[Expr]:
    """Conditions without ``or`` of which ``guard`` is the disjunction; none where they are more than a few."""
    cases: list[tuple[Expr, ...]] = [()]
    for part in conjuncts(guard):
        cases = [(*case, c) for case in cases for c in _disjuncts(part)]
        if len(cases) > _CASES:
            return []
    return [conjunction(case) or TRUE for case in cases]


def _disjuncts(e: Expr) -> list[Expr]:
    return [c for a in e.args for c in _disjuncts(a)] if isinstance(e, Op) and e.op == "or" else [e]


def _at_least_point(d: Def) -> Expr | None:
    """The guard at the least point that satisfies its lower bounds, or at the last one where it has no upper bound."""
    if len(d.red) != 1 or d.guard is None:
        return None
    r, lower, upper = d.red[0], list[Expr](), list[bool]()
    for part in conjuncts(d.guard):
        if r.name in free_vars(part) and not _sided(part, r.name, lower, upper):
            return None
    last = calc("sub", extent_expr(r.extent), 1)
    point: Expr = integer(0)
    if not any(upper):
        point = last
    elif len(lower) < upper.count(False):
        return None
    else:
        point = reduce(lambda a, b: calc("max", a, b), lower, point)
    inside = calc("and", calc("ge", last, 0), calc("le", point, last))
    return calc("and", inside, substitute(d.guard, {r.name: point}))


def _sided(part: Expr, name: str, lower: list[Expr], upper: list[bool]) -> bool:
    """Whether each comparison in ``part`` bounds ``name`` from one side; ``upper`` says which, ``lower`` has bounds.

    One side of a comparison is made of index variables, and the other one does not depend on ``name``.
    """
    match part:
        case Op(op="and", args=(a, b)) | Op(op="select", args=(a, b, Const(value=False))):
            return all(name not in free_vars(x) or _sided(x, name, lower, upper) for x in (a, b))
        case Op(op=given, args=(a, b)) if given in _MIRRORED:
            op = given
            if name in free_vars(b):
                a, b, op = b, a, _MIRRORED[op]
            found = None if loads(a) or name in free_vars(b) else linear_in(a, name)
            if found is None or found[0] == 0 or not a.dtype.is_int:
                return False
            upper.append((op in ("lt", "le")) == (found[0] > 0))
            if a == Var(name) and op in ("ge", "gt"):  # where the sum wraps, no point is above, and the guard is false
                lower.append(b if op == "ge" else calc("add", b, 1))
            return True
    return False


def _affine(d: Def, known: Ranges) -> Expr | None:
    """The condition for a guard whose conjuncts are affine in at most one reduced variable; None for any other one."""
    ranges = {a.name: _whole(a) for a in d.red}
    free: list[Expr] = []
    for part in all_conjuncts(d.guard) if _has_wide(d) else conjuncts(d.guard or TRUE):
        mine = [n for n in ranges if n in free_vars(part)]
        if not mine:
            free.append(part)
        elif len(mine) > 1 or not _add_bound(part, mine[0], ranges[mine[0]]):
            return None
    return _all_ordered(free, ranges, known)


def _has_wide(d: Def) -> bool:
    """Whether the guard of ``d`` compares integers of 64 bits; alternatives of linear comparisons have 32."""
    return any(isinstance(c, Op) and c.args[0].dtype is DType.I64 for c in all_conjuncts(d.guard))


def _all_ordered(free: Sequence[Expr], ranges: Mapping[str, _Range], known: Ranges) -> Expr:
    ordered = [_ordered(lo, hi, known) for r in ranges.values() for lo in r.lower for hi in r.upper]
    return conjunction((*free, *ordered)) or TRUE


def _disjunction(d: Def, known: Ranges) -> Expr | None:
    """The condition for a guard of a few exact alternatives; None for any other one."""
    names = {a.name for a in d.red}
    parts = conjuncts(d.guard or TRUE)
    found = alternatives(conjunction(p for p in parts if names & free_vars(p)) or TRUE)
    cases = [_case(d, a, known) for a in found] if len(found) <= _CASES else [None]
    if not found or None in cases:
        return None
    some = reduce(lambda a, b: calc("or", a, b), (c for c in cases if c is not None))
    return conjunction((*(p for p in parts if not names & free_vars(p)), some))


def _case(d: Def, a: Alternative, known: Ranges) -> Expr | None:
    """The condition that a point of the domain is in ``a``; None where its forms are not exact bounds."""
    if not a.exact:
        return None
    ranges = {x.name: _whole(x) for x in d.red}
    free: list[Expr] = []
    for form in a.forms:
        mine = [n for n in ranges if any(n in free_vars(x) for x in form.terms)]
        bound = solve(form, mine[0], known) if len(mine) == 1 else None
        if not mine:
            free.append(_ordered(integer(0), build(form, _I32), known))
        elif bound is None:
            return None
        else:
            ranges[mine[0]].lower += [build(x, _I32) for x in bound.lo]
            ranges[mine[0]].upper += [build(x.shift(-1), _I32) for x in bound.hi]
    return _all_ordered(free, ranges, known)


def _witness(d: Def, known: Ranges, assumptions: Sequence[Expr]) -> bool:
    """Whether one of a few points certainly is in the domain of ``d``."""
    guard = d.guard or TRUE
    axes: list[Expr] = [Var(a.name) for a in d.par if a.name in free_vars(guard)]
    choices = [[*axes, integer(0), calc("sub", extent_expr(a.extent), 1)] for a in d.red]
    for point in islice(product(*choices), _POINTS):
        at = {a.name: x for a, x in zip(d.red, point, strict=True)}
        inside = [c for a in d.red for c in within(at[a.name], extent_expr(a.extent))]
        if simplify(conjunction((*inside, substitute(guard, at))) or TRUE, known, assumptions) == TRUE:
            return True
    return False


def _whole(a: Axis) -> _Range:
    last = calc("sub", extent_expr(a.extent), 1)
    return _Range([integer(0)], [last])


def _add_bound(part: Expr, name: str, r: _Range) -> bool:
    """Record the bound on ``name`` from comparison ``part``; False where the comparison has another form."""
    match part:
        case Op(op="lt" | "le" | "gt" | "ge" | "eq" as op, args=(a, b)) if a.dtype is _I32 and _exact(a) and _exact(b):
            found = linear_in(calc("sub", b, a), name)  # c * name + rest, to compare with 0
        case Op(op=op, args=(a, b)) if op in _MIRRORED and a.dtype is DType.I64:
            return _add_wide(op, a, b, name, r)
        case _:
            return False
    if found is None or found[0] == 0:
        return False
    c, rest = found
    if op in ("le", "lt", "eq"):
        _at_least_zero(c, _minus_one(rest) if op == "lt" else rest, r)
    if op in ("ge", "gt", "eq"):
        _at_least_zero(-c, _minus_one(_negative(rest)) if op == "gt" else _negative(rest), r)
    return True


def _add_wide(op: str, a: Expr, b: Expr, name: str, r: _Range) -> bool:
    """Record the bound on ``name`` by an element of 64 bits; as :func:`_add_bound`."""
    if isinstance(a, Load):
        a, b, op = b, a, _MIRRORED[op]
    ends = isinstance(b, Load) and name not in free_vars(b)
    if a != Op("cast", (Var(name),), DType.I64) or not ends or op == "gt":  # an element plus 1 might wrap
        return False
    if op == "ge":
        r.lower.append(b)
    else:
        r.upper.append(b if op == "le" else Op("sub", (b, Const(1, DType.I64)), DType.I64))
    return True


def _at_least_zero(c: int, rest: Expr, r: _Range) -> None:
    """Record the bound ``c * name + rest >= 0``."""
    if c > 0:  # name >= ceil(-rest / c) == -(rest // c)
        r.lower.append(_negative(_over(rest, c)))
    else:  # name <= floor(rest / -c)
        r.upper.append(_over(rest, -c))


def _over(e: Expr, c: int) -> Expr:
    return e if c == 1 else calc("floordiv", e, c)


def _negative(e: Expr) -> Expr:
    return calc("neg", e)


def _minus_one(e: Expr) -> Expr:
    return calc("sub", e, 1)


def _ordered(lo: Expr, hi: Expr, known: Ranges) -> Expr:
    """``lo <= hi``, as ``lo < x`` where ``hi`` is ``x - 1``; in i64 where a sum with an element or a scalar might wrap.

    ``known``: the ranges of index variables, of which the bounds are sums that the spec does not have.
    """
    if DType.I64 in (lo.dtype, hi.dtype):
        return _ordered_wide(lo, hi)
    match hi:
        case Op(op="sub", args=(x, Const(value=1))) | Op(op="add", args=(x, Const(value=-1))):
            if _exact(lo, known) and _exact(x, known):
                return calc("lt", lo, x)
    exact = _exact(lo, known) and _exact(hi, known)
    return calc("le", lo, hi) if exact else calc("le", _wide(lo), _wide(hi))


def _ordered_wide(lo: Expr, hi: Expr) -> Expr:
    """``lo <= hi``, of which at least one is an element of 64 bits, or one less than it as an upper bound."""
    match hi:
        case Op(op="sub", args=(x, Const(value=1))):
            return calc("lt", _wide(lo), _wide(x))
    return calc("le", _wide(lo), _wide(hi))


_NONE: Ranges = {}


def _exact(e: Expr, known: Ranges = _NONE) -> bool:
    """Whether no operation on elements of tensors in ``e`` can wrap."""

    match e:
        case Op(op="add" | "sub" | "mul" | "neg" | "floordiv", args=args):
            return fits(linear(e), _I32, lambda atom: _interval(atom, known)) and all(_exact(a, known) for a in args)
    return True


def _interval(atom: Expr, known: Ranges) -> Interval:
    match atom:
        case Param():
            return atom.range
        case Var(name=name):
            return known.get(name, UNKNOWN)
    return UNKNOWN


def _wide(e: Expr) -> Expr:
    """``e`` computed in i64."""
    if e.dtype is DType.I64:
        return e
    match e:
        case Op(op=op, args=args) if op in ("add", "sub", "mul", "neg", "floordiv"):
            return Op(op, tuple(_wide(a) for a in args), DType.I64)
    return Const(e.value, DType.I64) if isinstance(e, Const) else Op("cast", (e,), DType.I64)


def admitted_share(condition: Expr, axes: Sequence[Axis], points: int) -> float:
    """The share of the positions along ``axes`` at which ``condition`` holds, at ``points`` of each axis.

    A size that is known at launch only counts as 1.
    """
    used = [a for a in axes if a.name in free_vars(condition)]
    places = np.meshgrid(*(np.linspace(0, (size(a) or 1) - 1, points).astype(np.int64) for a in used), sparse=True)
    return float(np.mean(evaluate(condition, {a.name: p for a, p in zip(used, places, strict=True)})))
