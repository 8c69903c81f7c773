"""``rescale-scans``: running sums relative to a running extreme are found in chunks.

The element of a running sum of exponentials depends on the result, because their reference is the extreme so far::

    m[t] = max_u x[u]           where u <= t
    s[t] = sum_u exp(x[u] - m[t])   where u <= t

so that it is no scan, and its work is quadratic.  A change of the reference by a *repair*
(:mod:`nautilus.scalar.analysis.repair`), ``t(a, old, new) = a * exp(old - new)``, gives the sum in chunks of ``C``
elements, with the extreme at the end of each chunk, ``r[c] = m[c * C + C - 1]``::

    T[c] = sum_u f(c * C + u, r[c])                      u < C
    P[c] = sum_d t(T[d], r[d], r[c - 1])                 d < c
    L[t] = sum_u f(t // C * C + u, m[t])                 u <= t % C
    s[t] = t(P[t // C], r[t // C - 1], m[t]) + L[t]

Under ``t <= u`` the same holds from the end of the axis on: ``r[c] = m[c * C]``, and later chunks take the place of
earlier ones.

Extremes only grow, so that no repair overflows.  While an extreme is infinite, as that of elements which are all -inf,
the reference is the finite one that the repair asks for, and the result is ``m - m``, as in ``mark-undefined``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import (
    Axis,
    Expr,
    Load,
    Op,
    Var,
    free_vars,
    identity,
    loads,
    replaced,
    rewrite,
    substitute,
)
from nautilus.core.index.divisors import divisor
from nautilus.core.index.sizes import Extent, blocks, extent_expr, large
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, rename_axes
from nautilus.scalar.analysis.domains import running
from nautilus.scalar.analysis.repair.certificate import certify
from nautilus.scalar.analysis.repair.records import Refusal, Repair, Running
from nautilus.scalar.analysis.repair.terms import derive, reference_of
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs

CHUNK = 32  # elements; the work for each element is that many terms, and as many as there are chunks for each chunk
SHORTEST, LONGEST = 256, 1 << 16  # elements of an axis that is cut


@dataclass(frozen=True, slots=True)
class RescaleScans(CertifyingPass[Program]):
    """Cut running sums relative to running extremes; ``length``: the elements of a chunk, of any axis (for tests)."""

    length: int | None = None

    name = "rescale-scans"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with such sums in chunks, and two certificates for each repair."""
        certificates: list[Certificate] = []
        defs = find_defs(program)
        for d in defs.values():
            scan = _scan(d, defs)
            if scan is None or not (self.length or _is_cut(scan.u.extent)):
                continue
            program = put_defs(program, d.name, _chunked(program, d, scan, self.length or CHUNK))
            certificates += certify(d.name, scan.repair, "split-k-update")
        return program, tuple(certificates)


def _is_cut(extent: Extent) -> bool:
    """Whether an axis has chunks.  Of a size that is known only at launch, the sum as it is may take any time."""
    return large(extent) >= SHORTEST and (not isinstance(extent, int) or extent <= LONGEST)


@dataclass(frozen=True, slots=True)
class _Scan:
    """A sum over ``u <= t`` of elements relative to the running extreme ``of``, which it reads as ``load``.

    ``reverse``: over ``t <= u``.
    """

    u: Axis
    t: Axis
    load: Load
    of: Def
    repair: Repair
    reverse: bool = False

    def ordered(self, *pair: Expr) -> tuple[Expr, ...]:
        """``pair``, where the scan passes the first one first, with the smaller one first."""
        return pair[::-1] if self.reverse else pair

    def reference(self, extreme: Expr) -> Expr:
        """``extreme``, or the value that takes its place while it is the identity."""
        (value,) = self.repair.references
        return extreme if value is None or self.of.op is None else reference_of(extreme, self.of.op, value)

    def repaired(self, total: Expr, old: Expr, new: Expr) -> Expr:
        """``total``, which is relative to the extreme ``old``, relative to ``new``."""
        start = old if self.repair.raw_old[0] else self.reference(old)
        env = {**dict(self.repair.symbols), "a": total, "old0": start, "new0": self.reference(new)}
        return substitute(self.repair.t, env)


def _scan(d: Def, defs: Mapping[str, Def]) -> _Scan | None:
    """The scan relative to an extreme that ``d`` is; None if it is none."""
    if d.op != "sum" or d.at is not None or len(d.red) != 1:
        return None
    (u,) = d.red
    own = tuple(Var(a.name) for a in d.par)
    t, reverse = running(d.guard, u, d.par) or (None, False)
    read = {ld for ld in loads(d.value) if ld.buffer in defs and ld.index == own}
    if t is None or len(read) != 1:
        return None
    (load,) = read
    of = defs[load.buffer]
    if of.op not in ("max", "min") or len(of.red) != 1 or of.at is not None:
        return None
    names = dict(zip((a.name for a in of.axes), (a.name for a in (*d.par, u)), strict=False))
    mine = rename_axes(of, names) if len(of.par) == len(d.par) else of
    rest = replaced(d.value, load, identity("sum", load.dtype))
    if mine.guard != d.guard or mine.axes != (*d.par, u) or t.name in free_vars(rest) | free_vars(mine.value):
        return None
    found = derive(d.value, (), "sum", (Running(load, of.op, mine.value, ()),), frozenset({u.name}))
    if isinstance(found, Refusal) or found.mode != "scale" or found.finite[0] or dict(found.symbols).keys() & {"c0"}:
        return None
    return _Scan(u, t, load, of, found, reverse)


def _chunked(program: Program, d: Def, scan: _Scan, chunk: int) -> tuple[Def, ...]:
    taken = {a.name for a in d.axes}
    u, t, n = scan.u, scan.t, scan.u.extent
    even = divisor(extent_expr(n)) % chunk == 0
    number = Axis(fresh_name(program, f"{u.name}_chunk", taken), blocks(n, chunk), u.span)
    before = Axis(fresh_name(program, f"{u.name}_before", {*taken, number.name}), number.extent, u.span)

    def extreme(at: Expr) -> Expr:
        """The extreme over chunk ``at`` and all before it, or over what there is where there is no such chunk."""
        last = calc("add", calc("mul", at, chunk), 0 if scan.reverse else chunk - 1)
        place = calc("max", calc("min", last, calc("sub", n, 1)), 0)
        return replace(scan.load, index=tuple(place if a is t else Var(a.name) for a in d.par))

    def part(suffix: str, axes: tuple[Axis, ...], red: Axis, value: Expr, *conditions: Expr) -> Def:
        name = fresh_name(program, f"{d.name}_{suffix}")
        buffer = Buffer(name, d.buffer.dtype, tuple(a.extent for a in axes), Space.TEMP, d.span)
        return Def(name, buffer, axes, (red,), "sum", value, conjunction(conditions), d.span)

    def elements(at: Expr, relative: Expr) -> tuple[Expr, tuple[Expr, ...]]:
        """The elements of chunk ``at`` relative to an extreme, and the condition on their places."""
        place = calc("add", calc("mul", at, chunk), Var(u.name))
        f = rewrite(d.value, lambda e: Var("%extreme", e.dtype) if e == scan.load else None)
        f = substitute(substitute(f, {u.name: place}), {"%extreme": scan.reference(relative)})
        return f, () if even else (calc("lt", place, n),)

    def read(of: Def, at: Expr) -> Load:
        return Load(of.name, tuple(at if a is t else Var(a.name) for a in d.par), of.buffer.dtype, d.span)

    short = replace(u, extent=chunk)
    chunks = tuple(number if a is t else a for a in d.par)
    own, mine = calc("floordiv", Var(t.name), chunk), Var(number.name)
    value, inside = elements(mine, extreme(mine))
    totals = part("chunk", chunks, short, value, *inside)
    step = "add" if scan.reverse else "sub"
    old, new = extreme(Var(before.name)), extreme(calc(step, mine, 1))
    joined = scan.repaired(read(totals, Var(before.name)), old, new)
    carry = part("carry", chunks, before, joined, calc("lt", *scan.ordered(Var(before.name), mine)))
    value, inside = elements(own, scan.load)
    bound = calc("le", *scan.ordered(Var(u.name), calc("mod", Var(t.name), chunk)))
    local = part("local", d.par, short, value, *inside, bound)
    front = scan.repaired(read(carry, own), extreme(calc(step, own, 1)), scan.load)
    total: Expr = Op("add", (front, read(local, Var(t.name))), d.value.dtype)
    if scan.repair.references[0] is not None and scan.of.op is not None:
        infinite = Op("eq", (scan.load, identity(scan.of.op, scan.load.dtype)), DType.BOOL)
        undefined = Op("sub", (scan.load, scan.load), total.dtype)
        total = calc("select", infinite, undefined, total)
    return totals, carry, local, replace(d, red=(), op=None, value=total, guard=None)
