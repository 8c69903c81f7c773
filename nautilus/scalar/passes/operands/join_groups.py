"""``join-groups``: a sum of scaled sums of groups becomes one sum.

``sum_g(s_g * sum_k(a_igk * b_jgk))`` becomes ``sum_gk(s_g * a_igk * b_jgk)`` where the inner sum is a matrix product
for every point of the outer one: that of scales for groups of terms
(:mod:`nautilus.scalar.analysis.contractions.scales`).  Matrix units then compute the whole sum, and not a product for
each group.

* Only the outer sum reads the inner one. Terms that the condition of either one leaves out are not in the joint sum.
* The joint sum is a matrix product again.  With a factor that has an axis of the rows and one of the columns, it would
  be none.
* A factor that may be infinite enters the sum only where the sum of a group is multiplied by it as a whole: terms of a
  group may have both signs, and infinite ones would cancel.
* A product of 8-bit integers becomes one of f32, if the sum of a group stays within i32: over the reals, both are the
  same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite, prod

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Expr, Load, Op, Reduce, Var, children, loads, substitute
from nautilus.core.expr.products import BYTE_TERMS, factors, matrix_product, product_of
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import BYTES, DType
from nautilus.scalar.analysis.contractions.dense import keeps_products
from nautilus.scalar.analysis.contractions.promises import Fenced, Promises, finite_inputs
from nautilus.scalar.analysis.contractions.scales import scaled_product
from nautilus.scalar.analysis.definitions import Def, rename_axes, size
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.operands.join_digits import with_joint_digits
from nautilus.scalar.rewriting import find_defs, kernel_of
from nautilus.targets.limits import SHORT_DEPTH


@dataclass(frozen=True, slots=True)
class JoinGroups(CertifyingPass[Program]):
    """Join every sum with the sums of groups that it scales and adds.

    ``spec``: the Spec, whose promises say which inputs are finite.
    """

    spec: Promises | None = None

    name = "join-groups"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with joint sums, and a certificate for each one."""
        certificates: list[Certificate] = []
        for name in [k.name for k in program.kernels]:
            defs = find_defs(program)
            found = None if name not in defs else _joined(defs[name], defs, finite_inputs(self.spec))
            if found is not None:
                made, certificate = found
                certificates.append(certificate)
                kernels = tuple(kernel_of(made) if k.name == name else k for k in program.kernels)
                program = Dead().apply(replace(program, kernels=kernels))
        return program, tuple(certificates)


def joined(program: Program, spec: Promises | None) -> frozenset[str]:
    """The sums of ``program`` that the pass joins with others."""
    known, defs = finite_inputs(spec), find_defs(program)
    return frozenset(d.name for d in defs.values() if _joined(d, defs, known) is not None)


def fenced(program: Program, spec: Promises | None) -> tuple[Fenced, ...]:
    """The sums of ``program`` that the pass would join with others under promises of finite inputs."""
    known, defs, done = finite_inputs(spec), find_defs(program), joined(program, spec)
    out = []
    for d in (d for d in defs.values() if d.name not in done):
        inputs = {ld.buffer for ld in d.reads() if ld.dtype.is_float and ld.buffer not in defs} - known
        if _joined(d, defs, known.union(inputs)) is not None:
            out.append(Fenced(d.name, tuple(sorted(inputs)), d.span))
    return tuple(out)


def _joined(d: Def, defs: Mapping[str, Def], finite: frozenset[str]) -> tuple[Def, Certificate] | None:
    """``d`` as one sum, with a certificate; None for a definition of another form. ``finite``: inputs."""
    if d.op != "sum" or d.value.dtype is not DType.F32:
        return None
    parts = factors(d.value)
    groups = [p for p in parts if (ld := _load(p)) is not None and _is_group(ld, d, defs)]
    scales = [p for p in parts if p not in groups]
    load = _load(groups[0]) if len(groups) == 1 and scales else None
    if load is None:
        return None
    inner = _renamed(defs[load.buffer], {a.name for a in d.axes})
    terms = _terms(inner)
    if terms is None:
        return None
    at: Mapping[str, Expr] = {a.name: e for a, e in zip(inner.par, load.index, strict=True)}
    inside = None if inner.guard is None else substitute(inner.guard, at)
    more = [c for c in conjuncts(inside) if c not in conjuncts(d.guard)]
    value, guard = product_of([*scales, substitute(terms, at)]), conjunction((d.guard, *more))
    made = replace(d, red=(*d.red, *inner.red), value=value, guard=guard)
    kept = keeps_products((inner,), (made,)) or keeps_products((inner,), (with_joint_digits(made),))
    if not (kept and _keeps_infinities(made, inner, scales, defs, finite)):
        return None
    own = substitute(inner.value, at)
    group: Expr = Reduce("sum", inner.red, inside, own, own.dtype, inner.span)
    whole = groups[0]
    group = replace(whole, args=(group,)) if isinstance(whole, Op) else group
    before = Reduce("sum", d.red, d.guard, product_of([*scales, group]), DType.F32, d.span)
    after = Reduce("sum", made.red, made.guard, made.value, DType.F32, d.span)
    return made, Certificate("join-groups", d.name, before, after, (), (), (), _PROOF, d.span)


_PROOF = "a factor of a sum is one of each term, and a sum of sums is the sum of all terms, in any order"


def _load(e: Expr) -> Load | None:
    """The load that ``e`` is, also under a conversion to f32."""
    found = e.args[0] if isinstance(e, Op) and e.op == "cast" and e.dtype is DType.F32 else e
    return found if isinstance(found, Load) else None


def _is_group(ld: Load, d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``ld`` is a sum for each point of ``d`` that only ``d`` reads."""
    inner, names = defs.get(ld.buffer), sorted(a.name for a in d.axes)
    if inner is None or inner.op != "sum" or inner.at is not None or inner.buffer.space is not Space.TEMP:
        return False
    if len(ld.index) != len(names) or sorted(e.name for e in ld.index if isinstance(e, Var)) != names:
        return False
    return [x for other in defs.values() for x in other.reads() if x.buffer == inner.name] == [ld]


def _renamed(inner: Def, taken: set[str]) -> Def:
    """``inner`` with summed axes whose names are new."""
    used = taken | {a.name for a in inner.axes}
    names: dict[str, str] = {}
    for a in inner.red:
        if a.name in taken:
            names[a.name] = unused(a.name, used)
            used.add(names[a.name])
    return rename_axes(inner, names)


def _terms(inner: Def) -> Expr | None:
    """The element of a matrix product in f32; None for another sum, and for one of integers that may wrap."""
    value, lengths = inner.value, [size(a) for a in inner.red]
    if matrix_product(value, [a.name for a in inner.par]) is None or None in lengths:
        return None
    if value.dtype is DType.F32:
        return value if inner.buffer.dtype is DType.F32 else None
    parts = factors(value)
    bytes_only = all(isinstance(x, Op) and x.op == "cast" and children(x)[0].dtype in BYTES for x in parts)
    if not bytes_only or len(parts) != 2 or value.dtype is not DType.I32 or prod(n or 1 for n in lengths) > BYTE_TERMS:
        return None
    return product_of([Op("cast", children(x), DType.F32, x.span) for x in parts])


def _keeps_infinities(
    made: Def, inner: Def, scales: Sequence[Expr], defs: Mapping[str, Def], finite: frozenset[str]
) -> bool:
    """Whether infinite ``scales`` give in the joint sum what they give outside of the inner one."""
    found = scaled_product(with_joint_digits(made))
    if found is not None and found.group == prod(size(a) or 0 for a in inner.red) == SHORT_DEPTH:
        return True
    scale = product_of(scales)
    if all(map(isfinite, Ranges(defs, made.axes, infinite=True).of(scale))):  # such as a probability
        return True
    read = [ld for e in scales for ld in loads(e)]
    if not all(ld.buffer in finite or not ld.dtype.is_float or ld.dtype is DType.F8E4M3 for ld in read):
        return False
    low, high = Ranges(defs, made.axes).of(scale)
    return isfinite(low) and isfinite(high)
