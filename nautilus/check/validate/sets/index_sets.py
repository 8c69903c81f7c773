"""Whether a pass of Scalar IR keeps the iterations of its updates, at the declared sizes.

The iterations of a statement are the integer points of its loops at which its guard holds, a set of Presburger
arithmetic, which isl decides (Verdoolaege, ICMS 2010).  For every update that stands on both sides, the iterations of
all copies after the pass are mapped to the loop variables before it and must be

* disjoint, and mapped one to one: no iteration runs twice;
* iterations before the pass.  A local may have elements without an update before, to fill a tile; these are free;
* the iterations before the pass, where the update has a guard there and its target lasts from one block to the next:
  none is left out.  Other updates may lose whole iterations of a ``seq`` loop, because a block without effect need
  not run; that it has none is decided by the numbers.

The map is read off the two statements: where the index ``i`` became ``i0 * 64 + i``, that is the old variable.  It is
piecewise affine where one loop visits several ranges, whose index is a ``select`` of the loop's variable.  A
conjunct that reads memory must stand on both sides unchanged, and is left out of the sets.

A difference is a refutation where the sets are exact and every iteration counts: no condition and no bound reads
memory, the value has no ``select`` (whose condition may have become a guard), and, where the difference is that work is
done twice, the combiner is not idempotent.  Every other difference is not decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from nautilus.check.validate.sets.isl_text import (
    RELATIONS,
    NotAffine,
    condition,
    isl_text,
    iterations,
    pieces,
    sized,
    variables,
)
from nautilus.check.validate.verdict import Verdict
from nautilus.core.expr.nodes import (
    Const,
    Expr,
    Load,
    Op,
    Param,
    Ref,
    Var,
    children,
    loads,
    substitute,
    walk,
    with_children,
)
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.ir import Kind, Loop, Program, Store, Update, statements

INSTALL = "islpy is not installed; pip install 'nautilusc[check]'"
_IDEMPOTENT = frozenset({"max", "min", "any", "all"})


@dataclass(frozen=True)
class _Copy:
    """An update with the loops around it."""

    loops: tuple[Loop, ...]
    update: Update
    local: bool

    @property
    def lasting(self) -> bool:
        """Whether the target keeps its value from one iteration of the innermost ``seq`` loop to the next."""
        around = next((loop for loop in reversed(self.loops) if loop.kind is Kind.SEQ), None)
        stores = () if around is None else (s for _, s in statements(around.body) if s.buffer == self.update.buffer)
        return not any(isinstance(s, Store) and isinstance(s.value, Const) for s in stores)


def validate(before: Program, after: Program) -> Verdict:
    """The verdict on the iterations of all updates with the same target and combiner on both sides.

    ``points`` of the verdict counts these updates.  "not decided": one of them could not be compared, or differs in
    sets that are not exact, or there is none.
    """
    try:
        import islpy  # noqa: F401
    except ImportError:
        return Verdict("not decided", detail=INSTALL)
    left, right = _copies(before), _copies(after)
    proved, reason, said = 0, "", _said(left, right)
    resized = _resized(before, after)
    for key, olds in left.items():
        news = right.get(key)
        if not news or len(olds) != 1:
            continue
        if key[1] in resized:
            reason = f"{key[1]}: the tensor has another size"
            continue
        try:
            problem = _compared(olds[0], news, said)
        except NotAffine as error:
            reason = f"{key[1]}: {error}"
            continue
        if problem and _exact((olds[0], *news)):
            return Verdict("refuted", detail=f"{key[1]}: {problem}")
        if problem:
            reason = f"{key[1]}: {problem}, but the sets are not exact"
            continue
        proved += 1
    if reason or not proved:
        return Verdict("not decided", proved, reason or "no update stands on both sides")
    return Verdict("proved", proved)


def _resized(before: Program, after: Program) -> frozenset[str]:
    """The tensors in global memory that have another number of elements, so another meaning, after the pass."""
    sizes = [{b.name: _elements_of(b.shape) for b in p.buffers} for p in (before, after)]
    return frozenset(n for n, size in sizes[0].items() if sizes[1].get(n, size) != size)


def _elements_of(shape: Sequence[int | Expr]) -> tuple[int | Expr, ...]:
    """The number of elements, and the sizes that are known at launch."""
    return (prod(n for n in shape if isinstance(n, int)), *(n for n in shape if not isinstance(n, int)))


def _exact(copies: Sequence[_Copy]) -> bool:
    """Whether the sets are the iterations that have an effect (module docstring)."""
    for c in copies:
        bounds = [e for loop in c.loops for e in (loop.lo, loop.hi)]
        conditions = [] if c.update.guard is None else [c.update.guard]
        if any(loads(e) for e in (*bounds, *conditions)) or _selects(c.update.value):
            return False
    return True


def _selects(e: Expr) -> bool:
    """Whether ``e`` has a ``select`` outside of the indices of elements."""
    return not isinstance(e, Load) and ((isinstance(e, Op) and e.op == "select") or any(map(_selects, children(e))))


def always_equal(a: Expr, b: Expr, wraps: bool) -> bool:
    """Whether isl proves that two integers or conditions are equal for all integers.

    Index variables do not wrap.  Elements of tensors and parameters may if ``wraps``: then their sums and products are
    decided modulo powers of 2, and other functions of them only where they are the same.
    """
    try:
        import islpy
    except ImportError:
        return False
    atoms: dict[Expr, Expr] = {}
    try:
        left, right = (_with_atoms(e, atoms, wraps) for e in (a, b))
        names = variables(v.name for v in atoms.values() if isinstance(v, Var))
        if a.dtype is DType.BOOL:
            sets = [islpy.Set(f"{{ {names} : {condition(e)} }}") for e in (left, right)]
            return bool(sets[0].is_equal(sets[1]))
        return bool(islpy.Set(f"{{ {names} : {isl_text(left)} != {isl_text(right)} }}").is_empty())
    except NotAffine:
        return False


def implied(loops: Sequence[Loop], given: Sequence[Expr], claim: Expr) -> bool:
    """Whether isl proves that ``claim`` holds in the iterations of ``loops`` where ``given`` holds."""
    try:
        import islpy

        known = [c for c in given if not loads(c)]
        bounds = [e for x in loops for e in (x.lo, x.hi)]
        parts = [*map(iterations, loops), *map(condition, known), f"not {condition(claim)}"]
        points = f"{variables(x.var for x in loops)} : {' and '.join(parts)}"
        return bool(sized(islpy.Set, [claim, *known, *bounds], points).is_empty())
    except (NotAffine, ImportError):
        return False


def _with_atoms(e: Expr, atoms: dict[Expr, Expr], wraps: bool) -> Expr:
    """``e`` with an index variable for each part that isl knows nothing of, the same one for equal parts."""
    match e:
        case Const():
            return e
        case Op(op="add" | "sub" | "neg", args=args) | Op(op="and" | "or" | "not", args=args):
            return with_children(e, tuple(_with_atoms(a, atoms, wraps) for a in args))
        case Op(op="mul", args=(x, y)) if isinstance(x, Const) or isinstance(y, Const):
            return with_children(e, tuple(_with_atoms(a, atoms, wraps) for a in (x, y)))
        case Op(op="floordiv" | "mod", args=(x, Const(value=n) as y)) if n > 0 and not (wraps and _may_wrap(x)):
            return with_children(e, (_with_atoms(x, atoms, wraps), y))
        case Op(op="min" | "max", args=args) if e.dtype.is_int and not (wraps and any(map(_may_wrap, args))):
            return with_children(e, tuple(_with_atoms(a, atoms, wraps) for a in args))
        case Op(op=op, args=args) if op in RELATIONS and args[0].dtype.is_int:
            if not (wraps and any(map(_may_wrap, args))):
                return with_children(e, tuple(_with_atoms(a, atoms, wraps) for a in args))
    atom = atoms.setdefault(e, Var(f"a{len(atoms)}"))
    return Op("gt", (atom, Const(0, DType.I32)), DType.BOOL) if e.dtype is DType.BOOL else atom


def _may_wrap(e: Expr) -> bool:
    """Whether ``e`` is arithmetic with an integer that may be any of its type."""
    match e:
        case Op(op="floordiv" | "mod", args=(x, Const(value=n))) if n > 0:
            return _may_wrap(x)
        case Op(op="min" | "max", args=args):
            return any(map(_may_wrap, args))
    return isinstance(e, Op) and any(isinstance(n, Load | Param | Ref) for n in walk(e))


def _copies(program: Program) -> dict[tuple[str, str, str], list[_Copy]]:
    """The updates by kernel, target and combiner."""
    found: dict[tuple[str, str, str], list[_Copy]] = {}
    for k in program.kernels:
        own = {b.name for b in k.locals}
        for loops, s in statements(k.body):
            if isinstance(s, Update):
                found.setdefault((k.name, s.buffer, s.op), []).append(_Copy(loops, s, s.buffer in own))
    return found


def _compared(old: _Copy, news: Sequence[_Copy], said: Mapping[tuple[int, str], Expr]) -> str:
    """The fault of the iterations of ``news``; '' if there is none."""
    import islpy

    names = [loop.var for loop in old.loops]
    bounds = [e for c in (old, *news) for e in _bounds(c)]
    whole = sized(islpy.Set, bounds, f"{variables(names)} : {_domain(old)}")
    total: Any = None
    for new in news:
        image = _map(old, new, said)
        values = [image[n] for n in names]
        relation = sized(islpy.Map, [*bounds, *values], _relation(new, values))
        if not relation.is_injective():
            return _twice(old, "two iterations do the same work")
        reached = relation.range()
        if total is not None and not total.is_disjoint(reached):
            return _twice(old, "two copies do the same work")
        total = reached if total is None else total.union(reached)
    inside = total
    if all(new.local for new in news):
        inside = total.intersect(_elements(whole, old))
    if not inside.is_subset(whole):
        return f"an iteration is new: {inside.subtract(whole).sample_point()}"
    lost = whole.subtract(total)
    if old.update.guard is None or not old.lasting:
        lost = _outer(lost, old).intersect(_outer(total, old))
    return "" if lost.is_empty() else f"an iteration is left out: {lost.sample_point()}"


def _twice(c: _Copy, problem: str) -> str:
    """``problem``. Raises NotAffine for a combiner to which it makes no difference."""
    if c.update.op in _IDEMPOTENT:
        raise NotAffine(f"{problem}, which does not change a {c.update.op}")
    return problem


def _elements(points: Any, c: _Copy) -> Any:
    """All points that update an element that ``points`` update."""
    import islpy

    for k, loop in enumerate(c.loops):
        if loop.kind.is_reduction or loop.kind is Kind.SEQ:
            points = points.eliminate(islpy.dim_type.set, k, 1)
    return points


def _outer(points: Any, c: _Copy) -> Any:
    """``points`` without the variables inside the innermost ``seq`` loop: the blocks."""
    import islpy

    depth = max((k + 1 for k, loop in enumerate(c.loops) if loop.kind is Kind.SEQ), default=0)
    return points.project_out(islpy.dim_type.set, depth, len(c.loops) - depth)


def _bounds(c: _Copy) -> Iterator[Expr]:
    for loop in c.loops:
        yield from (loop.lo, loop.hi)
    yield from (g for g in conjuncts(c.update.guard) if not loads(g))


def conjuncts(e: Expr | None) -> list[Expr]:
    """The parts of a condition that must all hold."""
    if isinstance(e, Op) and e.op == "and":
        return conjuncts(e.args[0]) + conjuncts(e.args[1])
    return [] if e is None else [e]


def _map(old: _Copy, new: _Copy, said: Mapping[tuple[int, str], Expr]) -> Mapping[str, Expr]:
    """Every old loop variable as an expression of the new ones. Raises NotAffine where the statements differ.

    ``said``: what the other updates in a ``seq`` loop say about its variable.
    """
    found = _read_off(old, new)
    here = {loop.var: loop for loop in new.loops}
    for loop in old.loops:
        same = here.get(loop.var)
        if loop.var in found:
            continue
        if same is None or not (same.kind is loop.kind is Kind.SEQ or _same_bounds(loop, same)):
            raise NotAffine(f"no value is given for the loop {loop.var}")
        found[loop.var] = said.get((id(same), loop.var), Var(loop.var))
    return found


def _read_off(old: _Copy, new: _Copy) -> dict[str, Expr]:
    """What the values and the guards of two updates say about the old loop variables."""
    found: dict[str, Expr] = {}
    _matched(old.update.value, new.update.value, found)
    for a in conjuncts(old.update.guard):
        fits = [x for b in conjuncts(new.update.guard) for x in (_extended(a, b, found), _kept(a, b, found)) if x]
        if fits:  # a variable becomes a number only where nothing else fits: ``k < j`` has the form of ``k < 10``
            found = min(fits, key=_likelihood)
        elif loads(a):
            raise NotAffine("a condition that reads memory has changed")
    return found


def _kept(a: Expr, b: Expr, found: Mapping[str, Expr]) -> dict[str, Expr] | None:
    """``found``, and the other variables of ``a`` as themselves, if ``a`` is then ``b``; of ``u < e``, ``u <= e`` is
    that where ``u`` is found to be ``u - 1``."""
    out = {**{name: Var(name) for name in _names(a)}, **found}
    same = not loads(a) and always_equal(substitute(a, out), b, wraps=False)
    return out if same else None


def _likelihood(found: Mapping[str, Expr]) -> tuple[int, int, int]:
    """A key that is least for the likeliest of several readings, which has few numbers, few expressions that two
    variables share, and then many variables that are themselves.

    Of ``r < 3 and c < 3``, each part has the form of the other one, ``j < 17`` has that of ``i0 * 8 + i < 17``, and
    ``u <= t`` has that of ``t <= u + 4``.
    """
    return sum(not _names(e) for e in found.values()), len(found) - len({*found.values()}), -_unchanged(found)


def _said(left: Mapping[Any, list[_Copy]], right: Mapping[Any, list[_Copy]]) -> dict[tuple[int, str], Expr]:
    """The new form of the variable of a ``seq`` loop, by the new loop and the old variable."""
    found: dict[tuple[int, str], Expr] = {}
    for key, olds in left.items():
        for new in right.get(key, []) if len(olds) == 1 else []:
            try:
                read = _read_off(olds[0], new)
            except NotAffine:
                continue
            for loop in new.loops:
                if loop.kind is Kind.SEQ and loop.var in read:
                    found[id(loop), loop.var] = read[loop.var]
    return found


def _same_bounds(a: Loop, b: Loop) -> bool:
    return (a.lo, a.hi) == (b.lo, b.hi)


def _extended(a: Expr, b: Expr, found: Mapping[str, Expr]) -> dict[str, Expr] | None:
    """``found`` with what ``a`` and ``b`` say about variables; None where they have different forms."""
    out = dict(found)
    try:
        _matched(a, b, out)
    except NotAffine:
        return None
    return out


def _matched(a: Expr, b: Expr, found: dict[str, Expr]) -> None:
    if isinstance(a, Var):
        if found.setdefault(a.name, b) != b:
            raise NotAffine(f"{a.name} is replaced by two different expressions")
        return
    if isinstance(a, Op) and a.dtype.is_int and _names(a) == _names(b) and always_equal(a, b, wraps=False):
        for name in _names(a):  # the same index in another order of terms
            _matched(Var(name), Var(name), found)
        return
    if isinstance(a, Load) and isinstance(b, Load) and a.buffer == b.buffer and len(a.index) != len(b.index):
        return  # a local that is stored in another shape says nothing
    if type(a) is not type(b) or len(children(a)) != len(children(b)) or _head(a) != _head(b):
        raise NotAffine("the values differ in more than their indices")
    if isinstance(a, Op) and a.op in ("eq", "ne"):  # sides may be exchanged: the order that keeps variables is taken
        orders = (_matched_all(children(a), y, found) for y in (children(b), children(b)[::-1]))
        fits = [x for x in orders if x is not None]
        if not fits:
            raise NotAffine("the values differ in more than their indices")
        likeliest = max(fits, key=_unchanged)
        found.update(likeliest)
        return
    for x, y in zip(children(a), children(b), strict=True):
        _matched(x, y, found)


def _unchanged(found: Mapping[str, Expr]) -> int:
    """How many variables are themselves."""
    return sum(e == Var(name) for name, e in found.items())


def _matched_all(left: Sequence[Expr], right: Sequence[Expr], found: Mapping[str, Expr]) -> dict[str, Expr] | None:
    """``found`` with what pairs of ``left`` and ``right`` say; None where two have different forms."""
    out = dict(found)
    for a, b in zip(left, right, strict=True):
        extended = _extended(a, b, out)
        if extended is None:
            return None
        out = extended
    return out


def _names(e: Expr) -> list[str]:
    return sorted({n.name for n in walk(e) if isinstance(n, Var)})


def _head(e: Expr) -> object:
    """What two nodes have in common whose parts correspond."""
    match e:
        case Op(op=name) | Load(buffer=name):
            return name
        case _ if children(e):
            return type(e)
    return e


def _relation(c: _Copy, values: Sequence[Expr]) -> str:
    """The iterations of ``c`` -> ``values``, in the syntax of isl."""
    here, domain = variables(loop.var for loop in c.loops), _domain(c)
    return "; ".join(
        f"{here} -> [{', '.join(map(isl_text, there))}] : {' and '.join([domain, *conditions])}"
        for conditions, there in pieces(values)
    )


def _domain(c: _Copy) -> str:
    parts = [*map(iterations, c.loops), *(condition(g) for g in conjuncts(c.update.guard) if not loads(g))]
    return " and ".join(parts) or "true"
