"""``restrict-results``: of an intermediate tensor only the elements that are read are computed.

A model that needs the last token alone, a trace and the diagonal of a Gram matrix read a small part of a product::

    H[t, o] = sum_i(X[t, i] * W[o, i])      Y[o] = H[T - 1, o]
    G[i, j] = sum_m(A[m, i] * A[m, j])      D[i] = G[i, i]

Where all reads have the same constant along a dimension, the tensor has that element alone there; where they have the
same variable along two dimensions, it has one of them.  Where they lie in a range that is shorter than the dimension by
at least one part in :data:`LEAST`, as those of ``H[T - 1 - k, o]`` for few ``k`` or of two constants, the tensor has
that range::

    H_read[o] = sum_i(X[T - 1, i] * W[o, i])        Y[o] = H_read[o]
    G_read[i] = sum_m(A[m, i] * A[m, i])            D[i] = G_read[i]

The definitions are visited from the last one to the first, so that what a part is computed from is restricted too.
Tensors that a recurrence makes or reads are no part of the programs that passes see (``passes/recurrences.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Reduce, Var, rewrite, substitute
from nautilus.core.index.linear import linear
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def, rename_axes, size
from nautilus.scalar.analysis.domains import prefix_of
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs

LEAST = 4
FEW = 8  # running results that are sums of their own: of a range of more, which begins late, there is no scan


@dataclass(frozen=True, slots=True)
class RestrictResults(CertifyingPass[Program]):
    """Compute only the elements of intermediate tensors that are read."""

    name = "restrict-results"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with such tensors, and a certificate for each one."""
        certificates: list[Certificate] = []
        given, program = program, Dead().apply(program)  # what was inlined reads all elements still
        for name in reversed(find_defs(program)):
            defs = find_defs(program)
            d = defs[name]
            if d.buffer.space is not Space.TEMP or d.at is not None or d.scatter is not None:
                continue
            if d.buffer.support is not None or d.buffer.strides is not None or d.buffer.view_of is not None:
                continue
            readers = [r for r in defs.values() if any(ld.buffer == name for ld in r.reads())]
            part = _part(d, [(r, ld) for r in readers for ld in r.reads() if ld.buffer == name])
            if part:
                program, certificate = _restricted(program, d, part, readers)
                certificates.append(certificate)
        return (Dead().apply(program), tuple(certificates)) if certificates else (given, ())


#: for each axis with fewer elements: its place along the axis, as an expression of the axes that are left, and the axis
Part = Mapping[str, tuple[Expr, Axis | None]]


def _part(d: Def, reads: Sequence[tuple[Def, Load]]) -> Part:
    """The part of ``d`` that ``reads`` have; empty where it is all of it, or unknown."""
    out: dict[str, tuple[Expr, Axis | None]] = {}
    if not reads:
        return out
    bound = prefix_of(d)
    running = None if bound is None else bound.into
    for k, a in enumerate(d.par):
        places = {ld.index[k] for _, ld in reads}
        n = size(a)
        same = [j for j in range(k) if d.par[j].name not in out and _same(reads, d, j, k)]
        if n is None:
            continue
        if len(places) == 1 and isinstance(place := next(iter(places)), Const):
            out[a.name] = (place, None)
        elif same:
            out[a.name] = (Var(d.par[same[0]].name), None)
        elif (found := _slice(reads, k, n)) is not None and (a.name != running or found[1] <= FEW):
            first, count = found
            out[a.name] = (calc("add", Var(a.name), first) if first else Var(a.name), replace(a, extent=count))
    return out


def _same(reads: Sequence[tuple[Def, Load]], d: Def, j: int, k: int) -> bool:
    """Whether all ``reads`` of ``d`` have one variable along both dimensions, of which ``k`` has all positions."""
    alike = all(isinstance(ld.index[j], Var) and ld.index[j] == ld.index[k] for _, ld in reads)
    first, second = size(d.par[j]), size(d.par[k])
    return alike and first is not None and second is not None and first <= second


def _slice(reads: Sequence[tuple[Def, Load]], k: int, n: int) -> tuple[int, int] | None:
    """The first of ``n`` positions along dimension ``k`` that ``reads`` have, and their number; None for most.

    A condition excludes reads outside of the tensor.
    """
    low, high = n, -1
    for r, ld in reads:
        form = linear(ld.index[k])
        first = last = form.const
        for atom, factor in form.terms.items():
            axis = r.axis(atom.name) if isinstance(atom, Var) else None
            most = None if axis is None else size(axis)
            if most is None:
                return None
            ends = (0, factor * (most - 1))
            first, last = first + min(ends), last + max(ends)
        low, high = min(low, max(first, 0)), max(high, min(last, n - 1))
    count = high - low + 1
    return (low, count) if count > 0 and count * LEAST <= n * (LEAST - 1) else None


def _restricted(program: Program, d: Def, part: Part, readers: Sequence[Def]) -> tuple[Program, Certificate]:
    """``program`` with the ``part`` of ``d`` instead of it, and the certificate."""
    places = {name: place for name, (place, _) in part.items()}
    kept = [k for k, a in enumerate(d.par) if a.name not in part or part[a.name][1] is not None]
    axes = tuple(part[a.name][1] or a if a.name in part else a for a in (d.par[k] for k in kept))
    name = fresh_name(program, f"{d.name}_read")
    buffer = replace(d.buffer, name=name, shape=tuple(a.extent for a in axes))
    value, guard = substitute(d.value, places), None if d.guard is None else substitute(d.guard, places)
    made = replace(d, name=name, buffer=buffer, par=axes, value=value, guard=guard)
    firsts = {k: linear(places[d.par[k].name]).const for k in kept if d.par[k].name in places}

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer != d.name:
            return None
        inner = tuple(rewrite(x, rule) for x in e.index)
        return replace(e, buffer=name, index=tuple(moved(inner[k], firsts.get(k, 0)) for k in kept))

    def moved(e: Expr, by: int) -> Expr:
        return calc("sub", e, by) if by else e

    def changed(e: Expr | None) -> Expr | None:
        return None if e is None else rewrite(e, rule)

    for r in readers:
        at = None if r.at is None else tuple(rewrite(x, rule) for x in r.at)
        new = replace(r, value=rewrite(r.value, rule), guard=changed(r.guard), at=at)
        program = put_defs(program, r.name, (new,))
    program = put_defs(program, d.name, (made,))
    read = next(ld for r in readers for ld in r.reads() if ld.buffer == d.name)
    after = rewrite(read, rule)
    assert isinstance(after, Load)
    proof = "an element has the same value in a tensor of fewer elements"
    sides = (_element(d, read), _element(made, after))
    return program, Certificate("restrict-results", d.name, *sides, (), (), (), proof, d.span)


def _element(d: Def, read: Load) -> Expr:
    """The element of ``d`` that ``read`` has, by its definition."""
    names = {a.name: f"{a.name}'" for a in d.red}
    own = rename_axes(d, names)
    env: dict[str, Expr] = {a.name: e for a, e in zip(own.par, read.index, strict=True)}
    value, guard = substitute(own.value, env), None if own.guard is None else substitute(own.guard, env)
    return value if d.op is None else Reduce(d.op, own.red, guard, value, d.value.dtype, d.span)
