"""The interpreter of the Scalar IR in numpy, the reference for the lower levels.

``seq`` loops run in Python.  ``par``, ``red``, ``tile`` and ``tile.red`` loops are vectorised: their iterations are
independent, or only update, so a statement may run over the whole space before the next one starts.  ``grid`` loops
run in batches of as many blocks as the memory of their locals permits.  A grid variable that bounds an inner loop runs
in Python if blocks are large.

Mode ``real`` computes in float64, skips ``narrow`` and rounds stores to storage types; mode ``typed`` rounds every
operation.  An access outside a buffer, a read of an element that is not initialised, and an output with elements that
are never written raise :class:`ScalarRunError`, and so does an element that is not 0 outside of its buffer's support.

:mod:`nautilus.scalar.interp.space` evaluates expressions, and :mod:`nautilus.scalar.interp.contraction` contracts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from nautilus.core.buffers import Buffer, extents
from nautilus.core.buffers import Space as Where
from nautilus.core.expr.build import calc
from nautilus.core.expr.infer import stored_value
from nautilus.core.expr.nodes import COMBINERS, Expr, Load, Param, Var, free_vars, identity, loads, walk
from nautilus.core.index.simplify import conjuncts
from nautilus.core.numerics import Array, Mode, combine_at, eval_quietly, from_storage, reduce_array, round_to
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.interp.contraction import contract
from nautilus.scalar.interp.space import Access, Mask, Memory, Range, ScalarRunError, Space, Tables, both
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, common_loops, statements
from nautilus.scalar.text import first_line

__all__ = ["ScalarRunError", "run_program"]

_POINTS = 1 << 20  # points of one statement that are evaluated at once
_MATRIX = 1 << 24  # elements of one factor or result of a contraction
_LOCALS = 1 << 18  # elements of all locals of the blocks that run at once
_BIG_TILE = 256  # points of a statement beside which a Python iteration takes little time


def run_program(
    p: Program,
    inputs: Mapping[str, Array],
    scalars: Mapping[str, int | float | bool] | None = None,
    mode: Mode = "real",
) -> dict[str, Array]:
    """All outputs and temps by name, in their working type (float64, int64 or bool).

    ``inputs``, by name, have the declared shape and any numeric type; they are rounded to the declared type
    (unsigned arrays for bf16 and 8-bit floats are bits).  ``scalars``, by parameter name, need not contain runtime
    sizes that the shapes of inputs determine.  Raises ScalarRunError.
    """
    values = {s.name: s.default for s in p.params if s.default is not None} | dict(scalars or {})
    values |= {k: v for k, v in _sizes(p, inputs).items() if k not in values}
    missing = sorted({s.name for s in p.params} - values.keys())
    if missing:
        raise ScalarRunError(f"no value for scalar {', '.join(missing)}")
    memory: dict[str, Memory] = {}
    for b in p.buffers:
        if b.space is Where.INPUT:
            memory[b.name] = Memory(b.name, _input(b, values, inputs))
        else:
            memory[b.name] = Memory.fresh(b.name, extents(b.shape, values), b.dtype)
            if b.initial is not None:
                memory[b.name].data[...], memory[b.name].written = b.initial, None
    with np.errstate(all="ignore"):
        for k in p.kernels:
            _Run(p, k, Tables(memory, values, mode)).run()
        for b in (b for b in p.buffers if b.support is not None):
            _check_support(b, Tables(memory, values, mode))
    for b in p.buffers:
        marks = memory[b.name].missing()
        if b.space is Where.OUTPUT and marks is not None and not marks.all():
            raise ScalarRunError(f"{b.name}: {int((~marks).sum())} of {marks.size} elements are never written")
    found = ((b, memory[b.name].data) for b in p.buffers if b.space is not Where.INPUT)
    return {b.name: x.reshape(extents(b.array_shape, values)) for b, x in found}


def _check_support(b: Buffer, tables: Tables) -> None:
    """Raise ScalarRunError if an element of ``b`` is not 0 and its support is false."""
    data = tables.memory[b.name].data
    assert b.support is not None
    inside = Space(tables, tuple(Range(f"i{n}", 0, size) for n, size in enumerate(data.shape)), {}).eval(b.support)
    if np.any((data != 0) & ~np.broadcast_to(inside, data.shape)):
        raise ScalarRunError(f"{b.name} is not 0 where its support is false")


def _sizes(p: Program, inputs: Mapping[str, Array]) -> dict[str, int]:
    """Runtime sizes from the inputs' shapes."""
    out: dict[str, int] = {}
    for b in p.buffers:
        if b.name in inputs:
            for e, n in zip(b.array_shape, np.shape(inputs[b.name]), strict=False):
                if isinstance(e, Param):
                    out.setdefault(e.name, n)
    return out


def _input(b: Buffer, scalars: Mapping[str, Any], inputs: Mapping[str, Array]) -> Array:
    if b.name not in inputs:
        raise ScalarRunError(f"no value for input {b.name}")
    x, declared = np.asarray(inputs[b.name]), extents(b.array_shape, scalars)
    if x.shape != declared:
        raise ScalarRunError(f"input {b.name} has shape {x.shape}, declared {declared}")
    x = x.reshape(extents(b.shape, scalars))
    bits = b.dtype.stored_as_bits and x.dtype.kind == "u"
    return from_storage(x, b.dtype) if bits else round_to(x, b.dtype)


@dataclass(frozen=True, slots=True)
class _At:
    """The iterations that run together: vectorised loops, variables with one value, and guards of ragged loops."""

    axes: tuple[Range, ...] = ()
    env: Mapping[str, int] | None = None
    guards: tuple[Expr, ...] = ()

    def with_axis(self, r: Range, guards: tuple[Expr, ...] = ()) -> _At:
        if r.n == 1:
            return _At(self.axes, {**(self.env or {}), r.var: r.lo}, (*self.guards, *guards))
        return _At((*self.axes, r), self.env, (*self.guards, *guards))


class _Run:
    """A run of one kernel."""

    def __init__(self, p: Program, k: Kernel, tables: Tables) -> None:
        self.kernel = k
        self.tables = tables
        self.mode = tables.mode
        self.dtypes = {b.name: b.dtype for b in (*p.buffers, *k.locals)}
        self.locals = {b.name: b for b in k.locals}
        self.private = {b.name: _private(k, b.name) for b in k.locals}
        self.memory = dict(tables.memory)
        self.tables.memory = self.memory
        self.guards: dict[int, tuple[Expr, tuple[Expr, ...]]] = {}
        self.touched: dict[int, tuple[str, ...]] = {}

    def run(self) -> None:
        chain: list[Loop] = []
        body = self.kernel.body
        while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.GRID:
            chain.append(body[0])
            body = body[0].body
        bounding = _bounding(body)
        big = max((_volume(loops) for loops, _ in statements(body)), default=1) >= _BIG_TILE
        local = sum(prod(extents(b.shape, self.tables.scalars)) for b in self.kernel.locals)
        self._grid(chain, body, _At((), {}), bounding if big else frozenset(), max(local, 1))

    def _grid(self, chain: Sequence[Loop], body: tuple[Stmt, ...], at: _At, alone: frozenset[str], local: int) -> None:
        """Run the remaining grid loops. ``alone``: those that run in Python; ``local``: elements of locals a block."""
        if not chain:
            for name in self.locals:
                self.memory.pop(name, None)
            self.block(body, at)
            return
        loop = chain[0]
        lo, hi, guards = self._range(loop, at)
        inner = local
        for other in chain[1:]:
            if other.var not in alone:
                inner *= max(1, self._trips(other))
        step = 1 if loop.var in alone else max(1, _LOCALS // inner) if self.locals else max(1, hi - lo)
        if not chain[1:] and self.kernel.team > 1:
            step = hi - lo
        for start in range(lo, hi, step):
            self._grid(
                chain[1:],
                body,
                at.with_axis(Range(loop.var, start, min(step, hi - start)), guards),
                alone,
                local,
            )

    def _trips(self, loop: Loop) -> int:
        try:
            lo, hi, _ = self._range(loop, _At((), {}))
        except KeyError:  # it depends on an outer grid variable
            return 1
        return hi - lo

    def block(self, body: tuple[Stmt, ...], at: _At) -> None:
        """Run statements in order."""
        for s in body:
            if not isinstance(s, Loop):
                self.statement(s, at)
                continue
            lo, hi, guards = self._range(s, at)
            if s.kind.is_ordered:
                for i in s.kind.order(lo, hi):
                    self.block(s.body, at.with_axis(Range(s.var, i, 1), guards))
            elif lo < hi:
                self.block(s.body, at.with_axis(Range(s.var, lo, hi - lo), guards))

    def _range(self, loop: Loop, at: _At) -> tuple[int, int, tuple[Expr, ...]]:
        """The bounds of ``loop`` over all points of ``at``, and guards for points whose own bounds are tighter."""
        space = Space(self.tables, at.axes, at.env or {})
        mask = tuple(space.eval(g) for g in at.guards)
        lo, hi = space.eval(loop.lo, mask), space.eval(loop.hi, mask)
        guards = []
        var = Var(loop.var)
        if lo.size > 1:
            guards.append(calc("le", loop.lo, var))
        if hi.size > 1:
            guards.append(calc("lt", var, loop.hi))
        return int(lo.min()), int(hi.max()), tuple(guards)

    # -- statements -------------------------------------------------------------------------------
    def statement(self, s: Store | Update, at: _At) -> None:
        """Run one statement over the whole space. Raises a ScalarRunError that names it."""
        try:
            if self.locals:
                for name in self._touched(s):
                    self._allocate(name, at)
            guards = (*at.guards, *self._parts(s.guard))
            if isinstance(s, Store):
                for axes in _pieces(at.axes, _POINTS, range(len(at.axes))):
                    self._store(s, Space(self.tables, axes, at.env or {}), guards)
            else:
                self._update(s, at.axes, at.env or {}, guards)
        except ScalarRunError as e:
            if "\n" in str(e):
                raise
            place = ", ".join(f"{k}={v}" for k, v in (at.env or {}).items())
            raise ScalarRunError(f"{e}\n  in kernel {self.kernel.name}: {first_line(s)} ({place})") from None

    def _parts(self, guard: Expr | None) -> tuple[Expr, ...]:
        """The conjuncts of a guard, the same objects for every call."""
        if guard is None:
            return ()
        if id(guard) not in self.guards:
            self.guards[id(guard)] = (guard, conjuncts(guard))
        return self.guards[id(guard)][1]

    def _touched(self, s: Store | Update) -> tuple[str, ...]:
        """The locals that ``s`` accesses."""
        if id(s) not in self.touched:
            exprs = [s.value, *s.index, *([] if s.guard is None else [s.guard])]
            names = {ld.buffer for e in exprs for ld in loads(e)} | {s.buffer}
            self.touched[id(s)] = tuple(n for n in self.locals if n in names)
        return self.touched[id(s)]

    def _allocate(self, name: str, at: _At) -> None:
        """A local's memory, with a copy for each point of the loops that it is private to."""
        own = tuple(a for a in at.axes if a.var in self.private[name])
        if name not in self.memory or self.memory[name].own != own:
            b = self.locals[name]
            self.memory[name] = Memory.fresh(name, extents(b.shape, self.tables.scalars), b.dtype, own)

    def _masked(self, space: Space, guards: tuple[Expr, ...]) -> Mask | None:
        """The guards' values; None if they exclude every point."""
        mask: Mask = ()
        for g in guards:
            m = space.eval(g, mask)
            if not m.any():
                return None
            if not m.all():
                mask = (*mask, m)
        return mask

    def _store(self, s: Store, space: Space, guards: tuple[Expr, ...]) -> None:
        mask = self._masked(space, guards)
        if mask is None:
            return
        dtype = self.dtypes[s.buffer]
        value = space.eval(s.value, mask)
        if stored_value(s.value, dtype) is s.value:
            value = self._rounded(value, dtype)
        self._write(space, s.buffer, space.access(s.buffer, s.index, mask), value, mask)

    def _rounded(self, value: Array, dtype: DType) -> Array:
        return eval_quietly("cast", [value], dtype, self.mode)

    def _write(self, space: Space, name: str, access: Access, value: Array, mask: Mask) -> None:
        memory = self.memory[name]
        live = both(mask) if mask else None
        marks = memory.missing()
        if access.axes is not None:
            view = access.get(memory.data, space.rank)
            shape = np.broadcast_shapes(view.shape, value.shape, () if live is None else live.shape)
            for axis in (n for n, size in enumerate(shape) if size != view.shape[n]):
                if live is None or (live.shape[axis] == 1) or (live.sum(axis) > 1).any():
                    raise ScalarRunError(f"{name} is written several times in one step")
                value, live = _only(value, live, axis)
            view[...] = value if live is None else np.where(live, value, view)
            if marks is not None:
                seen = access.get(marks, space.rank)
                seen[...] = True if live is None else seen | live
        else:
            at, value, live = _flat(access.at, value, live)
            if live is not None:
                at, value = tuple(a[live] for a in at), value[live]
            memory.data[at] = value
            if marks is not None:
                marks[at] = True
        memory.dirty = True

    def _update(self, s: Update, axes: tuple[Range, ...], env: Mapping[str, int], guards: tuple[Expr, ...]) -> None:
        own = {r.var for r in self.memory[s.buffer].own} if s.buffer in self.memory else set()
        names = frozenset[str]().union(*(free_vars(i) for i in s.index)) | own
        red = frozenset(p for p, a in enumerate(axes) if a.var not in names)
        order = [p for p in range(len(axes)) if p not in red] + sorted(red)
        if s.op == "sum" and red:
            todo = [axes]
            while todo:
                piece = todo.pop()
                if self._too_wide(s.value, piece, red):
                    todo.extend(_pieces(piece, prod(a.n for a in piece) // 2, order))
                    continue
                space = Space(self.tables, piece, env)
                total = contract(space, s.value, guards, red, self.mode)
                if total is None:
                    self._combine_pieces(s, piece, env, guards, red, order)
                else:
                    self._combine(s, space, total, guards, red)
            return
        self._combine_pieces(s, axes, env, guards, red, order)

    def _too_wide(self, value: Expr, axes: tuple[Range, ...], red: frozenset[int]) -> bool:
        """Whether a contraction's result is too large; factors are smaller than the result or their own loads."""
        kept = prod(a.n for p, a in enumerate(axes) if p not in red)
        wide = max((prod(a.n for a in axes if a.var in free_vars(ld)) for ld in loads(value)), default=1)
        return max(kept, wide) > _MATRIX and prod(a.n for a in axes) > 1

    def _combine_pieces(
        self, s: Update, axes: tuple[Range, ...], env: Mapping[str, int], guards: tuple[Expr, ...],
        red: frozenset[int], order: list[int],
    ) -> None:  # fmt: skip
        dtype = self.dtypes[s.buffer]
        for piece in _pieces(axes, _POINTS, order):
            space = Space(self.tables, piece, env)
            mask = self._masked(space, guards)
            if mask is None:
                continue
            value = space.eval(s.value, mask)
            if mask:
                start = np.asarray(identity(s.op, dtype).value)
                value = eval_quietly("select", [both(mask), value, start], dtype, self.mode)
            if red:
                shape = [a.n if p in red else 1 for p, a in enumerate(piece)]
                value = np.broadcast_to(value, np.broadcast_shapes(tuple(shape), value.shape))
                value = reduce_array(s.op, value, tuple(red), dtype, self.mode, keepdims=True)
            self._combine(s, space, value, guards, red)

    def _combine(self, s: Update, space: Space, value: Array, guards: tuple[Expr, ...], red: frozenset[int]) -> None:
        """Combine ``value``, already reduced over ``red``, into the buffer."""
        mask = self._masked(space, guards)
        if mask is None:
            return
        live = _surviving(mask, red)
        kept = replace_axes(space, red)
        access = kept.access(s.buffer, s.index, live)
        memory = self.memory[s.buffer]
        marks = memory.missing()
        if marks is not None:
            bad = ~access.get(marks, kept.rank)
            if np.any(bad if not live else bad & live[0]):
                raise ScalarRunError(f"{s.buffer} is updated before it is initialised")
        dtype, binary = self.dtypes[s.buffer], COMBINERS[s.op].binary
        if access.axes is not None:
            new = eval_quietly(binary, [access.get(memory.data, kept.rank), value], dtype, self.mode)
            self._write(kept, s.buffer, access, new, live)
            return
        at, value, alive_ = _flat(access.at, value, live[0] if live else None)
        if alive_ is not None:
            at, value = tuple(a[alive_] for a in at), value[alive_]
        combine_at(s.op, memory.data, at, value, dtype, self.mode)


def _surviving(mask: Mask, red: frozenset[int]) -> Mask:
    """The mask of positions with a point along the axes ``red`` that the mask admits.

    The parts that depend on ``red`` become one array; the others are unchanged.
    """
    kept: list[Array] = []
    mixed: list[Array] = []
    for m in mask:
        (mixed if any(m.ndim and m.shape[p] > 1 for p in red) else kept).append(m)
    if mixed:
        kept.append(np.asarray(both(tuple(mixed)).any(axis=tuple(red), keepdims=True)))
    return (both(tuple(kept)),) if kept else ()


def replace_axes(space: Space, red: frozenset[int]) -> Space:
    """``space`` with the axes ``red`` at one point (the index does not depend on them)."""
    if not red:
        return space
    axes = tuple(replace(a, n=1) if p in red else a for p, a in enumerate(space.axes))
    return Space(space.tables, axes, space.env)


def _only(value: Array, live: Array, axis: int) -> tuple[Array, Array]:
    """``value`` at the one position along ``axis`` that is ``live``, and whether there is one."""
    value, live = np.broadcast_arrays(value, live)
    found = np.take_along_axis(value, live.argmax(axis=axis, keepdims=True), axis)
    return found, np.asarray(live.any(axis=axis, keepdims=True))


def _flat(at: tuple[Any, ...], value: Array, live: Array | None) -> tuple[tuple[Array, ...], Array, Array | None]:
    """Index arrays, values and marks, all of one shape."""
    arrays = [np.asarray(a) for a in at]
    shape = np.broadcast_shapes(value.shape, *(a.shape for a in arrays), () if live is None else live.shape)
    index = tuple(np.broadcast_to(a, shape) for a in arrays)
    return index, np.broadcast_to(value, shape), None if live is None else np.broadcast_to(live, shape)


def _pieces(axes: tuple[Range, ...], limit: int, order: Sequence[int]) -> Iterator[tuple[Range, ...]]:
    """The space in pieces of at most ``limit`` points (at least one), split along ``order``."""
    total = prod(a.n for a in axes)
    p = next((q for q in order if axes[q].n > 1), None)
    if total <= max(limit, 1) or p is None:
        if total:
            yield axes
        return
    a = axes[p]
    step = max(1, limit // (total // a.n))
    for k in range(0, a.n, step):
        part = Range(a.var, a.lo + k, min(step, a.n - k))
        yield from _pieces((*axes[:p], part, *axes[p + 1 :]), limit, order)


def _volume(loops: tuple[Loop, ...]) -> int:
    total = 1
    for loop in loops:
        if not loop.kind.is_ordered:
            hi = getattr(loop.hi, "value", None)
            total *= int(hi) if isinstance(hi, int) else _BIG_TILE
    return total


def _bounding(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Variables that the bounds of loops under ``body`` depend on."""
    found: set[str] = set()
    stack = list(body)
    while stack:
        s = stack.pop()
        if isinstance(s, Loop):
            found |= free_vars(s.lo) | free_vars(s.hi)
            stack.extend(s.body)
    return frozenset(found)


def _private(k: Kernel, name: str) -> frozenset[str]:
    """The loops around every access to local ``name`` whose iterations each have a private copy of it.

    These are all common loops except ``seq`` loops, which carry the local, and loops whose variable indexes it, whose
    iterations access different elements.
    """
    common: tuple[Loop, ...] | None = None
    indexed: set[str] = set()
    for loops, s in statements(k.body):
        index = [s.index] if s.buffer == name else []
        exprs = [s.value, *s.index, *([] if s.guard is None else [s.guard])]
        index += [n.index for e in exprs for n in walk(e) if isinstance(n, Load) and n.buffer == name]
        if not index:
            continue
        indexed |= frozenset[str]().union(*(free_vars(i) for at in index for i in at))
        common = loops if common is None else common_loops(common, loops)
    return frozenset(loop.var for loop in common or () if not loop.kind.is_ordered and loop.var not in indexed)
