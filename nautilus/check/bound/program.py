"""The roundings that a compilation makes, as a Spec.

``rounded(spec)`` is the Scalar program after ``narrow``, before kernels are planned: every ``narrow`` stands where
the compiler put it, sums are of what varies only, and elementwise temporaries are part of their readers.  Each of its
definitions is one definition of the result, so the interpreter of a Spec evaluates it.  Over the reals its values are
those of ``spec``.  Values that are compared with their own extreme are a definition
(:mod:`nautilus.check.bound.shared`).  Later passes choose loops and instructions; :mod:`nautilus.check.bound.errors`
has their roundings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from nautilus.check.bound.recurrences.factored import with_factors
from nautilus.check.bound.recurrences.rounded_operands import rounded_steps, with_rounded_operands
from nautilus.check.bound.recurrences.scans import scan, with_running_extremes
from nautilus.check.bound.shared import shared
from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var, loads, rewrite, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import volume
from nautilus.core.passes import Pass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.frontend.spec import Definition, Spec
from nautilus.scalar.analysis.definitions import Def, is_recurrence, read_def
from nautilus.scalar.ir import Kernel, Program, statements
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.add_unit_axes import AddUnitAxes
from nautilus.scalar.passes.axes.drop_unit_axes import without_axes
from nautilus.scalar.passes.axes.join_sums import JoinSums
from nautilus.scalar.passes.axes.separate_digits import SeparateDigits
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline, can_inline
from nautilus.scalar.passes.matrices.count_bits import CountBits
from nautilus.scalar.passes.matrices.multiply_conditions import MultiplyConditions
from nautilus.scalar.passes.narrow import Narrow
from nautilus.scalar.passes.operands.join_digits import JoinDigits
from nautilus.scalar.passes.operands.join_groups import JoinGroups
from nautilus.scalar.passes.operands.order_contractions import OrderContractions
from nautilus.scalar.passes.operands.scale_products import ScaleProducts
from nautilus.scalar.passes.operands.split_sums import SplitSums
from nautilus.scalar.passes.positions.expand_gathers import ExpandGathers
from nautilus.scalar.passes.positions.flatten_blocks import FlattenBlocks
from nautilus.scalar.passes.positions.restrict_results import RestrictResults
from nautilus.scalar.passes.positions.scan_positions import ScanPositions
from nautilus.scalar.passes.positions.solve_equations import SolveEquations
from nautilus.scalar.passes.recurrences.recur_scans import RecurScans
from nautilus.scalar.passes.references.running_moments import RunningMoments
from nautilus.scalar.passes.references.split_references import SplitReferences
from nautilus.scalar.passes.results.choose_terms import ChooseTerms
from nautilus.scalar.passes.results.reduce_rows import ReduceRows
from nautilus.scalar.passes.results.sink_gathers import SinkGathers
from nautilus.scalar.passes.results.store_partial_sums import StorePartialSums
from nautilus.scalar.passes.results.unroll_reductions import UnrollReductions
from nautilus.scalar.passes.roundings.defer_roundings import DeferRoundings
from nautilus.scalar.passes.roundings.divide_floors import DivideFloors
from nautilus.scalar.passes.roundings.round_temps import RoundTemps
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.passes.windows.count_terms import CountTerms
from nautilus.scalar.passes.windows.join_shifts import JoinShifts
from nautilus.scalar.passes.windows.restrict_products import RestrictProducts
from nautilus.scalar.passes.windows.separate_windows import SeparateWindows
from nautilus.scalar.rewriting import find_defs
from nautilus.scalar.rewriting.recurrences import between

if TYPE_CHECKING:
    from nautilus.scalar.passes.recurrences.chunk_matrix_states import RoundedState


def passes(precision: str = "fast", schedule: Schedule | None = None, spec: Spec | None = None) -> tuple[Pass, ...]:
    """The passes of the Scalar stage up to the last one that inserts roundings."""
    return (
        *(ScanPositions(), RecurScans(spec=spec), RunningMoments()),
        *(RoundTemps(), Simplify(), Inline(schedule), DivideFloors(), Simplify()),
        SolveEquations(),
        *(RestrictResults(), ChooseTerms(spec), ExpandGathers(spec), CountBits(), UnrollReductions()),
        *(CountTerms(), MultiplyConditions()),
        DeferRoundings(schedule, strict=precision == "strict", again=True),
        *(SplitSums(spec), Factor(schedule), Simplify(), SplitReferences()),
        *(JoinShifts(), SeparateWindows(), SeparateDigits(spec)),
        *(OrderContractions(spec=spec), Simplify(), JoinSums(), JoinGroups(spec), JoinDigits(), FlattenBlocks()),
        *(RestrictProducts(), SinkGathers(), AddUnitAxes(), ScaleProducts()),
        Narrow(schedule, strict=precision == "strict"),
    )


@lru_cache(maxsize=16)
def rounded(
    spec: Spec, precision: str = "fast", schedule: Schedule | None = None, kernels: frozenset[str] = frozenset()
) -> Spec:
    """``spec`` with the roundings of its compilation; names of temporaries may differ.

    ``kernels``: the definitions of the kernels, which say what sums are found in two steps.
    """
    program = lower(spec)
    added: frozenset[str] = frozenset()
    for p in passes(precision, schedule, spec):
        if isinstance(p, AddUnitAxes):  # it has changed the interface, which is that of the spec again in the end
            before, program = program, p.apply(program)
            added = _axes(program) - _axes(before)
        elif isinstance(p, RecurScans):
            program = p.apply(program)
        elif isinstance(p, SeparateDigits) and not any(map(is_recurrence, program.kernels)):
            program = p.apply(program)  # arguments have views, which are undone in the end
        else:
            program = _applied(p, program)
    program = without_axes(program, added)
    for two in (ReduceRows(), StorePartialSums()):
        made = _applied(two, program)
        if {k.name for k in made.kernels} - {k.name for k in program.kernels} <= kernels:
            program = made
    found: list[Definition] = []
    in_steps = rounded_steps(spec, precision, schedule)
    for k in program.kernels:
        if is_recurrence(k):
            found += _recurrence(spec, program, k, in_steps)
        else:
            found.append(_definition(_of_arrays(read_def(program, k), program)))
    return replace(spec, definitions=tuple(shared(with_running_extremes(found))))


@lru_cache(maxsize=16)
def in_chunks(program: Spec, spec: Spec, precision: str = "fast", schedule: Schedule | None = None) -> Spec:
    """``program``, the result for ``spec``, with the roundings of matrix states that are computed in chunks of steps.

    There, products of operands with earlier steps of a chunk are rounded, and so are what the steps of a chunk add and
    the states before chunks.  Each term of a result has one of these roundings, or two: as if what each step adds were
    rounded, and the state where it is read.  They are independent of the steps between, so they do not grow.  Operands
    that are computed, and decays of columns beside those of rows, have one more each.

    Where what a step adds reads the state, each of its terms has two roundings more, in the inverse of the system of
    equations and in its product.  The steps after it amplify all of them (:func:`grows_in_chunks`).
    """
    if not has_recurrences(spec) or precision == "strict" or (schedule is not None and not schedule.narrow):
        return program
    states = _rounded_states(spec)
    corrections = {n: _corrections(program, n) for n, s in states.items() if s.corrected}

    def put(d: Definition) -> Definition:
        e = d.expr
        for name, found in corrections.items():
            if d.name in found:
                e = _terms_rounded(e, {name, *found}, states[name].dtype)
        if d.name in states:
            return replace(d, expr=_added_rounded(e, d.name, states[d.name]))
        return replace(d, expr=rewrite(e, read))

    def read(e: Expr) -> Expr | None:
        return _narrowed(e, states[e.buffer].dtype) if isinstance(e, Load) and e.buffer in states else None

    return replace(program, definitions=tuple(map(put, program.definitions))) if states else program


def has_recurrences(spec: Spec) -> bool:
    """Whether ``spec`` has a recurrence; most specs have none, and do not load what recurrences need."""
    return any(d.recurrence is not None for d in spec.definitions)


def _rounded_states(spec: Spec) -> dict[str, RoundedState]:
    from nautilus.scalar.passes.recurrences.chunk_matrix_states import rounded_states
    from nautilus.scalar.passes.recurrences.members.join_recurrences import JoinRecurrences

    return rounded_states(JoinRecurrences().apply(lower(spec)), spec)


def grows_in_chunks(spec: Spec) -> bool:
    """Whether later steps amplify the roundings of a matrix state that is computed in chunks of steps."""
    return any(s.corrected for s in _rounded_states(spec).values())


def _corrections(program: Spec, state: str) -> frozenset[str]:
    """``state``, and the definitions of its step that read it and that it reads."""
    members = {d.name: {ld.buffer for ld in loads(d.expr)} for d in program.definitions if d.recurrence is not None}
    readers, read = {state}, {state}
    for _ in members:
        readers |= {n for n, buffers in members.items() if buffers & readers}
        read |= {x for n in read for x in members.get(n, ())}
    return frozenset(readers & read & members.keys())


#: A factor close to 1 that no type of 16 bits has, so that an exact number has the rounding of its product.
_ABOUT_ONE = 1.0 + 2.0**-30


def _terms_rounded(e: Expr, names: Collection[str], dtype: DType) -> Expr:
    """``e`` with two roundings of each sum over ``names``, and of each term without them beside one that has them."""

    def twice(x: Expr) -> Expr:
        return _again(x, dtype, 0 if isinstance(x, Const) else 2)

    def inside(x: Expr) -> bool:
        return any(ld.buffer in names for ld in loads(x))

    def visit(x: Expr, alone: bool) -> Expr:
        if not inside(x):
            return twice(x) if alone else x
        match x:
            case Reduce():
                return twice(x)
            case Op(op="add" | "sub", args=args):
                return replace(x, args=tuple(visit(a, True) for a in args))
            case Op(op="select", args=(c, a, b)):
                return replace(x, args=(c, visit(a, alone), visit(b, alone)))
            case Op(op="mul" | "div" | "neg" | "cast", args=args):
                return replace(x, args=tuple(visit(a, False) for a in args))
        return x

    return visit(e, False)


def _again(e: Expr, dtype: DType, times: int) -> Expr:
    """``e`` with this many roundings, one after another, which all change it."""
    for _ in range(times):
        e = _narrowed(Op("mul", (e, Const(_ABOUT_ONE, e.dtype)), e.dtype), dtype)
    return e


def _added_rounded(e: Expr, state: str, rounded: RoundedState) -> Expr:
    """``e``, a step of ``state``, with its terms that do not have the state rounded."""
    if all(ld.buffer != state for ld in loads(e)):
        return e if isinstance(e, Const) else _again(_narrowed(e, rounded.dtype), rounded.dtype, rounded.computed)
    match e:
        case Op(op="select", args=(c, a, b)):
            return replace(e, args=(c, _added_rounded(a, state, rounded), _added_rounded(b, state, rounded)))
        case Op(op="add" | "sub", args=(a, b)):
            return replace(e, args=(_added_rounded(a, state, rounded), _added_rounded(b, state, rounded)))
    return e


def _narrowed(e: Expr, dtype: DType) -> Expr:
    return Op("cast", (Op("narrow", (e,), dtype),), e.dtype)


def _axes(program: Program) -> frozenset[str]:
    return frozenset(loop.var for k in program.kernels for loops, _ in statements(k.body) for loop in loops)


def _applied(p: Pass, program: Program) -> Program:
    """``program`` after ``p``, which leaves recurrences as they are."""
    return between(lambda part: (_inlining(p, part).apply(part), lambda: None), program)


def _inlining(p: Pass, part: Program) -> Pass:
    """``p``; an ``inline`` of what can be inlined in ``part`` alone.

    A schedule may name steps of recurrences, which are one recurrence here, and parts of a recurrence that is computed
    in chunks, of which the spec has the whole.
    """
    if not isinstance(p, Inline) or p.schedule is None or p.schedule.inline is None:
        return p
    defs = find_defs(part)
    names = tuple(n for n in p.schedule.inline if n in defs and can_inline(defs[n]))
    return Inline(replace(p.schedule, inline=names))


def _recurrence(spec: Spec, program: Program, k: Kernel, rounded: frozenset[str]) -> list[Definition]:
    """The definitions that the recurrence ``k`` computes, of ``spec`` or a scan.

    Its steps have no narrowing, but for ``rounded`` tensors, whose products read operands that are rounded.
    """
    last = next((d.recurrence for d in spec.definitions if d.name == k.name), None)
    if last is None:
        return [scan(program, k)]
    members = with_factors([spec.definition(name) for name in last.members])
    return with_rounded_operands(members) if rounded & set(last.members) else members


def _of_arrays(d: Def, program: Program) -> Def:
    """``d``, whose axes are those of its array, as are the indices of what it reads (``separate-digits``)."""
    views = {b.name: b for b in program.buffers if b.view_of is not None and b.view_of != b.shape}
    if d.at is None and not views.keys() & {d.name, *(ld.buffer for ld in d.reads())}:
        return d

    def rule(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer in views):
            return None
        return replace(e, index=_positions(views[e.buffer], tuple(rewrite(x, rule) for x in e.index)))

    axes = {a.name: a for a in d.par}
    par, env = list[Axis](), dict[str, Expr]()
    for n, (extent, e) in enumerate(zip(d.buffer.array_shape, _positions(d.buffer, d.index), strict=True)):
        if isinstance(e, Var):
            par.append(axes[e.name])
            continue
        assert isinstance(extent, int)
        par.append(Axis(f"{d.name}_axis{n}", extent))
        for digit, stride in linear(e).terms.items():
            assert isinstance(digit, Var)
            env[digit.name] = calc("mod", calc("floordiv", Var(par[-1].name), stride), axes[digit.name].extent)
    value, guard = (None if e is None else substitute(rewrite(e, rule), env) for e in (d.value, d.guard))
    assert value is not None
    return replace(d, par=tuple(par), at=None, value=value, guard=guard)


def _positions(b: Buffer, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The position in the array of ``b``, of which each dimension is one of ``b`` or several in a row."""
    made, left = list[Expr](), list(zip(b.shape, index, strict=True))
    for extent in b.array_shape:
        size, place = left.pop(0)
        while size != extent:
            n, e = left.pop(0)
            size, place = volume((size, n)), calc("add", calc("mul", place, n), e)
        made.append(place)
    return tuple(made)


def _definition(d: Def) -> Definition:
    value, guard = d.value, d.guard
    if d.op is not None:
        value = Reduce(d.op, d.red, guard, value, d.buffer.dtype.compute, d.span)
    elif guard is not None:
        value = Op("select", (guard, value, Const(0.0 if value.dtype.is_float else 0, value.dtype)), value.dtype)
    stored = d.buffer.dtype
    is_output = d.buffer.space is Space.OUTPUT
    if not is_output and stored is not value.dtype:  # a temporary of a narrower type rounds when it is stored
        value = Op("cast", (value,), stored, d.span)
    return Definition(d.name, stored, d.par, value, is_output, d.span)
