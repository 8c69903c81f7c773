"""The data of the Scalar interpreter: memory that tracks initialised elements, and expressions over a space.

A *space* is a set of iterations that run together: axes (one numpy dimension each, in order), variables
with one value, and guards.  An expression evaluates to an array of the space's rank, with size 1 along every axis on
which it does not depend, or to a 0-d array.

A point whose guard or whose branch of a ``select`` is false reads nothing: its index is clipped and the result is
unused.  A read outside a buffer or of an uninitialised element raises :class:`ScalarRunError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var
from nautilus.core.index.linear import Linear
from nautilus.core.index.simplify import affine
from nautilus.core.numerics import Array, Mode, eval_quietly, round_to, working
from nautilus.core.records import dataclass
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType

Mask = tuple[Array, ...]  # a conjunction, which is combined on demand


class ScalarRunError(RuntimeError):
    """A program that cannot run: an access outside a buffer, an element that is never written, a missing input."""


@dataclass(frozen=True, slots=True)
class Range:
    """The values ``lo, lo + 1, ..., lo + n - 1`` of a variable, as one dimension."""

    var: str
    lo: int
    n: int


@dataclass(slots=True)
class Memory:
    """A buffer's values in their working type, and which of them have been written.

    A local that is private to the iterations of vectorised loops has a leading dimension for each of
    those loops: ``own``.
    """

    name: str
    data: Array
    written: Array | None = None  # None: all elements are
    own: tuple[Range, ...] = ()
    dirty: bool = False

    @staticmethod
    def fresh(name: str, shape: tuple[int, ...], dtype: DType, own: tuple[Range, ...] = ()) -> Memory:
        """A buffer of ``shape`` in which no element is written; ``own``: the ranges that it is private to."""
        kind = working(dtype)
        fill: Any = np.nan if kind is np.float64 else False if kind is np.bool_ else np.iinfo(np.int64).min
        shape = (*(r.n for r in own), *shape)
        return Memory(name, np.full(shape, fill, kind), np.zeros(shape, bool), own)

    def missing(self) -> Array | None:
        """The marks of written elements, or None if all elements are written."""
        if self.dirty and self.written is not None:
            self.dirty = False
            if self.written.all():
                self.written = None
        return self.written


@dataclass(slots=True)
class Tables:
    """Tables that all statements of a kernel share: memories, scalars and the affine forms of indices."""

    memory: dict[str, Memory]
    scalars: Mapping[str, int | float | bool]
    mode: Mode
    forms: dict[int, tuple[Expr, Linear | None]] = field(default_factory=dict)

    def form(self, e: Expr) -> Linear | None:
        """``core.index.simplify.affine`` of ``e``, from a cache."""
        found = self.forms.get(id(e))
        if found is None:
            found = (e, affine(e))
            self.forms[id(e)] = found
        return found[1]


@dataclass(frozen=True, slots=True)
class Access:
    """The elements of an access. ``axes``: the axis of each slice of ``at``; None if ``at`` contains arrays."""

    at: tuple[Any, ...]
    axes: tuple[int, ...] | None

    def get(self, array: Array, rank: int) -> Array:
        """The elements, one dimension an axis; a writable view where ``axes`` is set."""
        if self.axes is None:
            if array.size == 0:  # every place was checked under the mask, so no element is wanted
                return np.zeros(np.broadcast_shapes(*map(np.shape, self.at)), array.dtype)
            return np.asarray(array[self.at])
        got = array[(*self.at, ...)]  # the ellipsis makes even a single element a view
        axes = self.axes
        order = sorted(range(len(axes)), key=axes.__getitem__)
        here = set(axes)
        return np.asarray(got.transpose(order)[(*(_ALL if p in here else None for p in range(rank)), ...)])


_ALL = slice(None)


class Space:
    """One evaluation space; see the module docstring. ``env`` holds the variables with one value."""

    def __init__(self, tables: Tables, axes: tuple[Range, ...], env: Mapping[str, int]) -> None:
        self.tables = tables
        self.axes = axes
        self.env = env
        self.rank = len(axes)
        self.position = {a.var: p for p, a in enumerate(axes)}
        self._memo: list[dict[int, Array]] = [{}]
        self._alive: list[Expr] = []  # ids stay unique while their nodes live

    @property
    def points(self) -> int:
        """The number of points."""
        return prod(a.n for a in self.axes)

    # -- expressions ------------------------------------------------------------------------------
    def eval(self, e: Expr, mask: Mask = ()) -> Array:
        """The value of ``e`` at every point (undefined where ``mask`` is false). Raises ScalarRunError."""
        for memo in self._memo:
            found = memo.get(id(e))
            if found is not None:
                return found
        value = self._eval(e, mask)
        self._memo[-1][id(e)] = value
        self._alive.append(e)
        return value

    def _eval(self, e: Expr, mask: Mask) -> Array:
        match e:
            case Const(value=value, dtype=dtype):
                number = np.asarray(value, working(dtype))
                return number if self.tables.mode == "real" else round_to(number, dtype)
            case Var(name=name):
                return self.variable(name)
            case Param(name=name, dtype=dtype):
                return eval_quietly("cast", [np.asarray(self.tables.scalars[name])], dtype, self.tables.mode)
            case Load():
                return self._load(e, mask)
            case Op(op="select"):
                return self._select(e, mask)
            case Op(op="and" | "or" as op, args=(a, b)):
                left = self.eval(a, mask)
                right = self._branch(b, (*mask, left if op == "and" else ~left))
                return eval_quietly(op, [left, right], DType.BOOL)
            case Op(op=op, args=args, dtype=dtype):
                return eval_quietly(op, [self.eval(a, mask) for a in args], dtype, self.tables.mode)
        raise ScalarRunError(f"not a scalar expression: {e!r}")

    def variable(self, name: str) -> Array:
        """An index variable as an array along its axis."""
        p = self.position.get(name)
        if p is None:
            return np.asarray(self.env[name], np.int64)
        return self._arange(p, self.axes[p].lo)

    def _arange(self, p: int, lo: int) -> Array:
        return np.arange(lo, lo + self.axes[p].n).reshape([-1 if q == p else 1 for q in range(self.rank)])

    def _branch(self, e: Expr, mask: Mask) -> Array:
        """The value of ``e`` under a narrower mask; the values of its loads are cached only during this call."""
        self._memo.append({})
        try:
            return self.eval(e, mask)
        finally:
            self._memo.pop()

    def _select(self, e: Op, mask: Mask) -> Array:
        cond, a, b = e.args
        c = self.eval(cond, mask)
        if c.all():
            return self.eval(a, mask)
        if not c.any():
            return self.eval(b, mask)
        x, y = self._branch(a, (*mask, c)), self._branch(b, (*mask, ~c))
        return eval_quietly("select", [c, x, y], e.dtype, self.tables.mode)

    # -- accesses ---------------------------------------------------------------------------------
    def _load(self, e: Load, mask: Mask) -> Array:
        access = self.access(e.buffer, e.index, mask)
        memory = self.tables.memory[e.buffer]
        marks = memory.missing()
        if marks is not None:
            bad = ~access.get(marks, self.rank)
            worst = bad if not mask else bad & both(mask)
            if worst.any():
                raise ScalarRunError(f"{e.buffer} is read before it is written, at {format_expr(e)}")
        return access.get(memory.data, self.rank)

    def access(self, buffer: str, index: tuple[Expr, ...], mask: Mask) -> Access:
        """The elements of an access, as ints and slices where that is possible, else as broadcast arrays.

        Raises ScalarRunError.
        """
        memory = self.tables.memory[buffer]
        own = [self._private(r) for r in memory.own]
        if len(own) + len(index) != memory.data.ndim:
            raise ScalarRunError(f"{buffer} has rank {memory.data.ndim - len(own)}, indexed by {len(index)}")
        basic = [*own, *(self._basic(e) for e in index)]
        plain = [b for b in basic if b is not None]
        axes = tuple(p for p, _ in plain if p is not None)
        if len(plain) == len(basic) and len(set(axes)) == len(axes):
            at = tuple(s for _, s in plain)
            if all(_inside(s, n) for s, n in zip(at, memory.data.shape, strict=True)):
                return Access(at, axes)
        shape = memory.data.shape[len(own) :]
        arrays = [self._arange(p, s.start) for p, s in own if p is not None and isinstance(s, slice)]
        arrays += [self._checked(buffer, e, n, mask) for e, n in zip(index, shape, strict=True)]
        return Access(tuple(arrays), None)

    def _private(self, r: Range) -> tuple[int | None, slice | int]:
        p = self.position[r.var]
        first = self.axes[p].lo - r.lo
        return p, slice(first, first + self.axes[p].n, 1)

    def _basic(self, e: Expr) -> tuple[int | None, slice | int] | None:
        """``e`` as (axis, slice) or (None, int); None where it needs an array."""
        form = self.tables.form(e)
        if form is None:
            return None
        const, axis, step = form.const, None, 0
        for atom, c in form.terms.items():
            if isinstance(atom, Var) and atom.name in self.position:
                if axis is not None:
                    return None
                axis, step = self.position[atom.name], c
            elif isinstance(atom, Var):
                const += c * self.env[atom.name]
            elif isinstance(atom, Param):
                const += c * int(self.tables.scalars[atom.name])
        if axis is None:
            return None, const
        a = self.axes[axis]
        first = const + step * a.lo
        if step < 1 or first < 0:
            return None
        return axis, slice(first, first + step * (a.n - 1) + 1, step)

    def _checked(self, buffer: str, e: Expr, extent: int, mask: Mask) -> Array:
        at = self.eval(e, mask)
        bad = (at < 0) | (at >= extent)
        if not bad.any():
            return at
        worst = bad if not mask else bad & both(mask)
        if worst.any():
            value = np.broadcast_to(at, worst.shape)[worst].flat[0]
            raise ScalarRunError(f"{buffer} has extent {extent}, accessed at {value} by {format_expr(e)}")
        return np.clip(at, 0, max(extent - 1, 0))


def _inside(s: slice | int, n: int) -> bool:
    return 0 <= s < n if isinstance(s, int) else bool(s.stop <= n)


def both(mask: Mask) -> Array:
    """The conjunction of a mask's parts."""
    total = mask[0]
    for m in mask[1:]:
        total = total & m
    return total
