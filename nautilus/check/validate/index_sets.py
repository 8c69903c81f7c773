"""Whether a pass of Scalar IR keeps the iterations of its updates, at the declared sizes.

The iterations of a statement are the integer points of its loops at which its guard holds, a set of Presburger
arithmetic, which isl decides (Verdoolaege, ICMS 2010).  For every update that stands on both sides, the iterations of
all copies after the pass are mapped to the loop variables before it and must be

* disjoint, and mapped one to one: no iteration runs twice;
* iterations before the pass.  A local may have elements that nobody updated before, to fill a tile; these are free;
* the iterations before the pass, where the update has a guard there and its target lasts from one block to the next:
  none is left out.  Other updates may lose whole iterations of a ``seq`` loop, because a block without effect need
  not run; that it has none is decided by the numbers.

The map is read off the two statements: where the index ``i`` became ``i0 * 64 + i``, that is the old variable.  A
conjunct that reads memory, or is not affine, must stand on both sides unchanged, and is left out of the sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nautilus.check.validate.verdict import Verdict
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, children, loads
from nautilus.scalar.ir import Kind, Loop, Program, Store, Update, statements

INSTALL = "islpy is not installed; pip install 'nautilusc[check]'"
_RELATIONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}


class _NotAffine(Exception):
    """An expression outside of Presburger arithmetic."""


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

    ``points`` of the verdict counts these updates.  "not decided": one of them could not be compared, or there is none.
    """
    try:
        import islpy  # noqa: F401
    except ImportError:
        return Verdict("not decided", detail=INSTALL)
    left, right = _copies(before), _copies(after)
    proved, reason, said = 0, "", _said(left, right)
    for key, olds in left.items():
        news = right.get(key)
        if not news or len(olds) != 1:
            continue
        try:
            problem = _compared(olds[0], news, said)
        except _NotAffine as error:
            reason = f"{key[1]}: {error}"
            continue
        if problem:
            return Verdict("refuted", detail=f"{key[1]}: {problem}")
        proved += 1
    if reason or not proved:
        return Verdict("not decided", proved, reason or "no update stands on both sides")
    return Verdict("proved", proved)


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
    """What is wrong with the iterations of ``news``; '' if nothing is."""
    import islpy

    names = [loop.var for loop in old.loops]
    sizes = sorted({p.name for c in (old, *news) for e in _bounds(c) for p in _params(e)})
    whole = islpy.Set(_set(old, names, sizes))
    total: Any = None
    for new in news:
        image = _map(old, new, said)
        relation = islpy.Map(_relation(new, names, image, sizes))
        if not relation.is_injective():
            return "two iterations do the same work"
        reached = relation.range()
        if total is not None and not total.is_disjoint(reached):
            return "two copies do the same work"
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
    yield from (g for g in _conjuncts(c.update.guard) if not loads(g))


def _params(e: Expr) -> Iterator[Param]:
    if isinstance(e, Param):
        yield e
    for c in children(e):
        yield from _params(c)


def _conjuncts(e: Expr | None) -> list[Expr]:
    if isinstance(e, Op) and e.op == "and":
        return _conjuncts(e.args[0]) + _conjuncts(e.args[1])
    return [] if e is None else [e]


def _map(old: _Copy, new: _Copy, said: Mapping[tuple[int, str], Expr]) -> Mapping[str, Expr]:
    """Every old loop variable as an expression of the new ones. Raises _NotAffine where the statements differ.

    ``said``: what the other updates in a ``seq`` loop say about its variable.
    """
    found = _read_off(old, new)
    here = {loop.var: loop for loop in new.loops}
    for loop in old.loops:
        same = here.get(loop.var)
        if loop.var in found:
            continue
        if same is None or not (same.kind is loop.kind is Kind.SEQ or _same_bounds(loop, same)):
            raise _NotAffine(f"nothing says what became of {loop.var}")
        found[loop.var] = said.get((id(same), loop.var), Var(loop.var))
    return found


def _read_off(old: _Copy, new: _Copy) -> dict[str, Expr]:
    """What the values and the guards of two updates say about the old loop variables."""
    found: dict[str, Expr] = {}
    _matched(old.update.value, new.update.value, found)
    for a in _conjuncts(old.update.guard):
        fits = [x for b in _conjuncts(new.update.guard) if (x := _extended(a, b, found)) is not None]
        if fits:
            found = fits[0]
        elif loads(a):
            raise _NotAffine("a condition that reads memory has changed")
    return found


def _said(left: Mapping[Any, list[_Copy]], right: Mapping[Any, list[_Copy]]) -> dict[tuple[int, str], Expr]:
    """What became of the variable of a ``seq`` loop, by the new loop and the old variable."""
    found: dict[tuple[int, str], Expr] = {}
    for key, olds in left.items():
        for new in right.get(key, []) if len(olds) == 1 else []:
            try:
                read = _read_off(olds[0], new)
            except _NotAffine:
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
    except _NotAffine:
        return None
    return out


def _matched(a: Expr, b: Expr, found: dict[str, Expr]) -> None:
    if isinstance(a, Var):
        if found.setdefault(a.name, b) != b:
            raise _NotAffine(f"{a.name} became two expressions")
        return
    if isinstance(a, Load) and isinstance(b, Load) and a.buffer == b.buffer and len(a.index) != len(b.index):
        return  # a local that is stored in another shape says nothing
    same = type(a) is type(b) and len(children(a)) == len(children(b))
    if isinstance(a, Load) and isinstance(b, Load) and a.buffer == b.buffer and same:
        pass
    elif not same or (isinstance(a, Op) and isinstance(b, Op) and a.op != b.op) or (not children(a) and a != b):
        raise _NotAffine("the values differ in more than their indices")
    for x, y in zip(children(a), children(b), strict=True):
        _matched(x, y, found)


def _set(c: _Copy, names: Sequence[str], sizes: Sequence[str]) -> str:
    return f"[{', '.join(sizes)}] -> {{ [{', '.join(names)}] : {_domain(c)} }}"


def _relation(c: _Copy, names: Sequence[str], image: Mapping[str, Expr], sizes: Sequence[str]) -> str:
    here = ", ".join(loop.var for loop in c.loops)
    there = ", ".join(_text(image[n]) for n in names)
    return f"[{', '.join(sizes)}] -> {{ [{here}] -> [{there}] : {_domain(c)} }}"


def _domain(c: _Copy) -> str:
    parts = [f"{_text(loop.lo)} <= {loop.var} < {_text(loop.hi)}" for loop in c.loops]
    parts += [_condition(g) for g in _conjuncts(c.update.guard) if not loads(g)]
    return " and ".join(parts) or "true"


def _condition(e: Expr) -> str:
    match e:
        case Const(value=value):
            return "true" if value else "false"
        case Op(op="and" | "or" as op, args=(a, b)):
            return f"({_condition(a)} {op} {_condition(b)})"
        case Op(op="not", args=(a,)):
            return f"(not {_condition(a)})"
        case Op(op=op, args=(a, b)) if op in _RELATIONS and a.dtype.is_int:
            return f"({_text(a)} {_RELATIONS[op]} {_text(b)})"
    raise _NotAffine("a condition is not affine")


def _text(e: Expr) -> str:
    """An affine expression in the syntax of isl."""
    match e:
        case Const(value=value) if e.dtype.is_int:
            return str(int(value))
        case Var(name=name) | Param(name=name):
            return name
        case Op(op="add" | "sub" as op, args=(a, b)):
            return f"({_text(a)} {'+' if op == 'add' else '-'} {_text(b)})"
        case Op(op="neg", args=(a,)):
            return f"(-{_text(a)})"
        case Op(op="mul", args=(Const(value=n), a)) | Op(op="mul", args=(a, Const(value=n))):
            return f"({int(n)} * {_text(a)})"
        case Op(op="floordiv", args=(a, Const(value=n))) if n > 0:
            return f"floor({_text(a)} / {int(n)})"
        case Op(op="mod", args=(a, Const(value=n))) if n > 0:
            return f"({_text(a)} mod {int(n)})"
        case Op(op="min" | "max" as op, args=(a, b)):
            return f"{op}({_text(a)}, {_text(b)})"
    raise _NotAffine("an index is not affine")
