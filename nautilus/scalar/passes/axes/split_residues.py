"""``split-residues``: a reduction visits the terms that satisfy a congruence, instead of testing all of them.

A transposed convolution with stride 5, whose taps are 2 apart, adds one tap in five::

    Y[y] sum= F[r] * X[(y + 1 - 2 * r) // 5]  where (y + 1 - 2 * r) % 5 == 0

The residue of ``y`` decides that of ``r`` (:mod:`nautilus.core.index.congruences`).  So ``y`` becomes two axes, a
quotient and a residue, and ``r`` a quotient of which ``r`` has the same residue::

    y = 5 * y_quotient + (2 * y_residue + 4) % 5,  r = 5 * r_quotient + y_residue

The condition holds by construction, and the quotients in indices become linear: ``X[y_quotient - 2 * r_quotient +
...]``.  The residue is a coordinate of blocks, so that a matrix product has fixed weights for each of them.  Where no
``r`` satisfies the congruence, which the third axis ``y_offset`` gives, the sum is empty; the condition that says so is
one of the reduced axis, so that ``partition`` leaves the loop out.

If the modulus does not divide the extent of ``y``, the last quotients of some residues lie after it.  They are
computed in a temp, which the definition copies without them.  An elementwise definition that reads the result at its
own position is split in the same way, so that both remain one kernel.

The pass keeps a reduction that reads another definition along one of these axes, because their common loop is worth
more, and one whose largest operand would no longer be read along its rows, unless that is a matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Reduce, Var, free_vars, loads, rewrite, substitute
from nautilus.core.expr.products import matrix_product, strip_conversions
from nautilus.core.index.congruences import Congruence, Residues, congruence, solved
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import TRUE, simplify
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import axis_assumptions, find_defs, fresh_name, kernel_of


@dataclass(frozen=True, slots=True)
class SplitResidues(CertifyingPass[Program]):
    """Split the axes of every reduction whose condition is a congruence (module docstring)."""

    name = "split-residues"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with fewer terms, and a certificate for each reduction; the same object where no condition is a
        congruence.
        """
        defs = find_defs(program)
        found: dict[str, Split] = {}
        for name, d in defs.items():
            made = _restricted(d, defs) or following(d, found)
            if made is not None:
                found[name] = made
        return with_certificates(self.name, program, found)


def with_certificates(
    rule: str, program: Program, found: Mapping[str, Split]
) -> tuple[Program, tuple[Certificate, ...]]:  # fmt: skip
    """``program`` with the definitions of ``found``, and a certificate of ``rule`` for each reduction among them."""
    if not found:
        return program, ()
    made, names = _rewritten(program, found)
    made = Simplify().apply(made)
    old, new = find_defs(program), find_defs(made)
    sums = ((old[name], new[names.get(name, name)], split) for name, split in found.items() if split.d.is_reduction)
    return made, tuple(_certificate(rule, d, terms, split) for d, terms, split in sums)


def _certificate(rule: str, d: Def, terms: Def, split: Split) -> Certificate:
    """The terms and the results of ``d`` are those of ``terms``, the reduction that ``split`` has become."""
    before, after = (Reduce(x.op or "", x.red, x.guard, x.value, x.value.dtype, d.span) for x in (d, terms))
    axes = dict.fromkeys((*d.par, *split.d.par))
    given = tuple(c for a in axes for c in within(Var(a.name), a.extent))
    values = (*((c.axis, c.position) for c in split.cuts), *split.terms)
    proof = "each element has a place of its own along the new axes, and its terms are the same"
    return Certificate(rule, d.name, before, after, values, given, (), proof, d.span)


@dataclass(frozen=True, slots=True)
class Cut:
    """Parallel ``axis`` is at ``position``, over ``axes``; ``ragged``: some positions lie beyond its end."""

    axis: str
    extent: int
    axes: tuple[Axis, ...]
    position: Expr
    ragged: bool


@dataclass(frozen=True, slots=True)
class Split:
    """Definition ``d`` over its new axes, stored at ``d.at`` as far as that is inside of the buffer.

    ``terms``: the positions of its terms along the reduced axes that it had, where they have changed.
    """

    d: Def
    cuts: tuple[Cut, ...] = ()
    terms: tuple[tuple[str, Expr], ...] = ()

    def moved(self, axis: str, position: Expr) -> tuple[tuple[str, Expr], ...]:
        """``terms`` with ``position`` in the place of the reduced ``axis``."""
        known = tuple((name, substitute(e, {axis: position})) for name, e in self.terms)
        made = axis in frozenset[str]().union(*(free_vars(e) for _, e in self.terms))
        return known if made else (*known, (axis, position))

    @property
    def inside(self) -> tuple[Expr, ...]:
        """Conditions under which ``d.at`` is inside of the buffer."""
        return tuple(calc("lt", c.position, c.extent) for c in self.cuts if c.ragged)


# -- reductions under congruences ---------------------------------------------------------------------


def _restricted(d: Def, defs: Mapping[str, Def]) -> Split | None:
    """``d`` over the terms that satisfy its congruences; None where it has none."""
    if not d.is_reduction or d.at is not None:
        return None
    plain = {e.name for ld in d.reads() if ld.buffer in defs for e in ld.index if isinstance(e, Var)}
    split = Split(d)
    for condition in conjuncts(d.guard):
        if (form := congruence(condition)) is not None:
            split = _applied(split, condition, form, plain) or split
    return split if split.d is not d else None


def _applied(split: Split, condition: Expr, form: Congruence, fixed: set[str]) -> Split | None:
    """``split`` without ``condition``, which is ``form``; None where no axes can be split.  ``fixed``: axes to keep."""
    d, n = split.d, form.modulus
    names = [v.name for v in form.form.terms if isinstance(v, Var)]
    par = [a for a in d.par if a.name in names]
    red = [a for a in d.red if a.name in names]
    if len(par) + len(red) < len(form.form.terms) or len(par) > 1 or len(red) > 1 or fixed & {*names}:
        return None
    if any(size(a) is None for a in (*par, *red)) or (red and _along_rows(d, red[0].name)):
        return None
    rest = [c for c in conjuncts(d.guard) if c is not condition]
    a = form.form.coeff(red[0].name) if red else 0
    if not par:
        return _fixed_residue(split, red[0], rest, -form.form.const * pow(a, -1, n) % n, n)
    (own,) = par
    residues = solved(n, form.form.coeff(own.name), a, form.form.const)
    if residues is None:
        return None
    cut, with_terms, coordinates = _cut(d, own, residues)
    reduced = red[0] if red else min(d.red, key=lambda x: size(x) or 1 << 31)
    if size(reduced) is None:
        return None
    axis, position, has_term = _terms(d, reduced, residues, coordinates)
    kept = tuple(x for x in d.red if x.name != reduced.name)
    env = {own.name: with_terms, reduced.name: position}
    red_axes = tuple(axis if x.name == reduced.name else x for x in d.red)
    trivial = size(axis) == 1 and has_term is None and kept
    if trivial:
        env[reduced.name], red_axes = substitute(position, {axis.name: integer(0)}), kept
    new = replace(
        d,
        par=tuple(x for p in d.par for x in (cut.axes if p.name == cut.axis else (p,))),
        red=red_axes,
        value=substitute(d.value, env),
        guard=_guard([substitute(c, env) for c in rest], has_term),
        at=tuple(substitute(e, {cut.axis: cut.position}) for e in d.index),
    )
    return Split(new, (*split.cuts, cut), split.moved(reduced.name, env[reduced.name]))


def _guard(rest: Sequence[Expr], has_term: Expr | None) -> Expr | None:
    """All conditions; those that read memory are asked only where there is a term."""
    reads = any(ld for c in rest for ld in loads(c))
    return conjunction((has_term, *rest) if reads else (*rest, has_term))


def _along_rows(d: Def, axis: str) -> bool:
    """Whether the operand of the most axes has its rows along reduced ``axis``, and ``d`` is no matrix product."""
    if d.op == "sum" and matrix_product(strip_conversions(d.value), [a.name for a in d.par]) is not None:
        return False
    own = {a.name for a in d.axes}
    reach = {ld: len({x for e in ld.index for x in free_vars(e)} & own) for ld in loads(d.value) if ld.index}
    if not reach:
        return False
    return any(linear(ld.index[-1]).slope(axis) for ld in reach if reach[ld] == max(reach.values()))


def _fixed_residue(split: Split, red: Axis, rest: Sequence[Expr], first: int, n: int) -> Split | None:
    """``split`` where ``red`` is ``first`` modulo ``n``."""
    d, extent = split.d, size(red) or 0
    if first >= extent:
        return None
    axis = Axis(_fresh(d, f"{red.name}_quotient"), -(-(extent - first) // n), red.span)
    env = {red.name: calc("add", calc("mul", Var(axis.name), n), first)}
    guard = conjunction(substitute(c, env) for c in rest)
    axes = tuple(axis if x.name == red.name else x for x in d.red)
    made = replace(d, red=axes, value=substitute(d.value, env), guard=guard)
    return replace(split, d=made, terms=split.moved(red.name, env[red.name]))


def _cut(d: Def, axis: Axis, residues: Residues) -> tuple[Cut, Expr, tuple[Expr, Expr]]:
    """Parallel ``axis`` over its residues, the position of an element that has terms, and residue and offset."""
    extent, n = size(axis) or 0, residues.modulus
    quotient = Axis(_fresh(d, f"{axis.name}_quotient"), -(-extent // n), axis.span)
    residue = Axis(_fresh(d, f"{axis.name}_residue"), residues.residues, axis.span)
    offset = Axis(_fresh(d, f"{axis.name}_offset"), residues.offsets, axis.span)
    axes = (quotient, *(x for x in (residue, offset) if size(x) != 1))
    i, j = (Var(x.name) if x in axes else integer(0) for x in (residue, offset))
    wide = _wide(axes)
    position = simplify(_position(Var(quotient.name), i, j, residues), wide)
    with_terms = simplify(_position(Var(quotient.name), i, integer(0), residues), wide)
    return Cut(axis.name, extent, axes, position, extent % n > 0), with_terms, (i, j)


def _position(quotient: Expr, residue: Expr, offset: Expr, residues: Residues) -> Expr:
    """The position with these coordinates, linear if possible."""
    number = calc("add", calc("add", calc("mul", residue, residues.slope), offset), residues.const)
    match residues.carry():
        case (by_residue, by_offset, const):
            by = calc("add", calc("mul", residue, by_residue), calc("mul", offset, by_offset))
            carry: Expr = calc("add", by, const)
        case _:
            carry = calc("floordiv", number, residues.modulus)
    return calc("add", calc("mul", calc("sub", quotient, carry), residues.modulus), number)


def _terms(d: Def, reduced: Axis, residues: Residues, at: tuple[Expr, Expr]) -> tuple[Axis, Expr, Expr | None]:
    """The axis of the terms that remain, the position of a term along ``reduced``, and the condition of a term."""
    extent, step, (residue, offset) = size(reduced) or 0, residues.residues, at
    axis = Axis(_fresh(d, f"{reduced.name}_quotient") if step > 1 else reduced.name, -(-extent // step), reduced.span)
    position = calc("add", calc("mul", Var(axis.name), step), residue) if step > 1 else Var(axis.name)
    if extent % step == 0 and residues.offsets == 1:
        return axis, position, None
    beyond = calc("mul", offset, step * (size(axis) or 0))  # an offset has no term
    return axis, position, calc("lt", calc("add", position, beyond), extent)


def _fresh(d: Def, name: str) -> str:
    return unused(name, {a.name for a in d.axes} | {d.name} | {ld.buffer for ld in d.reads()})


def _wide(axes: Sequence[Axis]) -> dict[str, tuple[int, int]]:
    """Ranges in which no axis is a number."""
    return {a.name: (0, max(1, (size(a) or 1 << 31) - 1)) for a in axes}


# -- definitions that follow --------------------------------------------------------------------------


def following(d: Def, found: Mapping[str, Split]) -> Split | None:
    """Elementwise ``d`` over the axes of a split definition that it reads at its own position; else None."""
    if d.is_reduction or d.at is not None:
        return None
    cuts: dict[str, Cut] = {}
    for ld in d.reads():
        for x, cut in _read_along(ld, found.get(ld.buffer)):
            axis = d.axis(x)
            if axis is not None and size(axis) == cut.extent and cuts.setdefault(x, cut) != cut:
                return None
    taken = {a.name for a in d.axes} | {x for cut in cuts.values() for x in (y.name for y in cut.axes)}
    if not cuts or len(taken) < len(d.axes) + sum(len(c.axes) for c in cuts.values()):
        return None
    env = {x: cut.position for x, cut in cuts.items()}
    guard = None if d.guard is None else substitute(d.guard, env)
    par = tuple(y for p in d.par for y in (cuts[p.name].axes if p.name in cuts else (p,)))
    at = tuple(substitute(e, env) for e in d.index)
    new = replace(d, par=par, value=substitute(d.value, env), guard=guard, at=at)
    return Split(new, tuple(cuts.values()))


def _read_along(ld: Load, split: Split | None) -> list[tuple[str, Cut]]:
    """The variables with which ``ld`` reads the cut dimensions of ``split``, if all are plain."""
    if split is None or split.d.at is None:
        return []
    pairs = [(e, cut) for e, at in zip(ld.index, split.d.at, strict=True) for cut in split.cuts if at == cut.position]
    plain = [(e.name, cut) for e, cut in pairs if isinstance(e, Var)]
    return plain if len(plain) == len(pairs) else []


# -- the program after it -----------------------------------------------------------------------------


def _rewritten(program: Program, found: Mapping[str, Split]) -> tuple[Program, Mapping[str, str]]:
    """``program`` with the definitions of ``found``, and a temp for every reduction that is ragged, with its name."""
    shapes = {b.name: b.shape for b in program.buffers}
    temps: dict[str, Buffer] = {}
    for name, split in found.items():
        if split.d.is_reduction and split.inside:
            taken = replace(program, buffers=(*program.buffers, *temps.values()))
            shape = tuple(a.extent for a in split.d.par)
            temps[name] = Buffer(
                fresh_name(taken, f"{name}_residues"), split.d.buffer.dtype, shape, Space.TEMP, split.d.span
            )
    made = {name: _definitions(split, found, temps, shapes) for name, split in found.items()}
    kernels = (x for k in program.kernels for x in (map(kernel_of, made[k.name]) if k.name in made else (k,)))
    result = replace(program, buffers=(*program.buffers, *temps.values()), kernels=tuple(kernels))
    return result, {name: temp.name for name, temp in temps.items()}


def _definitions(
    split: Split,
    found: Mapping[str, Split],
    temps: Mapping[str, Buffer],
    shapes: Mapping[str, tuple[int | Expr, ...]],
) -> tuple[Def, ...]:
    """The definitions that ``split`` becomes."""
    d = split.d
    if not d.is_reduction:

        def from_temp(n: Expr) -> Expr | None:
            if not (isinstance(n, Load) and n.buffer in temps):
                return None
            index = _in_temp(n, found[n.buffer])
            return None if index is None else Load(temps[n.buffer].name, index, n.dtype, n.span)

        return (replace(d, value=rewrite(d.value, from_temp), guard=conjunction((*split.inside, d.guard))),)
    if d.name not in temps:
        return (d,)
    temp = temps[d.name]
    load = Load(temp.name, tuple(Var(a.name) for a in d.par), temp.dtype, d.span)
    terms = replace(d, name=temp.name, buffer=temp, at=None, guard=conjunction((*_safe(split, shapes), d.guard)))
    return terms, Def(d.name, d.buffer, d.par, (), None, load, conjunction(split.inside), d.span, d.at)


def _in_temp(ld: Load, split: Split) -> tuple[Expr, ...] | None:
    """The index in the temp of ``split`` at which it computes the element ``ld``; None where its axes differ."""
    out: list[Expr] = []
    for e, at in zip(ld.index, split.d.index, strict=True):
        cut = next((c for c in split.cuts if c.position == at), None)
        if cut is not None and e != at:
            return None
        out += [e] if cut is None else [Var(a.name) for a in cut.axes]
    return tuple(out)


def _safe(split: Split, shapes: Mapping[str, tuple[int | Expr, ...]]) -> tuple[Expr, ...]:
    """Conditions under which ``split`` reads inside of its tensors beyond the end of an axis too."""
    d = split.d
    ranges, assumptions = axis_assumptions(d.axes)
    given = (*assumptions, *conjuncts(d.guard))
    found: dict[Expr, None] = {}
    for ld in d.reads():
        for e, n in zip(ld.index, shapes[ld.buffer], strict=True):
            open_ = [c for c in within(e, n) if simplify(c, ranges, given) != TRUE]
            if open_ and loads(e):
                return split.inside
            found.update(dict.fromkeys(open_))
    return tuple(found)
