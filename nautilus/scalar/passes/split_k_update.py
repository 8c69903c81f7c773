"""``split-k-update``: long reductions run in independent chunks, whose results are combined (Neptune, algorithm 2).

A reduction ``R = op_j f(x_j)`` that the schedule cuts becomes two definitions, a partial result for each
chunk ``s`` of the axis and their combination::

    R_part[s] = op_{j in chunk s} f(x_j)
    R         = op_s R_part[s]

Where ``f`` needs ``r``, a reduction that is split in the same way, each chunk has its own ``r_part[s]``, so all chunks
are independent.  The combine repairs every partial result from its reference to the common one by the same repair term
``t`` that ``rolling-update`` applies within a chunk (``repair``)::

    A_part[s] = op_{j in chunk s} f(x_j, ref(r_part[s]))
    A         = op_s t(A_part[s], r_part[s], ref(r))

``ref`` is the finite reference of ``repair``.  An empty chunk leaves identities, ``r_part = -inf`` and ``A_part = 0``;
its factor is ``exp(-inf - ref(r)) = 0`` and not a NaN.  Without a proved repair term, ``f`` reads the common ``r``, so
its chunks run after the combine of ``r``.  So do those of a reduction that needs their results: the position of the
second best element, ``j != best``, needs the largest of these elements in its chunk, and the common ``best``.

*Privatisation* of a reduction over an axis that many blocks share is the case without ``r``: every block
accumulates into a partial result of its own, ``t`` is the identity, and the second definition combines.

The results are ordinary definitions before ``fuse``; the planner chooses which of them share a kernel.  Chunks are
whole tiles of the reduction loop (``chunks``); partial results have the accumulation type of the reduction.  Block-wise
elementwise definitions that contain ``r`` are copied into ``f``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, identity, loads, rewrite, substitute
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.core.types import DType
from nautilus.scalar.analysis.axes import Unified, unify
from nautilus.scalar.analysis.chunks import chunk_guard
from nautilus.scalar.analysis.definitions import Def, read_defs
from nautilus.scalar.analysis.repair.certificate import certify
from nautilus.scalar.analysis.repair.records import Refusal, Repair, Running
from nautilus.scalar.analysis.repair.terms import derive, reference_of
from nautilus.scalar.ir import Kernel, Program, statements
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import fresh_name, kernel_of


@dataclass(frozen=True, slots=True)
class SplitKUpdate(CertifyingPass[Program]):
    """Cut the reductions that ``schedule.splits`` names; without a schedule, or a name in it, the program stays."""

    schedule: Schedule | None = None

    name = "split-k-update"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with partial results, and two certificates for each repair that a combination uses.

        Raises ScheduleError for a cut that does not fit it.
        """
        plans = (self.schedule.splits if self.schedule is not None else None) or ()
        certificates: list[Certificate] = []
        for together in _rounds(plans):
            program, found = self._cut(program, together)
            certificates += found
        return program, tuple(certificates)

    def _cut(self, program: Program, plans: tuple[SplitPlan, ...]) -> tuple[Program, tuple[Certificate, ...]]:
        """One round of cuts, each of another reduction."""
        defs = read_defs(program)
        unified = unify(tuple(defs.values()), tuple(p.name for p in program.params))
        state = _State(program, unified, {p.op: _check(p, defs) for p in plans})
        for d in unified.defs:
            if d.name in state.plans:
                _cut(d, defs[d.name], state)
        return state.program(), tuple(state.certificates)


def _rounds(plans: tuple[SplitPlan, ...]) -> list[tuple[SplitPlan, ...]]:
    """``plans`` in order, cut where a reduction is named again: then it is its combination that is cut."""
    out: list[tuple[SplitPlan, ...]] = []
    for p in plans:
        if not out or any(q.op == p.op for q in out[-1]):
            out.append(())
        out[-1] = (*out[-1], p)
    return out


def _check(plan: SplitPlan, defs: dict[str, Def]) -> SplitPlan:
    d = defs.get(plan.op)
    if d is None or not d.is_reduction:
        raise ScheduleError(f"splits: no reduction is called {plan.op!r}")
    if all(a.name != plan.axis for a in d.red):
        raise ScheduleError(f"splits: {plan.op} does not reduce over {plan.axis!r}")
    return plan


@dataclass(frozen=True, slots=True)
class _Cut:
    """A reduction that is cut: ``axis`` by its unified name; ``awaits``: cuts that are combined before its chunks."""

    whole: Def
    part: Def
    axis: str
    plan: SplitPlan
    awaits: frozenset[str]

    def alike(self, axis: str, plan: SplitPlan) -> bool:
        """Whether it has the same chunks as a cut of ``axis`` by ``plan``."""
        return self.axis == axis and replace(self.plan, op=plan.op, axis=plan.axis) == plan


@dataclass(slots=True)
class _State:
    source: Program
    unified: Unified
    plans: dict[str, SplitPlan]
    cuts: dict[str, _Cut] = field(default_factory=dict)
    kernels: dict[str, tuple[Kernel, ...]] = field(default_factory=dict)
    made: list[Buffer] = field(default_factory=list)
    certificates: list[Certificate] = field(default_factory=list)

    def fresh(self, name: str) -> str:
        """``name``, or with a number, so that no buffer, parameter or axis has it."""
        return fresh_name(self.source, name, {b.name for b in self.made} | set(self.unified.extents))

    def temp(self, name: str, dtype: DType, axes: tuple[Axis, ...]) -> Buffer:
        """A new temp over ``axes``."""
        made = Buffer(self.fresh(name), dtype, tuple(a.extent for a in axes), Space.TEMP)
        self.made.append(made)
        return made

    def program(self) -> Program:
        """The source with the definitions that took the place of cut ones; what has no reader is gone."""
        kernels = tuple(new for k in self.source.kernels for new in self.kernels.get(k.name, (k,)))
        whole = replace(self.source, buffers=(*self.source.buffers, *self.made), kernels=kernels)
        return Dead().apply(whole)


def _cut(d: Def, original: Def, state: _State) -> None:
    plan = state.plans[d.name]
    axis = d.red[[a.name for a in original.red].index(plan.axis)]
    value, needs, repair = _local(d, axis.name, plan, state)
    single = repair is None and _is_single(plan, axis, d)
    by = axis if single else Axis(state.fresh(f"{axis.name}_chunk"), plan.splits)
    part = _part(d, value, needs, repair, by, axis, state)
    state.cuts[d.name] = _Cut(d, part, axis.name, plan, _awaited(d, {ld.buffer for ld in needs}, state))
    whole = _whole(d, part, needs, repair, by, state)
    name = next(k.name for k in state.source.kernels if next(statements(k.body))[1].buffer == d.name)
    state.kernels[name] = tuple(kernel_of(x) for x in (part, *whole))
    if repair is not None:
        state.certificates.extend(certify(d.name, repair, "split-k-update"))


def _local(d: Def, axis: str, plan: SplitPlan, state: _State) -> tuple[Expr, tuple[Load, ...], Repair | None]:
    """The element of ``d``, the references in it that chunks have for themselves, and the repair between these."""
    combined = _awaited(d, state.cuts.keys(), state)
    mine = {name: c for name, c in state.cuts.items() if c.alike(axis, plan) and name not in combined}
    value = _expanded(d.value, axis, mine, state.unified)
    guard = tuple(_expanded(c, axis, mine, state.unified) for c in conjuncts(d.guard))
    read = dict.fromkeys(ld for e in (value, *guard) for ld in loads(e) if ld.buffer in mine)
    needs = tuple(ld for ld in read if _aligned(ld, mine[ld.buffer].whole))
    if not needs or any(ld not in needs for c in guard for ld in loads(c) if ld.buffer in mine):
        return d.value, (), None
    running = []
    for ld in needs:
        r = mine[ld.buffer].whole
        assert r.op is not None
        running.append(Running(ld, r.op, _expanded(r.value, axis, mine, state.unified), conjuncts(r.guard)))
    assert d.op is not None
    found = derive(value, guard, d.op, running, frozenset({axis}))
    if isinstance(found, Refusal):
        return d.value, (), None
    return value, needs, found


def _awaited(d: Def, local: Collection[str], state: _State) -> frozenset[str]:
    """The cuts that are combined before the chunks of ``d`` run, which have references of their own for ``local``."""
    read = {ld.buffer for ld in d.reads()} & state.cuts.keys()
    return frozenset(read - {*local}).union(*(state.cuts[name].awaits for name in read))


def _is_single(plan: SplitPlan, axis: Axis, d: Def) -> bool:
    """Whether each chunk is one element of ``axis``, one of several axes of ``d``: partial results lie along it."""
    return len(d.red) > 1 and plan.tile == 1 and axis.extent == plan.splits


def _aligned(ld: Load, d: Def) -> bool:
    return ld.index == d.index


def _expanded(e: Expr, axis: str, mine: dict[str, _Cut], unified: Unified) -> Expr:
    """``e`` with the definitions of elementwise values along ``axis`` that contain a reference of a chunk."""

    def rule(n: Expr) -> Expr | None:
        d = next((x for x in unified.defs if x.name == n.buffer), None) if isinstance(n, Load) else None
        if d is None or d.is_reduction or d.guard is not None or d.axis(axis) is None or not _aligned(n, d):  # type: ignore[arg-type]
            return None
        value = _expanded(d.value, axis, mine, unified)
        # A value of a storage type rounds, and no repair is proved for that.
        return value if value.dtype is n.dtype and any(ld.buffer in mine for ld in loads(value)) else None

    return rewrite(e, rule)


def _part(
    d: Def, value: Expr, needs: tuple[Load, ...], repair: Repair | None, by: Axis, axis: Axis, state: _State
) -> Def:
    """The partial results of ``d``: one more axis, its own references, the condition of its chunk."""
    plan = state.plans[d.name]

    def own(n: Expr) -> Expr | None:
        if repair is None or not isinstance(n, Load) or n not in needs:
            return None
        k = needs.index(n)
        return _reference(_of_chunk(n, by, state), state.cuts[n.buffer], repair.references[k])

    buffer = state.temp(f"{d.name}_part", d.buffer.dtype, (by, *d.par))
    if by is axis:
        red = tuple(a for a in d.red if a is not axis)
        return replace(d, name=buffer.name, buffer=buffer, par=(by, *d.par), red=red, at=None)
    chunk = chunk_guard(by.name, axis.name, axis.extent, plan.tile, plan.splits, plan.interleave)
    guard = conjunction((chunk, None if d.guard is None else rewrite(d.guard, own)))
    return replace(
        d, name=buffer.name, buffer=buffer, par=(by, *d.par), value=rewrite(value, own), guard=guard, at=None
    )


def _of_chunk(ld: Load, by: Axis, state: _State) -> Load:
    """The partial result of chunk ``by`` for the whole result ``ld``."""
    own = state.cuts[ld.buffer].whole.par
    return Load(state.cuts[ld.buffer].part.name, (Var(by.name), *(Var(a.name) for a in own)), ld.dtype)


def _reference(r: Expr, cut: _Cut, value: float | None) -> Expr:
    assert cut.whole.op is not None
    return r if value is None else reference_of(r, cut.whole.op, value)


def _whole(
    d: Def, part: Def, needs: tuple[Load, ...], repair: Repair | None, by: Axis, state: _State
) -> tuple[Def, ...]:
    """The combine of the partial results; two definitions where it must be finalised."""
    here = Load(part.name, tuple(Var(a.name) for a in part.par), part.buffer.dtype)
    if repair is None:
        return (replace(d, red=(by,), value=here, guard=None),)
    env: dict[str, Expr] = {**dict(repair.symbols), "a": here}
    for k, ld in enumerate(needs):
        cut, value = state.cuts[ld.buffer], repair.references[k]
        old = _of_chunk(ld, by, state)
        env[f"old{k}"] = old if repair.raw_old[k] else _reference(old, cut, value)
        env[f"new{k}"] = _reference(ld, cut, value)
    combined = replace(d, red=(by,), value=substitute(repair.t, env), guard=None)
    if not repair.finalise or repair.factor is None:
        return (combined,)
    buffer = state.temp(f"{d.name}_whole", d.buffer.dtype, d.par)
    at = Load(buffer.name, tuple(Var(a.name) for a in d.par), buffer.dtype)
    env["a"] = at
    for k, ld in enumerate(needs):
        ref = _reference(ld, state.cuts[ld.buffer], repair.references[k])
        env[f"old{k}"] = ref
        env[f"new{k}"] = ref if repair.raw_old[k] or repair.finite[k] else ld
    assert d.op is not None
    untouched = Op("eq", (at, identity(d.op, at.dtype)), DType.BOOL)
    finalised = Op("select", (untouched, at, substitute(repair.t, env)), at.dtype)
    last = replace(d, red=(), op=None, value=finalised, guard=None)
    return (replace(combined, name=buffer.name, buffer=buffer, at=None), last)
