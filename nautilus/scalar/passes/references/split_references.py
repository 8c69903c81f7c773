"""``split-references``: a sum relative to an extreme of its own elements and of others is relative to its own first.

A softmax over two sets of elements, such as a shared prefix and what follows it, has one reference for both::

    m = max(max_j(x_j), max_k(y_k))
    s = sum_j(exp(x_j - m))

so that the loop over ``j`` cannot begin before both extremes are known, and ``x`` is computed twice.  With the change
of a reference by a *repair* (:mod:`nautilus.scalar.analysis.repair`), ``t(a, old, new) = a * exp(old - new)``, it can::

    r = max_j(x_j)
    s = t(sum_j(exp(x_j - r)), r, m)

and one loop computes ``r`` and the sum.  ``m`` is not less than ``r``, so that no repair overflows.  While ``r`` is
infinite, as that of elements which are all -inf, each term is 0 relative to a finite ``m``, and so is the result.  It
is ``m - m`` where ``m`` is infinite and the sum has a term.

The pass leaves a sum whose other elements have a loop of the same length, because one loop may then compute both, and
one whose reference is beside numbers without a reduction, such as a sink: they are known before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, identity, loads, replaced, substitute, walk
from nautilus.core.index.simplify import TRUE
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.domains import nonempty
from nautilus.scalar.analysis.repair.certificate import certify
from nautilus.scalar.analysis.repair.records import Refusal, Repair, Running
from nautilus.scalar.analysis.repair.terms import derive
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.factor import inner_sum, with_inner_sum
from nautilus.scalar.rewriting import find_defs


@dataclass(frozen=True, slots=True)
class SplitReferences(CertifyingPass[Program]):
    """The pass ``split-references``, which has no options."""

    name = "split-references"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with such sums relative to their own extremes, and two certificates for each repair."""
        certificates: list[Certificate] = []
        defs = find_defs(program)
        for d in defs.values():
            found = _relative(d, defs)
            if found is None:
                continue
            raw = inner_sum(program, d, replaced(d.value, found.top, found.own))
            program = with_inner_sum(program, d, raw, found.repaired(Load(raw.name, d.index, raw.buffer.dtype)), ())
            certificates += certify(d.name, found.repair, "split-k-update")
        return program, tuple(certificates)


@dataclass(frozen=True, slots=True)
class _Relative:
    """A sum relative to ``top``, which is the extreme by ``op`` of ``own``, that of its elements, and of other numbers.

    ``where``: the condition that the sum has a term.
    """

    top: Expr
    own: Load
    op: str
    repair: Repair
    where: Expr

    def repaired(self, total: Expr) -> Expr:
        """``total``, which is relative to the own extreme, relative to both."""
        env = {**dict(self.repair.symbols), "a": total, "old0": self.own, "new0": self.top}
        dtype, zero = total.dtype, Const(0.0, total.dtype)
        value = Op("select", (self._infinite(self.own), zero, substitute(self.repair.t, env)), dtype)
        undefined = self._infinite(self.top)
        if self.where != TRUE:
            undefined = calc("and", undefined, self.where)
        return Op("select", (undefined, Op("sub", (self.top, self.top), dtype), value), dtype)

    def _infinite(self, extreme: Expr) -> Expr:
        return Op("eq", (extreme, identity(self.op, extreme.dtype)), DType.BOOL)


def _relative(d: Def, defs: Mapping[str, Def]) -> _Relative | None:
    """The reference of ``d``; None where it has none of this form."""
    if d.op != "sum" or d.at is not None or not d.value.dtype.is_float:
        return None
    for top in (e for e in walk(d.value) if isinstance(e, Op) and e.op in ("max", "min")):
        sides = tuple(_sides(top, top.op))
        owners = [x for x in sides if isinstance(x, Load) and x.buffer in defs and _is_of(defs[x.buffer], x, d, top.op)]
        if len(owners) != 1 or top.dtype is not d.value.dtype or free_vars(top) & {a.name for a in d.red}:
            continue
        (own,) = owners
        if not _waits(d, [x for x in sides if x is not own], defs):
            continue
        element = _as_in(defs[own.buffer], own, d)[0]
        value = replaced(d.value, top, own)
        found = derive(value, (), "sum", (Running(own, top.op, element, ()),), frozenset(a.name for a in d.red))
        if isinstance(found, Refusal) or found.mode != "scale" or found.finite[0]:
            continue
        where = nonempty(d)
        if where is not None and not any(own in loads(e) for _, e in found.symbols):
            return _Relative(top, own, top.op, found, where)
    return None


def _sides(e: Expr, op: str) -> Iterator[Expr]:
    """The numbers of which ``e`` is the extreme by ``op``."""
    for a in e.args if isinstance(e, Op) and e.op == op else ():
        yield from _sides(a, op) if isinstance(a, Op) and a.op == op else (a,)


def _as_in(of: Def, own: Load, d: Def) -> tuple[Expr, Expr | None]:
    """Element and guard of the reduction ``of``, whose result ``d`` reads as ``own``, over the axes of ``d``."""
    env = dict(zip((a.name for a in of.par), own.index, strict=True))
    env |= {a.name: Var(b.name) for a, b in zip(of.red, d.red, strict=True)}
    return substitute(of.value, env), None if of.guard is None else substitute(of.guard, env)


def _is_of(of: Def, own: Load, d: Def, op: str) -> bool:
    """Whether ``of`` is the extreme of elements along the axes over which ``d`` sums, under the same condition."""
    if of.op != op or of.at is not None or [a.extent for a in of.red] != [a.extent for a in d.red]:
        return False
    return _as_in(of, own, d)[1] == d.guard


def _waits(d: Def, others: list[Expr], defs: Mapping[str, Def]) -> bool:
    """Whether ``others`` have a reduction that no loop over the axes of ``d`` computes beside ``d``."""
    read = [defs[ld.buffer] for x in others for ld in loads(x) if ld.buffer in defs]
    extents = [[a.extent for a in r.red] for r in read if r.op is not None]
    return bool(extents) and [a.extent for a in d.red] not in extents
