"""``join-sums``: a reduction of reductions becomes one reduction over the axes of both.

``sum_k(sum_l(x_kl))`` is ``sum_kl(x_kl)``, and so with ``max``, ``min``, ``prod``, ``any`` and ``all``.  The program
then has the form of a spec with one reduction, whatever the nesting: a product of matrices keeps its two
factors, and no partial result is stored.

The inner reduction is a temp of the accumulator's type, so nothing is rounded between the two, and nothing else reads
it: another reader needs the partial results.  The conditions of both hold for a term of the whole.  Reductions may be
associated again (``grammar/README.md``, "Numbers").

A reduction whose terms have keys (:mod:`nautilus.scalar.analysis.ranges.keys`), such as a histogram, stays apart where
its keyed axes would be reduced too, as in running totals of it: it visits each term once, and the two together would
visit all terms for each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Expr, Load, Reduce, free_vars, substitute
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, rename_axes
from nautilus.scalar.analysis.ranges.keys import keyed
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import find_defs, kernel_of


@dataclass(frozen=True, slots=True)
class JoinSums(CertifyingPass[Program]):
    """Join every reduction with the one that its element is."""

    name = "join-sums"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with joint reductions, and a certificate for each pair that was joined."""
        certificates: list[Certificate] = []
        defs = find_defs(program)
        for name in [*defs]:
            d = defs.get(name)
            inner = None if d is None else inner_reduction(d, defs)
            if d is not None and inner is not None and not _reduces_keys(program, d, inner):
                made, certificate = _joined(d, inner)
                certificates.append(certificate)
                kernels = tuple(kernel_of(made) if k.name == name else k for k in program.kernels)
                program = Dead().apply(replace(program, kernels=kernels))
                defs = find_defs(program)
        return program, tuple(certificates)


def inner_reduction(d: Def, defs: Mapping[str, Def]) -> Def | None:
    """The reduction that every element of the reduction ``d`` is; None unless the two may be joined."""
    if not (d.is_reduction and isinstance(d.value, Load) and d.value.buffer in defs):
        return None
    inner = defs[d.value.buffer]
    if inner.op != d.op or inner.buffer.space is not Space.TEMP or inner.buffer.dtype is not d.buffer.dtype:
        return None
    if inner.at is not None or inner.scatter is not None:
        return None  # the element that is read is not that of the same positions
    reads = [ld for x in defs.values() for ld in x.reads() if ld.buffer == inner.name]
    return inner if reads == [d.value] else None


def _reduces_keys(program: Program, d: Def, inner: Def) -> bool:
    """Whether the terms of ``inner`` have keys along an axis that ``d`` reduces."""
    assert isinstance(d.value, Load)
    k = keyed(inner, {b.name: b.shape for b in program.buffers})
    own, red = {a.name for a in k.keys} if k is not None else set(), {a.name for a in d.red}
    return any(a.name in own and free_vars(e) & red for a, e in zip(inner.par, d.value.index, strict=True))


def _joined(d: Def, inner: Def) -> tuple[Def, Certificate]:
    assert isinstance(d.value, Load) and d.op is not None
    taken = {a.name for a in (*d.axes, *inner.axes)}
    names: dict[str, str] = {}
    for a in inner.red:
        if d.axis(a.name) is not None:
            names[a.name] = unused(a.name, taken)
            taken.add(names[a.name])
    own = rename_axes(inner, names)
    at: Mapping[str, Expr] = {a.name: e for a, e in zip(own.par, d.value.index, strict=True)}
    value = substitute(own.value, at)
    inside = None if own.guard is None else substitute(own.guard, at)
    guard = conjunction((d.guard, inside))
    part = Reduce(d.op, own.red, inside, value, value.dtype, inner.span)
    before = Reduce(d.op, d.red, d.guard, part, value.dtype, d.span)
    after = Reduce(d.op, (*d.red, *own.red), guard, value, value.dtype, d.span)
    proof = f"a {d.op} over parts of a domain is the {d.op} over all of it, in any order"
    certificate = Certificate("join-sums", d.name, before, after, (), (), (), proof, d.span)
    return replace(d, red=(*d.red, *own.red), value=value, guard=guard), certificate
