"""``mark-undefined``: a sum of exponentials relative to a maximum of -inf is NaN.

In ``m = max_j(x_j)`` and ``sum_j(exp(x_j - m))``, the sum is NaN where every ``x_j`` is -inf, because
``-inf - (-inf)`` is NaN.  One loop for both takes 0 as the reference while ``m`` is -inf (``repair``), since an empty
domain needs the sum 0 there, and so do partial results.  The pass lets readers of such a sum see what it is::

    select(m == -inf, m - m, sum)

Both forms are equal where the domain is not empty.  It has its first element if the sizes are above 0, and if the
condition holds there; a size known only at launch and a condition on other axes become part of the select.  Where a
condition leaves the first element out, as that of a window, the one that the domain is not empty
(:mod:`nautilus.scalar.analysis.domains`) becomes part of it.  Where that has no closed form, because a condition reads
memory along a reduced axis or relates two of them, a reduction ``any_j(condition)`` finds it beside the sum; where the
first alternative of the condition has a closed form, over the elements of the others alone.

A reader that is NaN for the sum 0 already, such as ``acc / sum`` with the sum 0 in both, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts, constant_last
from nautilus.core.expr.nodes import (
    Const,
    Expr,
    Load,
    Op,
    Param,
    Reduce,
    Var,
    children,
    free_vars,
    identity,
    loads,
    rewrite,
    substitute,
    with_children,
)
from nautilus.core.index.simplify import TRUE, simplify
from nautilus.core.numerics import eval_op
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.domains import first_alternative, nonempty
from nautilus.scalar.ir import Loop, Program, Store, Update
from nautilus.scalar.passes.factor import inner_sum, with_inner_sum
from nautilus.scalar.rewriting import (
    axis_assumptions,
    find_defs,
    fresh_name,
    kernel_of,
    map_kernels,
    map_statements,
    with_body,
)

#: Operations whose result is NaN where an argument is.
_ARITHMETIC: Final = frozenset(
    {"add", "sub", "mul", "div", "rcp", "neg", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid",
     "cast", "narrow", "max", "min"}
)  # fmt: skip
_NAN: Final = float("nan")


@dataclass(frozen=True, slots=True)
class _Relative:
    """The sum ``d`` of exponentials relative to the extreme ``of``, which its terms have as ``top``.

    ``top`` has the value ``at``: an element of ``of``, or the extreme of one and of other numbers, such as a sink.
    ``where``: the domain is not empty; None: always.  ``found``: the definition that finds it, where it has no closed
    form.
    """

    d: Def
    of: Def
    top: Expr
    at: Expr
    where: Expr | None
    found: Def | None = None

    @property
    def places(self) -> dict[str, Expr]:
        """The indices of the element of ``of``, by the axes of ``of``."""
        return _places(self.of, self.at)

    @property
    def undefined(self) -> Expr:
        """Whether an element of ``d`` is NaN because its extreme is infinite; over the axes of ``d``."""
        assert self.of.op is not None
        infinite = Op("eq", (self.top, identity(self.of.op, self.top.dtype)), DType.BOOL)
        return infinite if self.where is None else calc("and", infinite, self.where)

    def marked(self, value: Expr) -> Expr:
        """``value`` of ``d`` with NaN where it is undefined: the difference of the extreme from itself."""
        nan: Expr = Op("sub", (self.top, self.top), self.top.dtype)
        if nan.dtype is not value.dtype:
            nan = Op("cast", (nan,), value.dtype)
        return Op("select", (self.undefined, nan, value), value.dtype)


@dataclass(frozen=True, slots=True)
class MarkUndefined(CertifyingPass[Program]):
    """Mark every sum whose readers would see 0 in the place of NaN."""

    name = "mark-undefined"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with marked readers, and a certificate for each sum that has one."""
        certificates: list[Certificate] = []
        defs = find_defs(program)
        found = {s.d.name: s for d in defs.values() if (s := _relative(program, d, defs)) is not None}
        for s in [s for s in found.values() if s.d.buffer.space is Space.OUTPUT]:
            raw = inner_sum(program, s.d, s.d.value)
            read = Load(raw.name, s.d.index, raw.buffer.dtype)
            program = with_inner_sum(program, s.d, raw, s.marked(read), [] if s.found is None else [s.found])
            certificates.append(_certificate(found.pop(s.d.name)))
        marked: set[str] = set()

        def with_marks(e: Expr, target: str) -> Expr:
            names = {ld.buffer for ld in loads(e) if ld.buffer in found}
            if not names or target in names or not _differs(e, found):
                return e
            marked.update(names)
            return rewrite(e, lambda n: _read(n, found))

        def rule(_: tuple[Loop, ...], stmt: Store | Update) -> Store | Update:
            value = with_marks(stmt.value, stmt.buffer)
            guard = None if stmt.guard is None else with_marks(stmt.guard, stmt.buffer)
            same = value is stmt.value and guard is stmt.guard
            return stmt if same else replace(stmt, value=value, guard=guard)

        program = map_kernels(program, lambda k: with_body(k, map_statements(k.body, rule)))
        for s in (found[n] for n in sorted(marked)):
            if s.found is not None:
                program = _with_def_before(program, s.found, s.d.name)
        certificates += [_certificate(found[n]) for n in sorted(marked)]
        return program, tuple(certificates)


def _relative(program: Program, d: Def, defs: Mapping[str, Def]) -> _Relative | None:
    """The reference of ``d``, if every term of it is NaN where the reference is infinite, and it has a term."""
    if d.op != "sum" or d.at is not None or not d.value.dtype.is_float:
        return None
    for top in (e for e in _maths(d.value) if isinstance(e, Load) or (isinstance(e, Op) and e.op in ("max", "min"))):
        of, at = _extreme(top, defs)
        if of is None or len(of.red) != len(d.red):
            continue
        if any(isinstance(a.extent, int) and a.extent < 1 for a in d.red):
            continue
        if free_vars(top) & {a.name for a in d.red} or not _has_exponent(d, of, top, at):
            continue
        if any(isinstance(n, Op) and n.op not in _ARITHMETIC - {"max", "min"} for n in _maths(d.value, top)):
            continue
        where, some = _has_term(d), None
        if where is None:
            where, some = _some(program, d)
        return _Relative(d, of, top, at, None if where == TRUE else where, some)
    return None


def _extreme(top: Expr, defs: Mapping[str, Def]) -> tuple[Def | None, Expr]:
    """The reduction that ``top`` is an element of, or the extreme of one and of other numbers; and its value."""
    d, value = (defs.get(top.buffer) if isinstance(top, Load) else None), top
    if isinstance(top, Load) and d is not None and d.at is None and d.guard is None and d.op is None:
        value = substitute(d.value, {a.name: i for a, i in zip(d.par, top.index, strict=True)})
    op = value.op if isinstance(value, Op) and value.op in ("max", "min") else None
    for x in _sides(value, op) if op is not None else (top,):
        of = defs.get(x.buffer) if isinstance(x, Load) else None
        if of is not None and of.at is None and of.op in ((op,) if op is not None else ("max", "min")):
            return of, value if op is not None else top
    return None, top


def _sides(e: Expr, op: str | None) -> tuple[Expr, ...]:
    """The numbers of which ``e`` is the extreme by ``op``."""
    return tuple(x for a in e.args for x in _sides(a, op)) if isinstance(e, Op) and e.op == op else (e,)


def _places(of: Def, at: Expr) -> dict[str, Expr]:
    """The indices by the axes of ``of`` of its element in ``at``, the value of a load (:func:`_extreme`)."""
    read = next(x for x in loads(at) if x.buffer == of.name)
    return {a.name: i for a, i in zip(of.par, read.index, strict=True)}


def _with_def_before(program: Program, new: Def, name: str) -> Program:
    """``program`` with the definition ``new`` in front of the kernel ``name``."""
    kernels = (x for k in program.kernels for x in ((kernel_of(new), k) if k.name == name else (k,)))
    return replace(program, buffers=(*program.buffers, new.buffer), kernels=tuple(kernels))


def _some(program: Program, d: Def) -> tuple[Expr, Def | None]:
    """The condition that the domain of the sum ``d`` has an element, and the definition that it reads, if any."""
    closed, others = first_alternative(d)
    if closed == TRUE:
        return TRUE, None
    name = fresh_name(program, f"{d.name}_some")
    buffer = Buffer(name, DType.BOOL, d.buffer.shape, Space.TEMP, d.buffer.span)
    found = Load(name, d.index, DType.BOOL)
    made = replace(d, name=name, buffer=buffer, op="any", value=TRUE, guard=others)
    return found if closed is None else calc("or", closed, found), made


def _has_term(d: Def) -> Expr | None:
    """The condition on the axes of the sum ``d`` under which it has a term; None where none is known.

    It is that of the first term, which is short, where that holds for all rows.
    """
    mine = {a.name for a in d.red}
    if any(free_vars(ld) & mine for c in conjuncts(d.guard) for ld in loads(c)):
        return None
    ranges, assumptions = axis_assumptions(d.par)
    begin = {a.name: integer(0) for a in d.red}
    first = [simplify(substitute(c, begin), ranges, assumptions) for c in conjuncts(d.guard)]
    undecided = [c for c in first if c != TRUE]
    sizes = [calc("gt", a.extent, integer(0)) for a in d.red if isinstance(a.extent, Param)]
    exact = nonempty(d) if undecided else None
    if exact is not None:
        return exact
    never = any(isinstance(c, Const) and not c.value for c in first)
    return None if never else conjunction((*undecided, *sizes)) or TRUE


def _maths(e: Expr, without: Expr | None = None) -> Iterator[Expr]:
    """The nodes of ``e`` without those of indices, and without those of the expression ``without``."""
    if e != without:
        yield e
        for c in () if isinstance(e, Load) else children(e):
            yield from _maths(c, without)


def _has_exponent(d: Def, of: Def, top: Expr, at: Expr) -> bool:
    """Whether ``d`` has a factor ``exp(c * (x - r))`` with the element ``x`` of ``of`` and its result ``r``."""
    places = _places(of, at)
    own = {a.name: Var(b.name) for a, b in zip(of.red, d.red, strict=True) if a.extent == b.extent}
    if len(own) != len(of.red):
        return False
    theirs = conjunction(substitute(c, {**places, **own}) for c in conjuncts(of.guard))
    element = substitute(of.value, {**places, **own})
    assert of.op is not None
    infinite = identity(of.op, top.dtype)
    if not set(conjuncts(theirs)) <= set(conjuncts(d.guard)):  # the terms without an element may have -inf for it
        assert theirs is not None
        element = Op("select", (theirs, element, infinite), element.dtype)
    value = rewrite(d.value, lambda e: infinite if constant_last(e) in (top, element) else None)
    return _is_nan(_folded(value))


def _read(e: Expr, found: Mapping[str, _Relative]) -> Expr | None:
    if not (isinstance(e, Load) and e.buffer in found):
        return None
    s = found[e.buffer]
    at = {a.name: i for a, i in zip(s.d.par, e.index, strict=True)}
    return substitute(s.marked(replace(e, index=s.d.index)), at)


def _differs(value: Expr, found: Mapping[str, _Relative]) -> bool:
    """Whether ``value`` with 0 for sums that are NaN is another one than with NaN."""
    zero, nan = (_folded(_with_sums(value, found, x)) for x in (0.0, _NAN))
    return not _same(zero, nan)


def _with_sums(value: Expr, found: Mapping[str, _Relative], x: float) -> Expr:
    """``value`` where the sums are undefined: each is ``x``, and its extreme and the elements are infinite."""
    known: dict[Expr, Expr] = {}
    patterns: list[tuple[Expr, frozenset[str], Expr]] = []
    for e in loads(value):
        s = found.get(e.buffer)
        if s is None:
            continue
        assert s.of.op is not None
        at = {a.name: i for a, i in zip(s.d.par, e.index, strict=True)}
        top, extreme = substitute(s.top, at), substitute(s.at, at)
        infinite = identity(s.of.op, s.top.dtype)
        places = _places(s.of, extreme)
        known |= {e: Const(x, e.dtype), top: infinite, **dict.fromkeys(_sides(extreme, s.of.op), infinite)}
        patterns.append((substitute(s.of.value, places), frozenset(a.name for a in s.of.red), infinite))

    def rule(e: Expr) -> Expr | None:
        if e in known:
            return known[e]
        return next((infinite for p, free, infinite in patterns if _matches(p, e, free)), None)

    return rewrite(value, rule)


def _matches(pattern: Expr, e: Expr, free: frozenset[str]) -> bool:
    """Whether ``e`` is ``pattern`` with any index for the variables ``free``."""
    if isinstance(pattern, Var) and pattern.name in free:
        return True
    a, b = children(pattern), children(e)
    if type(pattern) is not type(e) or len(a) != len(b) or not a:
        return pattern == e
    alike = with_children(pattern, tuple(b)) == e
    return alike and all(_matches(x, y, free) for x, y in zip(a, b, strict=True))


def _folded(e: Expr) -> Expr:
    """``e`` with known values computed; NaN goes through arithmetic, whatever the other arguments are."""
    if not isinstance(e, Op):
        return e
    args = tuple(_folded(a) for a in e.args)
    if e.op == "select" and isinstance(args[0], Const):
        return args[1] if args[0].value else args[2]
    if e.op in _ARITHMETIC and e.dtype.is_float and any(map(_is_nan, args)):
        return Const(_NAN, e.dtype)
    if all(isinstance(a, Const) for a in args):
        with np.errstate(all="ignore"):
            value = eval_op(e.op, [np.asarray(a.value) for a in args if isinstance(a, Const)], e.dtype)
        return Const(value.item(), e.dtype)
    return replace(e, args=args)


def _is_nan(e: Expr) -> bool:
    return isinstance(e, Const) and e.value != e.value


def _same(a: Expr, b: Expr) -> bool:
    """Whether ``a`` and ``b`` are equal, where NaN is equal to itself."""
    left, right = (rewrite(e, lambda n: Param("nan", n.dtype) if _is_nan(n) else None) for e in (a, b))
    return left == right


def _certificate(s: _Relative) -> Certificate:
    assert s.of.op is not None
    places = s.places
    guard = None if s.of.guard is None else substitute(s.of.guard, places)
    value = substitute(s.of.value, places)
    found = Reduce(s.of.op, s.of.red, guard, value, s.top.dtype)
    extreme = rewrite(s.at, lambda e: found if isinstance(e, Load) and e.buffer == s.of.name else None)
    total = Reduce("sum", s.d.red, s.d.guard, s.d.value, s.d.value.dtype)
    before = rewrite(total, lambda e: extreme if e == s.top else None)
    some = Reduce("any", s.d.red, s.d.guard, TRUE, DType.BOOL)
    after = rewrite(s.marked(total), lambda e: extreme if e == s.top else some if s.found and e == s.where else None)
    proof = "a term is exp(-inf - (-inf)), which is NaN, and there is a term"
    used = free_vars(s.d.guard) if s.d.guard is not None else frozenset[str]()
    points = [(Var(a.name), a.extent) for a in s.d.par if a.name in used]
    inside: tuple[Expr, ...] = tuple(c for x, n in points for c in (calc("ge", x, integer(0)), calc("lt", x, n)))
    if s.d.guard is not None:  # a checker that evaluates a few terms sees those rows that have one of these
        if s.where is None:
            inside += (some,)
        elif s.found is None:
            inside += (Op("or", (Op("not", (s.where,), DType.BOOL), some), DType.BOOL),)
    return Certificate("mark-undefined", s.d.name, before, after, (), inside, (), proof, s.d.span)
