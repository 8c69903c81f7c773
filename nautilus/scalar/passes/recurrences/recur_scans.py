"""``recur-scans``: running sums of exponentials relative to the largest element so far become recurrences.

Each element of such a sum depends on the result, because its reference does, so that it is no scan::

    m[t] = max_u x[u]               where u <= t
    s[t] = sum_u exp(x[u] - m[t])   where u <= t

A change of the reference is a factor of at most 1, and two exponentials for each element are enough::

    r[t] = max(m[t], LOWEST)
    S[t] = S[t - 1] * exp(r[t - 1] - r[t]) + exp(x[t] - r[t])
    s[t] = S[t] if S[t] != 0 else -inf - -inf

``LOWEST`` is the least finite number: a reference that is finite wherever an element is leaves 0 of elements that are
-inf, and the sum is at least 1 where one is not.  Else ``s`` is the difference of infinite numbers, as it was.  Running
values may be rescaled (``grammar/README.md``, "Numbers").

Sums whose terms decay with their distance, as in a moving average, are no scans either, and take a matrix of weights::

    y[t] = sum_u 0.06 * pow(0.94, t - u) * x[u]   where u <= t
    y[t] = y[t - 1] * 0.94 + 0.06 * x[t]

The weight of a term at distance ``n`` is that at distance 1 to the power of ``n``, and at most 1 in magnitude, so that
neither a result nor an error grows (:mod:`nautilus.scalar.analysis.ranges.decays`).

The same from the last element on, ``t <= u``.  Shorter axes stay as they are: all terms of each result are found at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, identity, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import extent_expr, large
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType, value_limits
from nautilus.scalar.analysis.contractions.promises import Promises, promised_ranges
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.domains import running
from nautilus.scalar.analysis.ranges.decays import Decay, decay
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Store
from nautilus.scalar.rewriting import find_defs, fresh_name, nest, put_defs

SHORTEST = 256  # elements of an axis


@dataclass(frozen=True, slots=True)
class RecurScans(CertifyingPass[Program]):
    """Make recurrences of such sums; ``shortest``: elements of the shortest axis.

    ``spec``: the Spec, whose facts bound inputs and scalars.
    """

    shortest: int = SHORTEST
    spec: Promises | None = None

    name = "recur-scans"
    sees_recurrences = True

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with such recurrences, and a certificate for the step of each one."""
        certificates: list[Certificate] = []
        given = promised_ranges(self.spec)
        for d in find_defs(program).values():
            defs = find_defs(program)
            axes = tuple(a for a in d.par if size(a) is not None)
            decaying = decay(d, Ranges(defs, axes, given=given).of)
            if decaying is not None and large(decaying.t.extent) >= self.shortest:
                program, certificate = _decayed(program, d, decaying)
                certificates.append(certificate)
            found = _scan(d, defs)
            if found is None or (size(found.t) or 0) < self.shortest:
                continue
            program, certificate = _rewritten(program, d, found)
            certificates.append(certificate)
        return program, tuple(certificates)


@dataclass(frozen=True, slots=True)
class _Scan:
    """A sum over ``u <= t`` of ``exp(element - of[.., t])``, where ``of`` is the largest ``element`` up to ``t``.

    ``reverse``: over ``t <= u``.
    """

    u: Axis
    t: Axis
    of: Def
    element: Expr
    reverse: bool


def _scan(d: Def, defs: Mapping[str, Def]) -> _Scan | None:
    """The scan that ``d`` is; None for another definition."""
    own = tuple(Var(a.name) for a in d.par)
    if d.op != "sum" or d.at is not None or len(d.red) != 1 or d.buffer.dtype is not DType.F32:
        return None
    match d.value:
        case Op(op="exp", args=(Op(op="sub", args=(element, Load() as read)),)) if read.index == own:
            of = defs.get(read.buffer)
        case _:
            return None
    (u,) = d.red
    t, reverse = running(d.guard, u, d.par) or (None, False)
    if t is None or of is None or of.op != "max" or len(of.red) != 1 or of.at is not None or len(of.par) != len(d.par):
        return None
    names: dict[str, Expr] = {a.name: Var(b.name) for a, b in zip((*of.par, *of.red), (*d.par, u), strict=True)}
    same = of.guard is not None and substitute(of.guard, names) == d.guard and substitute(of.value, names) == element
    temps = of.buffer.space is Space.TEMP and of.buffer.dtype is DType.F32 is element.dtype
    return _Scan(u, t, of, element, reverse) if same and temps and t.name not in free_vars(element) else None


def _decayed(program: Program, d: Def, x: Decay) -> tuple[Program, Certificate]:
    """``program`` with the recurrence that ``d`` is, and the certificate of its step."""
    step, last = Var(x.t.name), simplify(calc("sub", extent_expr(x.t.extent), 1))
    place = calc("sub", last, step) if x.reverse else step
    back = "add" if x.reverse else "sub"

    def at(t: Expr) -> Load:
        return Load(d.name, tuple(t if a is x.t else Var(a.name) for a in d.par), DType.F32, d.span)

    here = substitute(x.rest, {x.u.name: calc(back, place, x.lag) if x.lag else place})
    here = here if x.first is None else Op("mul", (x.first, here), DType.F32)
    later = Op("add", (Op("mul", (at(calc(back, place, 1)), x.step), DType.F32), here), DType.F32)
    value = calc("select", calc("lt", integer(0), step), later, number(0, DType.F32) if x.lag else here)
    loops = [Loop(a.name, integer(0), extent_expr(a.extent), Kind.PAR, (), d.span) for a in d.par if a is not x.t]
    loops.append(Loop(x.t.name, integer(0), extent_expr(x.t.extent), Kind.SEQ, (), d.span))
    kernel = Kernel(d.name, (), nest(loops, (Store(d.name, at(place).index, value, None, d.span),)), d.span)
    program = replace(program, kernels=tuple(kernel if k.name == d.name else k for k in program.kernels))
    other = substitute(x.weight, {x.t.name: calc(back, Var(x.t.name), 1)})
    moved = Op("mul", (other, x.step), DType.F32)
    far = calc(back, Var(x.t.name), x.lag) if x.lag else Var(x.t.name)
    pair = (far, Var(x.u.name)) if x.reverse else (Var(x.u.name), far)
    proof = "the weight of a term is multiplied once by that of one step in each later one"
    condition = Op("lt", pair, DType.BOOL)
    return program, Certificate("recur-scans", d.name, x.weight, moved, (), (condition,), (), proof, d.span)


def _exp(a: Expr, b: Expr) -> Expr:
    """``exp(a - b)``."""
    return Op("exp", (Op("sub", (a, b), DType.F32),), DType.F32)


def _rewritten(program: Program, d: Def, scan: _Scan) -> tuple[Program, Certificate]:
    """``program`` with the recurrence of ``d``, and the certificate of its step."""
    lowest, name = Const(value_limits(DType.F32)[0], DType.F32), fresh_name(program, f"{d.name}_relative")
    relative = replace(d.buffer, name=name, space=Space.TEMP, view_of=None, strides=None)
    step, last = Var(scan.t.name), (size(scan.t) or 0) - 1
    place = calc("sub", last, step) if scan.reverse else step
    before = calc("add" if scan.reverse else "sub", place, 1)

    def at(buffer: str, t: Expr) -> Load:
        index = tuple(t if a is scan.t else Var(a.name) for a in d.par)
        return Load(buffer, index, DType.F32, d.span)

    def reference(t: Expr) -> Expr:
        return Op("max", (at(scan.of.name, t), lowest), DType.F32)

    element = substitute(scan.element, {scan.u.name: place})
    here, moved = _exp(element, reference(place)), _exp(reference(before), reference(place))
    later = Op("add", (Op("mul", (at(name, before), moved), DType.F32), here), DType.F32)
    value = calc("select", calc("lt", integer(0), step), later, here)
    loops = [Loop(a.name, integer(0), extent_expr(a.extent), Kind.PAR, (), d.span) for a in d.par if a is not scan.t]
    loops.append(Loop(scan.t.name, integer(0), extent_expr(scan.t.extent), Kind.SEQ, (), d.span))
    kernel = Kernel(name, (), nest(loops, (Store(name, at(name, place).index, value, None, d.span),)), d.span)
    some = Op("ne", (at(name, step), Const(0.0, DType.F32)), DType.BOOL)
    least = identity("max", DType.F32)
    undefined = Op("sub", (least, least), DType.F32)
    total = replace(d, red=(), op=None, guard=None, value=calc("select", some, at(name, step), undefined))
    program = put_defs(program, d.name, (total,))
    mine = next(n for n, k in enumerate(program.kernels) if k.name == d.name)
    kernels = (*program.kernels[:mine], kernel, *program.kernels[mine:])
    program = replace(program, kernels=kernels, buffers=(*program.buffers, relative))
    proof = "exp(x - r) is exp(x - q) * exp(q - r), and a term of an earlier step is multiplied once in each later one"
    term = _exp(scan.element, reference(place))
    moved = Op("mul", (_exp(scan.element, reference(before)), moved), DType.F32)
    ordered = (scan.element, at(scan.of.name, before), at(scan.of.name, place))
    conditions = tuple(Op("le", pair, DType.BOOL) for pair in pairwise(ordered))
    return program, Certificate("recur-scans", d.name, term, moved, (), conditions, (), proof, d.span)
