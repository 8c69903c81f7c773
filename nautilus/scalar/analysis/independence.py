"""Proofs for the verifier that iterations of parallel loops are independent.

A write ``X[e1, e2, ...]`` under parallel loops is *injective* if the index determines the value of every
parallel variable.  The proof requires affine positions that can be ordered so that each one, as a number in mixed
radix, determines new variables: ``i``, ``i + k`` with a known ``k``, or ``i0 * T + i`` with ``i`` below ``T``.  A pair
``e // n``, ``e % n`` counts as ``e``.  A sum that the write's guard bounds by a number (``i0 * T + i < n``) is one
digit, which determines the variables that the sum alone determines; a position may have a multiple of it.  A variable
that the guard equates with a number is known.  A remainder
``e % n`` inside a position is a digit, too, which determines the variables of ``e`` if it differs at all of their
values.  What is left is looked for in the inverse of the index (:mod:`nautilus.scalar.analysis.ranges.inverse`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars, loads, rewrite
from nautilus.core.index.linear import Linear, atom, build, linear
from nautilus.core.index.simplify import affine, bounds
from nautilus.core.records.memo import by_identity
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType
from nautilus.scalar.analysis.ranges.inverse import inverse
from nautilus.scalar.ir import Kernel, Kind, Loop, common_loops, expressions, extent, statements

MOST_VALUES = 4096  # largest number of values of a remainder that are enumerated
PARALLEL = frozenset({Kind.GRID, Kind.PAR, Kind.TILE})


def team_loop(k: Kernel) -> Loop | None:
    """The grid loop whose iterations are the members of a team, the innermost one; None where ``k`` has no teams.

    Each statement of all iterations runs before the next one, so that they may read what the others store.
    """
    found, body = None, k.body
    while k.team > 1 and len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.GRID:
        found, body = body[0], body[0].body
    return found


def has_whole_teams(k: Kernel) -> bool:
    """Whether the iterations of the innermost grid loop are a team, if ``k`` has teams."""
    team = team_loop(k)
    return k.team == 1 or (team is not None and extent(team) == k.team)


@by_identity(128)
def private_loops(k: Kernel) -> Mapping[str, tuple[Loop, ...]]:
    """By local, the loops around every access to it; a carried ``seq`` and what is inside it end them."""
    inside = {b.name for b in k.locals}
    common: dict[str, tuple[Loop, ...]] = {}
    for loops, s in statements(k.body):
        for name in inside & {s.buffer, *(ld.buffer for e in expressions(s) for ld in loads(e))}:
            common[name] = common_loops(common[name], loops) if name in common else loops
    return common


def loop_ranges(loops: Iterable[Loop]) -> dict[str, tuple[int, int]]:
    """Inclusive ranges of the variables whose bounds are known."""
    ranges: dict[str, tuple[int, int]] = {}
    for loop in loops:
        lo, _ = bounds(loop.lo, ranges)
        _, hi = bounds(loop.hi, ranges)
        if lo is not None and hi is not None:
            ranges[loop.var] = (lo, max(lo, hi - 1))
    return ranges


def undetermined(index: Sequence[Expr], loops: Sequence[Loop], guard: Expr | None = None) -> tuple[str, ...]:
    """The parallel variables of ``loops`` that ``index`` does not determine (empty: the write is injective).

    ``loops`` are those around the write, outermost first.  The variables of sequential loops outside every parallel
    loop are fixed; those of inner ones vary.
    """
    wanted = [loop.var for loop in loops if loop.kind in PARALLEL]
    if not wanted:
        return ()
    first = next(k for k, loop in enumerate(loops) if loop.kind in PARALLEL)
    varying = {loop.var for loop in loops[first:]}
    ranges = loop_ranges(loops) | _fixed(guard)
    todo: list[tuple[str, Linear]] = []  # (digit, form): the form is known if the digit is; "" is always known
    found: dict[str, Op] = {}
    for form in (affine(_with_digits(e, found, ranges)) for e in _paired(index)):
        if form is not None:
            todo += _digit_sums("", form, guard, ranges)
    remainders: dict[str, tuple[Linear, int]] = {}
    for digit, e in found.items():
        form, modulus = affine(e.args[0]), affine(e.args[1])
        if form is not None and modulus is not None:
            *sums, (_, form) = _digit_sums(digit, form, guard, ranges)
            todo += sums
            remainders[digit] = form, modulus.const
    varying |= {digit for digit, _ in todo} | {*remainders}
    known = {"", *(name for name, (lo, hi) in ranges.items() if lo == hi)}  # variables with one value are known
    progress = True
    while progress:
        progress = False
        for digit, form in list(todo):
            told = _digits(form, varying - known, ranges) if digit in known else None
            if told is not None:
                todo.remove((digit, form))
                known |= told
                progress = True
        for digit in known & {*remainders}:
            known |= _values_told(*remainders.pop(digit), known, ranges)
            progress = True
    if any(v not in known for v in wanted):
        known |= _inverted(index, [loop.var for loop in loops[:first]], loop_ranges(loops), guard)
    return tuple(v for v in wanted if v not in known)


def _inverted(
    index: Sequence[Expr], fixed: Sequence[str], ranges: dict[str, tuple[int, int]], guard: Expr | None
) -> set[str]:  # fmt: skip
    """The variables that an inverse of ``index`` has, where those that are ``fixed`` are known.

    What is left is found with digits for sums that ``guard`` bounds, and then the variables of these sums.
    """
    sums: dict[str, Linear] = {}

    def digits(e: Expr) -> Expr:
        form = linear(e)
        *found, (_, rest) = _digit_sums("", form, guard, ranges)
        sums.update(found)
        return build(rest, e.dtype) if found else e

    def divided(e: Expr) -> Expr | None:
        match e:
            case Op(op="floordiv" | "mod", args=(a, n)):
                return replace(e, args=(digits(a), n))
        return None

    def solved(places: Sequence[Expr]) -> set[str]:
        return {*inverse(places, [Var(f"place {n}") for n in range(len(places))], ranges, {}, _held(guard))}

    outer: list[Expr] = [Var(name) for name in fixed]
    known = solved([*index, *outer])
    if frozenset[str]().union(*map(free_vars, index)) <= known:
        return known
    by_digits = solved([*(digits(rewrite(e, divided)) for e in index), *outer])
    return known | by_digits | solved([build(form, DType.I32) for name, form in sums.items() if name in by_digits])


def _fixed(guard: Expr | None) -> dict[str, tuple[int, int]]:
    """The ranges of the variables to which ``guard`` gives one value."""
    found: dict[str, tuple[int, int]] = {}
    for condition in _held(guard):
        match condition:
            case Op(op="eq", args=(Var(name=name), Const(value=value))):
                found[name] = (int(value), int(value))
    return found


def _held(guard: Expr | None) -> list[Expr]:
    """What holds where ``guard`` does."""
    found: list[Expr] = []
    for part in conjuncts(guard):
        match part:
            case Op(op="select", args=(a, b, Const(value=False))):
                found += [*_held(a), *_held(b)]
            case _:
                found.append(part)
    return found


def _with_digits(e: Expr, remainders: dict[str, Op], ranges: dict[str, tuple[int, int]]) -> Expr:
    """``e`` with a digit for every remainder in it, which ``remainders`` and ``ranges`` get."""

    def rule(n: Expr) -> Expr | None:
        match n:
            case Op(op="mod", args=(_, Const(value=m))) if m > 0:
                digit = format_expr(n)
                remainders[digit], ranges[digit] = n, (0, int(m) - 1)
                return Var(digit)
        return None

    return e if isinstance(e, Op) and e.op == "mod" else rewrite(e, rule)


def _values_told(form: Linear, modulus: int, known: set[str], ranges: Mapping[str, tuple[int, int]]) -> set[str]:
    """The unknown variables of ``form`` if its remainder by ``modulus`` determines all of them."""
    names = sorted({x for a in form.terms for x in free_vars(a)} - known)
    if any(x not in ranges for x in names):
        return set()
    count = prod(ranges[x][1] - ranges[x][0] + 1 for x in names)
    if count > min(modulus, MOST_VALUES):
        return set()
    values = product(*(range(ranges[x][0], ranges[x][1] + 1) for x in names))
    told = {sum(form.slope(x) * v for x, v in zip(names, point, strict=True)) % modulus for point in values}
    return {*names} if len(told) == count else set()


def _digit_sums(
    name: str, form: Linear, guard: Expr | None, ranges: dict[str, tuple[int, int]]
) -> list[tuple[str, Linear]]:
    """(digit, sum) for every sum that ``guard`` bounds and ``form`` has a multiple of; last (``name``, the rest).

    The rest has the digits instead of the sums.  ``ranges`` gets a range for every digit.
    """
    out: list[tuple[str, Linear]] = []
    for condition in _held(guard):
        match condition:
            case Op(op="lt", args=(small, Const(value=n))):
                bounded = affine(small)
            case _:
                continue
        many = 0 if bounded is None or bounded.const else _multiple(bounded, form, ranges)
        if not many or bounded is None:
            continue
        digit = f"{format_expr(small)} < {n}"
        ranges[digit] = (0, max(0, int(n) - 1))
        out.append((digit, bounded))
        form = form - bounded.scale(many) + atom(Var(digit)).scale(many)
    return [*out, (name, form)]


def _multiple(part: Linear, form: Linear, ranges: Mapping[str, tuple[int, int]]) -> int:
    """How often ``form`` has the terms of the sum ``part``, which are never negative; 0 where it lacks them."""
    for a, c in part.terms.items():
        if not isinstance(a, Var) or c < 0 or ranges.get(a.name, (-1, 0))[0] < 0:
            return 0
    found = {divmod(form.terms.get(a, 0), c) for a, c in part.terms.items()}
    many, rest = found.pop() if len(found) == 1 else (0, 0)
    return many if rest == 0 else 0


def _paired(index: Sequence[Expr]) -> list[Expr]:
    """The positions of ``index``, and ``e`` for every pair of positions ``e // n``, ``e % n``."""
    out = list(index)
    for e in index:
        match e:
            case Op(op="floordiv", args=(x, Const(value=n))) if n > 0:
                if any(isinstance(o, Op) and o.op == "mod" and o.args == e.args for o in index):
                    out.append(x)
    return out


def _digits(form: Linear, unknown: set[str], ranges: Mapping[str, tuple[int, int]]) -> set[str] | None:
    """The unknown variables of ``form`` if its value determines all of them, else None."""
    terms = [(abs(c), a.name) for a, c in form.terms.items() if isinstance(a, Var) and a.name in unknown]
    terms.sort()
    reach = 0  # the largest sum of the smaller digits
    for c, name in terms:
        if c <= reach:
            return None
        if name not in ranges:
            reach = 1 << 200 if name != terms[-1][1] else reach
            continue
        lo, hi = ranges[name]
        reach += c * (hi - lo)
    return {name for _, name in terms}


def same_iteration(read: Sequence[Expr], write: Sequence[Expr], shared: Sequence[Loop]) -> bool:
    """Whether a read under the parallel loops ``shared`` accesses only elements that its own iteration writes.

    That is proved if the read has equal positions where the write's index contains the shared variables alone.
    """
    wanted = {loop.var for loop in shared if loop.kind in PARALLEL}
    for r, w in zip(read, write, strict=True):
        if r == w:
            wanted -= free_vars(w)
    return not wanted


def outside_of_step(read: Sequence[Expr], write: Sequence[Expr], shared: Sequence[Loop]) -> tuple[Loop, ...]:
    """The loops of ``shared`` around the sequential loop whose iterations write other elements than they read.

    That is proved if a position depends on the variable of the loop alone, and read and write differ there by a
    constant, or are remainders of what differs by a constant that is no multiple of the modulus, as in a circular
    buffer.  All of ``shared`` where no loop is such a one.
    """
    for n, loop in enumerate(shared):
        for r, w in zip(read, write, strict=True):
            if loop.kind.is_ordered and free_vars(w) == {loop.var} and _differ(r, w):
                return tuple(shared[:n])
    return tuple(shared)


def _differ(a: Expr, b: Expr) -> bool:
    """Whether ``a`` and ``b`` have no value in common for the same values of their variables."""
    match a, b:
        case Op(op="mod", args=(x, Const(value=n))), Op(op="mod", args=(y, Const(value=m))) if n == m and n > 0:
            gap = linear(x) - linear(y)
            return not gap.terms and gap.const % n != 0
    first, second = affine(a), affine(b)
    apart = None if first is None or second is None else first - second
    return apart is not None and not apart.terms and apart.const != 0


def neighbour(e: Expr, name: str) -> Expr:
    """The variable ``name`` for the position ``e`` of the step before in a scan along it; another ``e`` as it is."""
    match e:
        case Op(op="sub" | "add", args=(Var(name=var) as step, Const(value=1))) if var == name:
            return step
        case Op(op="add", args=(Const(value=-1 | 1), Var(name=var) as step)) if var == name:
            return step
        case Op(op="add", args=(Var(name=var) as step, Const(value=-1))) if var == name:
            return step
    return e
