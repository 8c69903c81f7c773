"""``order-contractions``: sums of products are computed in the order that costs least.

``sum_j(sum_k(a_ik * b_kj))`` becomes ``sum_k(a_ik * t_k)`` with ``t_k = sum_j(b_kj)``: no matrix product remains.
``sum_kl(a_ik * b_kl * c_lj)`` becomes two matrix products.  The pass brings a sum, and the sums that only it reads, to
terms without an order (:mod:`nautilus.scalar.analysis.contractions.terms`), finds the cheapest order of each term
(``trees``, ``price``), and rewrites the sum where the new order is clearly faster.  An intermediate with a type is a
rounding, and stays.

``sum_ik((x_ijk * a_ir) * c_kr)``, whose order stays, becomes ``sum_ik(x_ijk * (a_ir * c_kr))``: its factors are those
of a matrix product, where the written ones are not.

Invariants:

* no operand that may be infinite enters a sum that it was outside of, so inf and NaN in the inputs give what the spec
  defines;
* every sum but the last one has a domain that is never empty: the 0 of an empty one would meet the other factors, whose
  terms are absent, and which may be infinite if they are no integers;
* every sum but the last one reads within the tensors under its own conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import number
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Reduce, free_vars, loads, rewrite, substitute
from nautilus.core.expr.products import MOST_FACTORS, factors, strip_conversions, two_sides
from nautilus.core.index.simplify import TRUE
from nautilus.core.index.sizes import nominal
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.orders import Ordered, has_orders, least, ordered, product, seconds
from nautilus.scalar.analysis.contractions.price import Price
from nautilus.scalar.analysis.contractions.promises import Fenced, Promises, finite_inputs
from nautilus.scalar.analysis.contractions.terms import Operand, may_enter, terms, with_own_axes
from nautilus.scalar.analysis.contractions.trees import Sum, points
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.domains import nonempty
from nautilus.scalar.analysis.masking import certainly_in_range
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.inline import replace_reads
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets.rates import Machine, machine
from nautilus.targets.records import DEFAULT_TARGET

_GAIN = 0.8  # an order is taken if its predicted time is less than this share of that of the spec's order
_RATES = machine(DEFAULT_TARGET)


@dataclass(frozen=True, slots=True)
class OrderContractions(CertifyingPass[Program]):
    """Order every contraction.

    ``rates``: those of the default target for every target, so that a spec has one order and one error bound.
    ``spec``: the Spec, whose promises say which inputs are finite.
    """

    rates: Machine = _RATES
    spec: Promises | None = None

    name = "order-contractions"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with cheaper sums, and a certificate for each one that was rewritten."""
        certificates: list[Certificate] = []
        given, program = program, Dead().apply(program)  # a definition that nothing reads counts as no reader
        defs = find_defs(program)
        for name in reversed([*defs]):  # readers before what they read
            d = defs.get(name)
            if d is None:
                continue
            made = _rewritten(program, d, defs, self.rates, finite_inputs(self.spec)) or _paired(program, d)
            if made is not None:
                certificates.append(made[1])
                program = Dead().apply(made[0])
                defs = find_defs(program)
        return (program if certificates else given), tuple(reversed(certificates))


def fenced(program: Program, spec: Promises | None) -> tuple[Fenced, ...]:
    """The sums of ``program``, a result of the pass, that more promises of finite inputs would make faster.

    One input is named where its promise alone suffices, else all that the program has.
    """
    known, defs = finite_inputs(spec), find_defs(program)
    floats = [b.name for b in program.buffers if b.space is Space.INPUT and b.dtype.is_float and b.name not in known]

    def faster(d: Def, *names: str) -> bool:
        return _rewritten(program, d, defs, _RATES, known.union(names)) is not None

    out = []
    for d in defs.values():
        if faster(d, *floats) and not faster(d):
            one = next((name for name in floats if faster(d, name)), None)
            out.append(Fenced(d.name, (one,) if one is not None else tuple(floats), d.span))
    return tuple(out)


def _rewritten(
    program: Program, d: Def, defs: Mapping[str, Def], rates: Machine, finite: frozenset[str]
) -> tuple[Program, Certificate] | None:
    if d.op != "sum" or d.at is not None or d.buffer.dtype is not d.value.dtype:
        return None
    entered: dict[str, Def] = {}
    readers = _readers(defs)

    def enters(inner: Def) -> bool:
        ok = may_enter(inner, d) and readers[inner.name] <= {d.name, *entered}
        if ok:
            entered[inner.name] = inner
        return ok

    found = terms(d, defs, enters, finite)
    if found is None or not any(map(has_orders, found)):
        return None
    if any(ld.buffer in entered for t in found for o in t.operands for ld in loads(o.value)):
        return None  # a sum is read in other ways as well
    shapes = {b.name: b.shape for b in program.buffers}
    orders: list[Ordered] = []
    for t in found:
        order = ordered(t, d, Price.of(d.buffer.dtype, (*d.par, *t.red), shapes, rates))
        if order is None:
            return None
        orders.append(order)
    gone = frozenset(entered)
    before = sum(seconds(x, gone, shapes, rates) for x in (*entered.values(), d))
    # The sum may be part of the kernel of what it reads, which saves a launch.
    spared = rates.launch * bool(entered)
    if sum(o.seconds for o in orders) >= _GAIN * (before - spared):
        return None
    return _emitted(program, d, orders, _whole(d, entered))


def _paired(program: Program, d: Def) -> tuple[Program, Certificate] | None:
    """``program`` where ``d`` multiplies the two smallest sides of a matrix product of f32.

    None where it does so already, or is no such product.
    """
    parts = factors(d.value) if d.op == "sum" and d.value.dtype is DType.F32 else ()
    if not 2 < len(parts) <= MOST_FACTORS or any(strip_conversions(p).dtype is not DType.F32 for p in parts):
        return None
    assert isinstance(d.value, Op)
    pairs = list(two_sides(parts, [a.name for a in d.par], [a.name for a in d.red]))
    written = [factors(e) for e in d.value.args]
    if not pairs or any([factors(e) for e in p] in (written, written[::-1]) for p in pairs):
        return None
    extents = {a.name: nominal(a.extent) for a in d.axes}

    def computed(pair: tuple[Expr, Expr]) -> float:
        return sum(points(free_vars(e) & extents.keys(), extents) for e in pair if len(factors(e)) > 1)

    left, right = min(pairs, key=computed)
    value = Op("mul", (left, right), d.value.dtype, d.value.span)
    before, after = (Reduce("sum", d.red, d.guard, e, e.dtype, d.span) for e in (d.value, value))
    proof = "the same factors, multiplied in another order"
    made = Certificate("order-contractions", d.name, before, after, (), (), (), proof, d.span)
    return put_defs(program, d.name, (replace(d, value=value),)), made


def _readers(defs: Mapping[str, Def]) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {name: set() for name in defs}
    for x in defs.values():
        for ld in x.reads():
            if ld.buffer in found:
                found[ld.buffer].add(x.name)
    return found


def _whole(d: Def, entered: Mapping[str, Def]) -> Expr:
    """``d`` as one expression, with the sums inside that were entered."""
    taken = {a.name for a in d.axes}

    def rule(n: Expr) -> Expr | None:
        if not (isinstance(n, Load) and n.buffer in entered):
            return None
        own = with_own_axes(entered[n.buffer], taken)
        at: Mapping[str, Expr] = {a.name: e for a, e in zip(own.par, n.index, strict=True)}
        value = rewrite(substitute(own.value, at), rule)
        guard = None if own.guard is None else substitute(own.guard, at)
        return Reduce("sum", own.red, guard, value, value.dtype, own.span)

    value = rewrite(d.value, rule)
    return Reduce("sum", d.red, d.guard, value, value.dtype, d.span)


# -- the new definitions -------------------------------------------------------------------------------


def _emitted(program: Program, d: Def, orders: Sequence[Ordered], before: Expr) -> tuple[Program, Certificate] | None:
    """``program`` with the new sums; None where one before the last could be empty or read outside of a tensor."""
    emitter = _Emitter(program, d)
    first = orders[0]
    if len(orders) == 1 and first.tree.over and not first.scale and not first.absent:
        final = emitter.final(first)
        after = emitter.expression(first, first.tree)
    elif any(o.guard(o.tree) is not None and not o.tree.over for o in orders):
        return None
    else:
        final = replace(d, red=(), op=None, value=_total([emitter.term(o) for o in orders]), guard=None)
        after = _total([emitter.certified(o) for o in orders])
    if not emitter.sound:
        return None
    out = put_defs(program, d.name, (*emitter.made, final))
    if final.op is None and d.buffer.space is Space.TEMP:
        out = replace_reads(out, final)
    proof = "sums and products over the same terms, in another order"
    return out, Certificate("order-contractions", d.name, before, after, (), (), (), proof, d.span)


def _total(parts: Sequence[Expr]) -> Expr:
    total = parts[0]
    for e in parts[1:]:
        total = Op("add", (total, e), e.dtype)
    return total


@dataclass(slots=True)
class _Emitter:
    """Makes definitions of the sums of an order, all but the last one in ``made``; ``sound``: the invariants hold."""

    program: Program
    d: Def
    made: list[Def] = field(default_factory=list)
    sound: bool = True

    def final(self, o: Ordered) -> Def:
        """The last sum of ``o`` in place of the whole sum."""
        red, value, guard = self.parts(o, o.tree)
        return replace(self.d, red=red, value=value, guard=guard)

    def term(self, o: Ordered) -> Expr:
        """The value of the term ``o``, whose sums become definitions."""
        dtype = self.d.value.dtype
        total = self.read(o, o.tree) if o.tree.over else self.parts(o, o.tree)[1]
        count = [Operand(number(o.count, dtype))] * bool(o.absent)
        return product([Operand(total), *o.scale, *count], dtype)

    def read(self, o: Ordered, s: Sum) -> Expr:
        """A read of ``s``, which becomes a definition."""
        red, value, guard = self.parts(o, s)
        par = tuple(a for a in (*self.d.par, *o.term.red) if a.name in s.axes)
        name = fresh_name(self.program, f"{self.d.name}_part", [x.name for x in self.made])
        buffer = Buffer(name, self.d.buffer.dtype, tuple(a.extent for a in par), Space.TEMP, self.d.span)
        made = Def(name, buffer, par, red, "sum", value, guard, self.d.span)
        if s is not o.tree:
            self.sound = self.sound and self.whole(made, any(x.condition for x in o.term.operands))
        self.made.append(made)
        return Load(name, made.index, buffer.dtype, self.d.span)

    def parts(self, o: Ordered, s: Sum) -> tuple[tuple[Axis, ...], Expr, Expr | None]:
        """The axes of the sum ``s``, its element and its guard."""
        inner = [self.read(o, i) for i in s.items if isinstance(i, Sum)]
        red = tuple(a for a in o.term.red if a.name in s.over)
        return red, o.value(s, inner, self.d.value.dtype), o.guard(s)

    def whole(self, x: Def, conditional: bool) -> bool:
        """Whether ``x`` is of integers or never empty, and reads within the tensors where no other condition holds."""
        fixed = x.value.dtype.is_int or (x.guard is None and all(least(a) > 0 for a in x.red))
        if not fixed and nonempty(x) != TRUE:
            return False
        shapes = {b.name: b.shape for b in (*self.program.buffers, *(y.buffer for y in self.made))}
        scope = {a.name: a.extent for a in x.axes}
        given = () if x.guard is None else (x.guard,)
        return not conditional or certainly_in_range(x.value, shapes, scope, given)

    def expression(self, o: Ordered, s: Sum) -> Expr:
        """``s`` with its sums inside."""
        dtype = self.d.value.dtype
        value = o.value(s, [self.expression(o, i) for i in s.items if isinstance(i, Sum)], dtype)
        red = tuple(a for a in o.term.red if a.name in s.over)
        return Reduce("sum", red, o.guard(s), value, dtype, self.d.span) if red else value

    def certified(self, o: Ordered) -> Expr:
        """The value of the term ``o`` as one expression."""
        dtype = self.d.value.dtype
        count = [Operand(Reduce("sum", o.absent, None, number(1, dtype), dtype))] * bool(o.absent)
        return product([Operand(self.expression(o, o.tree)), *o.scale, *count], dtype)
