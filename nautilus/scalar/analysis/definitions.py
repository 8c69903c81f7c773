"""Definitions: the computation of an unfused kernel, extracted from its loop nest.

Before ``fuse`` every kernel defines one buffer, in one of three shapes::

    par p... { X[p...] = value where guard }
    par p... { X[p...] = identity ; red r... { X[p...] op= value where guard } }
    par p... { X[at...] op= value where guard atomic }

:class:`Def` represents that nest.  Fusion and planning work on definitions and their axes, and ``fuse`` emits loops
again.  Every read of ``X`` in another kernel is a plain ``Load``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import (
    COMBINERS,
    Axis,
    Const,
    Expr,
    Load,
    Var,
    free_vars,
    identity,
    loads,
    substitute,
)
from nautilus.core.index.sizes import Extent, as_extent, nominal
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.source import NO_SPAN, Span
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, statements
from nautilus.targets.memory_rates import SECTOR


@dataclass(frozen=True, slots=True)
class Def:
    """One definition. ``op`` is None for an elementwise one.

    ``par`` has one axis for each dimension, in buffer order, unless ``at`` gives the position of an element, from which
    every axis can be computed (``h_group * 8 + h_member``).

    ``scatter``: the combiner of a scatter, whose axes ``par`` are those of its terms and whose ``at`` reads memory.
    """

    name: str
    buffer: Buffer
    par: tuple[Axis, ...]
    red: tuple[Axis, ...]
    op: str | None
    value: Expr
    guard: Expr | None
    span: Span = NO_SPAN
    at: tuple[Expr, ...] | None = None
    scatter: str | None = None

    @property
    def index(self) -> tuple[Expr, ...]:
        """The position of an element in the buffer."""
        return tuple(Var(a.name) for a in self.par) if self.at is None else self.at

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The parallel axes, then the reduced ones."""
        return self.par + self.red

    @property
    def is_reduction(self) -> bool:
        """Whether the definition is a reduction."""
        return self.op is not None

    def axis(self, name: str) -> Axis | None:
        """The axis called ``name``; None where there is none."""
        return next((a for a in self.axes if a.name == name), None)

    def reads(self) -> tuple[Load, ...]:
        """Every distinct load of the value, of the guard and of a position."""
        if self.guard is None and self.at is None:
            return loads(self.value)
        extra = () if self.guard is None else loads(self.guard)
        places = (ld for e in self.at or () for ld in loads(e))
        return tuple(dict.fromkeys((*loads(self.value), *extra, *places)))

    def init(self) -> Const:
        """The initial value of the accumulator."""
        assert self.op is not None
        return identity(self.op, self.buffer.dtype)


_PARALLEL = (Kind.PAR, Kind.GRID)


def points(axes: Iterable[Axis]) -> int:
    """The points of ``axes``; sizes that are known only at launch count with their nominal values."""
    return prod(nominal(a.extent) for a in axes)


def extent_of(loop: Loop) -> Extent | None:
    """The end of ``loop``, if it depends on sizes alone."""
    return None if free_vars(loop.hi) or loads(loop.hi) else as_extent(loop.hi)


def _axis(loop: Loop) -> Axis:
    if not (isinstance(loop.lo, Const) and loop.lo.value == 0):
        raise ScheduleError(f"loop {loop.var} does not start at 0")
    found = extent_of(loop)
    if found is None:
        raise ScheduleError(f"loop {loop.var} has a computed bound")
    return Axis(loop.var, found, loop.span)


def _descend(body: tuple[Stmt, ...], kinds: tuple[Kind, ...]) -> tuple[list[Axis], tuple[Stmt, ...]]:
    axes = []
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind in kinds:
        axes.append(_axis(body[0]))
        body = body[0].body
    return axes, body


def read_def(program: Program, kernel: Kernel) -> Def:
    """The definition that ``kernel`` computes. Raises ScheduleError for a kernel of another form.

    A kernel that several programs have in common has one definition in all of them.
    """
    name = _target(kernel)
    return _read(kernel, None if name is None else program.buffer(name))


def _target(kernel: Kernel) -> str | None:
    """The buffer of the first statement below the parallel loops of ``kernel``; None where there is none."""
    body = kernel.body
    while len(body) == 1 and isinstance(loop := body[0], Loop) and loop.kind in _PARALLEL:
        body = loop.body
    return body[0].buffer if body and isinstance(body[0], Store | Update) else None


@by_identity(1024)
def _read(kernel: Kernel, buffer: Buffer | None) -> Def:
    """The definition that ``kernel`` computes, the elements of ``buffer``.  Raises ScheduleError as above."""
    par, body = _descend(kernel.body, _PARALLEL)
    if not kernel.locals and len(body) == 1 and isinstance(body[0], Update) and body[0].atomic:
        assert buffer is not None
        s = body[0]
        return Def(buffer.name, buffer, tuple(par), (), None, s.value, s.guard, s.span, s.index, s.op)
    if kernel.locals or not body or not isinstance(body[0], Store):
        raise ScheduleError(f"kernel {kernel.name} is not an unfused definition")
    assert buffer is not None
    first = body[0]
    ordered, at = _stored_at(first, par, kernel)
    if len(body) == 1:
        return Def(buffer.name, buffer, ordered, (), None, first.value, first.guard, first.span, at)
    red, inner = _descend(body[1:], (Kind.RED,))
    if len(body) != 2 or len(inner) != 1 or not isinstance(inner[0], Update):
        raise ScheduleError(f"kernel {kernel.name} is not an unfused reduction")
    update = inner[0]
    if update.buffer != first.buffer or update.index != first.index or update.op not in COMBINERS:
        raise ScheduleError(f"kernel {kernel.name} updates another element than it initialises")
    if first.value != identity(update.op, buffer.dtype):
        raise ScheduleError(f"kernel {kernel.name} does not start from the identity of {update.op}")
    return Def(buffer.name, buffer, ordered, tuple(red), update.op, update.value, update.guard, update.span, at)


def _stored_at(s: Store, par: list[Axis], kernel: Kernel) -> tuple[tuple[Axis, ...], tuple[Expr, ...] | None]:
    """The axes in the order of the index, and the index itself where its positions are not plain axes."""
    names = tuple(v.name for v in s.index if isinstance(v, Var))
    if len(names) == len(s.index) and sorted(names) == sorted(a.name for a in par):
        return tuple(next(a for a in par if a.name == n) for n in names), None
    used = frozenset[str]().union(*(free_vars(e) for e in s.index))
    if used != {a.name for a in par} or any(loads(e) for e in s.index):
        raise ScheduleError(f"kernel {kernel.name} does not store at its own axes")
    return tuple(par), s.index


@by_identity(1024)
def reads_of(k: Kernel) -> frozenset[str]:
    """The buffers that ``k`` loads."""
    found: set[str] = set()
    for _, s in statements(k.body):
        for e in (*s.index, s.value, *([] if s.guard is None else [s.guard])):
            found |= {ld.buffer for ld in loads(e)}
    return frozenset(found)


def read_by_supports(buffers: Iterable[Buffer]) -> frozenset[str]:
    """The tensors whose elements say where temps are 0; these stay, with the order of their elements."""
    return frozenset(ld.buffer for b in buffers if b.support is not None for ld in loads(b.support))


@by_identity(1024)
def writes_of(k: Kernel) -> frozenset[str]:
    """The buffers in global memory that ``k`` writes."""
    return frozenset(s.buffer for _, s in statements(k.body)) - {b.name for b in k.locals}


@by_identity(1024)
def is_recurrence(k: Kernel) -> bool:
    """Whether ``k`` reads in global memory what it writes."""
    return not reads_of(k).isdisjoint(writes_of(k))


def read_defs(program: Program) -> dict[str, Def]:
    """Every definition by name, in program (dependence) order, but for those of recurrences."""
    return dict(_defs(program))


@by_identity(64)
def _defs(program: Program) -> dict[str, Def]:
    defs = (read_def(program, k) for k in program.kernels if not is_recurrence(k))
    return {d.name: d for d in defs}


def rename_axes(d: Def, names: Mapping[str, str]) -> Def:
    """``d`` with its axes renamed (simultaneously)."""
    env = {a.name: Var(names.get(a.name, a.name)) for a in d.axes}

    def axis(a: Axis) -> Axis:
        return replace(a, name=names.get(a.name, a.name))

    return replace(
        d,
        par=tuple(axis(a) for a in d.par),
        red=tuple(axis(a) for a in d.red),
        value=substitute(d.value, env),
        guard=None if d.guard is None else substitute(d.guard, env),
        at=None if d.at is None else tuple(substitute(e, env) for e in d.at),
    )


def size(axis: Axis) -> int | None:
    """The extent of ``axis`` where it is known."""
    return axis.extent if isinstance(axis.extent, int) else None


def slides(d: Def, some: Set[str], others: Set[str]) -> bool:
    """Whether a position in a tensor that ``d`` reads depends on an axis of ``some`` and on one of ``others``.

    So a window does, which a tap moves along a tensor.
    """
    positions = (free_vars(e) for ld in d.reads() for e in ld.index)
    return any(names & some and names & others for names in positions)


def contiguous(defs: Iterable[Def], axis: str) -> bool:
    """Whether every tensor from other kernels that ``defs`` read along ``axis`` is contiguous along it."""
    found = tuple(defs)
    names = {d.name for d in found}
    reads = (ld for d in found for ld in d.reads() if ld.buffer not in names)
    return all(ld.index[-1] == Var(axis) for ld in reads if any(axis in free_vars(e) for e in ld.index))


def sector_results(d: Def) -> int:
    """The results of the reduction ``d`` that share each sector of memory, as those of columns do; 1: they share none.

    Its operands along the reduced axes are contiguous along results then.
    """
    reduced = {a.name for a in d.red}
    operands = [ld for ld in loads(d.value) if ld.index and free_vars(ld) & reduced]
    fast = {x.name for ld in operands if isinstance(x := ld.index[-1], Var)}
    across = [size(a) or SECTOR for a in d.par if a.name in fast]
    return 1 if fast & reduced or not across else min(SECTOR // max(ld.dtype.bytes for ld in operands), *across)
