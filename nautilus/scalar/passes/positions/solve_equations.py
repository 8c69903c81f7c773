"""``solve-equations``: a reduction under an equation between indices visits the terms that solve it.

The gradient of a convolution with a step, and a product of polynomials, are often written with one::

    D[y] = sum[i, r | y + 1 - r == 2 * i](G[i] * F[r])
    P[k] = sum[i, j | i + j == k](A[i] * B[j])

Most pairs of indices give no term.  The equation is solved for the reduced axis that leaves the fewest of them::

    D[y] = sum[r | (y + 1 - r) % 2 == 0 and 0 <= (y + 1 - r) // 2 < H](G[(y + 1 - r) // 2] * F[r])
    P[k] = sum[i | 0 <= k - i < N](A[i] * B[k - i])

A congruence that is left is one for ``split-residues``.  Without another reduced axis the only term is the result,
where there is one.  The equation is linear in axes alone.

An element of another reduction that the equation would move along an axis of the result stays as it is, as the scores
``S[i, j]`` of which ``j == i`` chooses those on the diagonal: the loop over all of them may be shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, within
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Axis, Expr, Op, Reduce, Var, free_vars, identity, loads, substitute
from nautilus.core.index.linear import Linear, build, linear
from nautilus.core.index.simplify import TRUE, simplify
from nautilus.core.index.sizes import nominal
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import axis_assumptions, find_defs, put_defs


@dataclass(frozen=True, slots=True)
class SolveEquations(CertifyingPass[Program]):
    """Solve every equation between indices in the condition of a reduction (module docstring)."""

    name = "solve-equations"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with fewer terms, and a certificate for each equation; the same object without one."""
        defs, made, certificates = find_defs(program), program, list[Certificate]()
        for name, d in defs.items():
            found = d
            while (solved := _solved(found, defs)) is not None:
                found, certificate = solved
                certificates.append(certificate)
            if found is not d:
                made = put_defs(made, name, (found,))
        return (program if made is program else Simplify().apply(made)), tuple(certificates)


def _solved(d: Def, defs: Mapping[str, Def]) -> tuple[Def, Certificate] | None:
    """``d`` without one of its equations and without the axis that this gives; None where it has none."""
    if d.op is None or d.at is not None or d.scatter is not None:
        return None
    for c in conjuncts(d.guard):
        form = _equation(c, d)
        axes = [] if form is None else [a for a in d.red if form.coeff(a.name) and _is_free(d, a, form, defs)]
        if form is not None and axes:
            solution = max(axes, key=lambda a: nominal(a.extent) * abs(form.coeff(a.name)))
            return _without(d, c, solution, form)
    return None


def _equation(c: Expr, d: Def) -> Linear | None:
    """The combination of axes of ``d`` that the condition ``c`` says is 0; None for another condition."""
    match c:
        case Op(op="eq", args=(a, b)) if a.dtype is DType.I32 and b.dtype is DType.I32:
            form = linear(a) - linear(b)
            names = {x.name for x in d.axes}
            return form if all(isinstance(v, Var) and v.name in names for v in form.terms) else None
    return None


def _is_free(d: Def, axis: Axis, form: Linear, defs: Mapping[str, Def]) -> bool:
    """Whether what ``d`` reads at ``axis`` may be read at its solution (module docstring)."""
    others = {a.name for a in d.par if form.coeff(a.name)}
    shared = [ld for ld in d.reads() if ld.buffer in defs and defs[ld.buffer].is_reduction]
    asked = any(loads(c) and axis.name in free_vars(c) for c in conjuncts(d.guard))
    return not asked and not any(axis.name in free_vars(ld) and others & free_vars(ld) for ld in shared)


def _without(d: Def, equation: Expr, axis: Axis, form: Linear) -> tuple[Def, Certificate]:
    """``d`` at the solution of ``equation`` for ``axis``, where that is one of its positions."""
    n = form.coeff(axis.name)
    rest = form.without(Var(axis.name))
    multiple = build(rest.scale(-1 if n > 0 else 1), DType.I32)
    place: Expr = multiple if abs(n) == 1 else calc("floordiv", multiple, abs(n))
    exact = [] if abs(n) == 1 else [calc("eq", calc("mod", multiple, abs(n)), 0)]
    env = {axis.name: place}
    kept = [substitute(c, env) for c in conjuncts(d.guard) if c is not equation]
    ranges, assumptions = axis_assumptions(a for a in d.axes if a is not axis)
    inside = [c for c in within(place, axis.extent) if simplify(c, ranges, assumptions) != TRUE]
    red = tuple(a for a in d.red if a is not axis)
    guard, value = conjunction((*exact, *inside, *kept)), substitute(d.value, env)
    made = replace(d, red=red, value=value, guard=guard)
    assert d.op is not None
    if not red:
        value = value if guard is None else make("select", guard, value, identity(d.op, value.dtype))
        made = replace(d, op=None, red=(), value=value, guard=None)
    given = tuple(c for a in d.par for c in within(Var(a.name), a.extent))
    proof = f"{axis.name} has at most one value for which {format_expr(equation)}"
    before = Reduce(d.op, d.red, d.guard, d.value, d.value.dtype, d.span)
    after = Reduce(d.op, red, guard, value, value.dtype, d.span) if red else value
    return made, Certificate("solve-equations", d.name, before, after, ((axis.name, place),), given, (), proof, d.span)
