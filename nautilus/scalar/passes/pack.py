"""``pack``: splits an axis into groups of a fixed size, so that a group can form the rows of a tile.

Several rows of a grid that read the same streamed operand belong in one tile.  If ``h`` is read only as ``h // 8``
(eight query heads that share a key head), ``h = 8 * h_group + h_member`` turns the index of that operand into
``h_group``; the operand does not depend on ``h_member``, which becomes rows of the MMA.  The pass only rewrites
definitions; the planner chooses the tile axes from the operands.

The axis is split in every definition whose axes are unified with it (``axes``).  A dimension of a temp becomes two, and
a read at position ``e`` becomes a read at ``e // 8, e % 8``.  An output keeps its shape and is stored at
``8 * h_group + h_member``.  The pass is legal if the size divides the extent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads, rewrite, substitute
from nautilus.core.expr.products import matrix_product
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import PackPlan, Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.axes import Unified, unify
from nautilus.scalar.analysis.contractions.scales import unscaled
from nautilus.scalar.analysis.definitions import Def, read_by_supports, read_defs
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import axis_assumptions, fresh_name, kernel_of


@dataclass(frozen=True, slots=True)
class Pack:
    """Cut the axes that ``schedule.packs`` names; without a schedule, or a name in it, the program stays."""

    schedule: Schedule | None = None

    name = "pack"

    def apply(self, program: Program) -> Program:
        """The program with groups. Raises ScheduleError for an axis or a size that does not fit it."""
        for plan in (self.schedule.packs if self.schedule is not None else None) or ():
            program = pack(program, plan, contracted=False)
        return program


def pack(program: Program, plan: PackPlan, contracted: bool = True) -> Program:
    """``program`` with one axis in groups.

    ``contracted``: also where a product contracts the whole axis, and in the temps that only such products read.
    Raises ScheduleError.
    """
    original = read_defs(program)
    d = original.get(plan.op)
    names = [] if d is None else [a.name for a in d.axes]
    if plan.axis not in names:
        raise ScheduleError(f"packs: {plan.op!r} has no axis {plan.axis!r}")
    unified = unify(tuple(original.values()), tuple(p.name for p in program.params))
    axis = unified.get(plan.op).axes[names.index(plan.axis)]
    if not isinstance(axis.extent, int) or axis.extent % plan.size:
        raise ScheduleError(f"packs: groups of {plan.size} do not divide axis {plan.axis!r} of {plan.op}")
    group, member = (fresh_name(program, f"{axis.name}_{part}", unified.extents) for part in ("group", "member"))
    cut = _Cut(axis, plan.size, group, member)
    dims = _dimensions(unified, axis.name)
    outputs = {d.name for d in unified.defs if d.buffer.space is Space.OUTPUT and axis in d.par}
    whole = frozenset[str]() if contracted else _contracting(unified, axis.name, dims.keys(), outputs)
    read = {n for d in unified.defs if d.name in whole for n in _operands(d)}
    dims = {n: k for n, k in dims.items() if n not in read | read_by_supports(program.buffers)}
    kernels = tuple(kernel_of(d if d.name in whole else _packed(d, cut, dims)) for d in unified.defs)
    buffers = tuple(_reshaped(b, plan.size, dims) for b in program.buffers)
    return Simplify().apply(replace(program, buffers=buffers, kernels=kernels))


@dataclass(frozen=True, slots=True)
class _Cut:
    """``axis`` as ``group * size + member``."""

    axis: Axis
    size: int
    group: str
    member: str

    @property
    def axes(self) -> tuple[Axis, Axis]:
        assert isinstance(self.axis.extent, int)
        return Axis(self.group, self.axis.extent // self.size), Axis(self.member, self.size)

    @property
    def position(self) -> Expr:
        """The old index."""
        return calc("add", calc("mul", Var(self.group), self.size), Var(self.member))


def _dimensions(unified: Unified, axis: str) -> Mapping[str, int]:
    """Temp -> its dimension that becomes two."""
    found = {}
    for d in unified.defs:
        names = [a.name for a in d.par]
        if d.buffer.space is Space.TEMP and d.at is None and axis in names:
            found[d.name] = names.index(axis)
    return found


def _contracting(unified: Unified, axis: str, temps: Collection[str], outputs: Collection[str]) -> frozenset[str]:
    """The products that contract ``axis`` of ``outputs``, or of ``temps`` that other definitions do not read.

    They read its positions, and one loop over the whole axis has the steps that suit the product.  An output keeps its
    shape, whatever reads it.  Scales for groups of terms
    (:mod:`nautilus.scalar.analysis.contractions.scales`) may be read at groups of the axis.
    """

    def is_whole(d: Def) -> bool:
        if d.op != "sum" or d.guard is not None or [a.name for a in d.red] != [axis]:
            return False
        value = unscaled(d)
        places = (e for ld in loads(value) for e in ld.index if axis in free_vars(e))
        product = matrix_product(value, [a.name for a in d.par]) is not None
        return product and not _operands(d).isdisjoint({*temps, *outputs}) and all(isinstance(e, Var) for e in places)

    found = {d.name: _operands(d) & set(temps) for d in unified.defs if is_whole(d)}
    others = {n for d in unified.defs if d.name not in found for n in _operands(d)}
    while apart := {name for name, read in found.items() if read & others}:
        others |= {n for name in apart for n in found.pop(name)}
    return frozenset(found)


def _operands(d: Def) -> set[str]:
    return {ld.buffer for ld in d.reads()}


def _reshaped(b: Buffer, size: int, dims: Mapping[str, int]) -> Buffer:
    if b.name not in dims:
        return b
    k = dims[b.name]
    extent = b.shape[k]
    assert isinstance(extent, int)
    places: list[Expr] = [Var(f"i{n if n < k else n + 1}") for n in range(len(b.shape))]
    places[k] = calc("add", calc("mul", Var(f"i{k}"), size), Var(f"i{k + 1}"))
    return replace(b, shape=(*b.shape[:k], extent // size, size, *b.shape[k + 1 :]), support=b.supported(places))


def _packed(d: Def, cut: _Cut, dims: Mapping[str, int]) -> Def:
    """``d`` over the two axes, reading reshaped temps at two positions."""
    env = {cut.axis.name: cut.position} if d.axis(cut.axis.name) is not None else {}
    par = tuple(x for a in d.par for x in (cut.axes if a.name == cut.axis.name else (a,)))
    red = tuple(x for a in d.red for x in (cut.axes if a.name == cut.axis.name else (a,)))
    ranges, assumptions = axis_assumptions((*par, *red))

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, Load) or n.buffer not in dims:
            return None
        k, size = dims[n.buffer], integer(cut.size)
        both = (Op(o, (n.index[k], size), DType.I32) for o in ("floordiv", "mod"))
        wide = {v: (lo, max(hi, lo + 1)) for v, (lo, hi) in ranges.items()}  # an axis of one stays a variable
        return replace(n, index=(*n.index[:k], *(simplify(e, wide, assumptions) for e in both), *n.index[k + 1 :]))

    def put(e: Expr) -> Expr:
        return rewrite(substitute(e, env), rule)

    moved = d.name not in dims and env and any(a.name == cut.axis.name for a in d.par)
    at = None if d.at is None and not moved else tuple(map(put, d.index))  # a scatter may read a temp there
    guard = None if d.guard is None else put(d.guard)
    buffer = _reshaped(d.buffer, cut.size, dims)
    return replace(d, buffer=buffer, par=par, red=red, value=put(d.value), guard=guard, at=at)
