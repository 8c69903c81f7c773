"""Buffers of the validator: arrays of numbers, integers or bools, and the elements that have been written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from nautilus.check.validate import numbers, residues
from nautilus.check.validate.meanings import apply, rounded, wrapped
from nautilus.check.validate.numbers import Constants, Number, Value
from nautilus.check.validate.residues import P, Q
from nautilus.core.expr.nodes import COMBINERS
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.types import DType

#: An integer without a store. With 0, a sum that lacks its first element would be right.
_UNWRITTEN = 77


class Malformed(Exception):
    """The program has no meaning: it reads or writes outside a buffer, or two iterations write one element."""


class Unsupported(Exception):
    """The program has a construct that the validator does not evaluate."""


@dataclass
class Memory:
    """One buffer. An element without a store is NaN, or :data:`_UNWRITTEN` for integers, or true."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    tracked: bool = True  # whether residues are tracked
    real: Array = field(init=False)  # integers and bools: the values
    u: Array | None = field(init=False)
    v: Array | None = field(init=False)
    written: Array = field(init=False)

    def __post_init__(self) -> None:
        kind = np.float64 if self.dtype.is_float else bool if self.dtype is DType.BOOL else np.int64
        self.real = np.full(self.shape, np.nan if self.dtype.is_float else _UNWRITTEN, kind)
        tracked = self.tracked and self.dtype.is_float
        self.u = np.zeros(self.shape, np.int64) if tracked else None
        self.v = np.zeros(self.shape, np.int64) if tracked else None
        self.written = np.zeros(self.shape, bool)

    def fill(self, data: Array) -> None:
        """Give every element its value, as an input has it."""
        self.written[...] = True
        if self.dtype.is_float:
            self.real = np.array(data, np.float64)
            if self.tracked:
                self.u, self.v = residues.of_floats(self.real, P), residues.of_floats(self.real, Q)
        else:
            self.real = np.array(data).astype(self.real.dtype)

    def reshaped(self, shape: tuple[int, ...]) -> Memory:
        """The same elements in row-major order in another shape."""
        made = Memory(self.name, self.dtype, shape, self.tracked)
        made.real, made.written = self.real.reshape(shape), self.written.reshape(shape)
        if self.u is not None and self.v is not None:
            made.u, made.v = self.u.reshape(shape), self.v.reshape(shape)
        return made

    def places(self, index: Sequence[Array], mask: Array) -> tuple[Array, ...]:
        """Index arrays with 0 where ``mask`` does not hold. Raises Malformed for an access outside."""
        out = []
        for dim, at in enumerate(index):
            least, most = (at.item(),) * 2 if at.size == 1 else (at.min(initial=0), at.max(initial=-1))
            if least >= 0 and most < self.shape[dim]:
                out.append(at)
                continue
            wrong = mask & ((at < 0) | (at >= self.shape[dim]))
            if wrong.any():
                worst = np.broadcast_to(at, wrong.shape)[wrong].flat[0]
                raise Malformed(f"{self.name} is accessed at {worst} of {self.shape[dim]} in dimension {dim}")
            out.append(np.clip(at, 0, max(self.shape[dim] - 1, 0)))
        return tuple(out)

    def read(self, index: Sequence[Array], mask: Array) -> Value:
        """The elements at ``index``; anything where ``mask`` does not hold."""
        at = self.places(index, mask)
        if 0 in self.shape:
            empty = np.zeros(np.broadcast_shapes(*(x.shape for x in at)), self.real.dtype)
            return numbers.exactly(empty, self.tracked) if self.dtype.is_float else empty
        if not self.dtype.is_float:
            return np.asarray(self.real[at])
        held = self.dtype if self.dtype.compute is not self.dtype else None
        found = Number(self.real, self.u, self.v, held=held)
        return found.each(lambda x: np.asarray(x[at]))

    def combine(self, op: str, index: Sequence[Array], value: Value, mask: Array, constants: Constants) -> None:
        """Combine ``value`` into the elements at ``index`` where ``mask`` holds, any number into one element."""
        at = self.places(index, mask)
        full = np.broadcast_shapes(mask.shape, *(x.shape for x in at))
        runs = np.broadcast_to(mask, full)
        picked = [np.broadcast_to(x, full)[runs] for x in at]

        def live(x: Array) -> Array:
            return np.asarray(np.broadcast_to(x, full)[runs])

        terms: Value = value.each(live) if isinstance(value, Number) else live(value)
        count = int(np.count_nonzero(runs))
        flat = np.ravel_multi_index(tuple(picked), self.shape) if picked else np.zeros(count, np.int64)
        order = np.argsort(flat, kind="stable")
        starts = np.flatnonzero(np.diff(flat[order], prepend=-1))
        rank = np.arange(count) - np.repeat(starts, np.diff([*starts, count]))  # of a term among those of its element
        for step in range(int(rank.max(initial=-1)) + 1):
            chosen = order[rank == step]
            here, every = [x[chosen] for x in picked], np.ones(chosen.shape, bool)
            term: Value = terms.each(lambda x, c=chosen: x[c]) if isinstance(terms, Number) else terms[chosen]  # type: ignore[misc]
            new = apply(COMBINERS[op].binary, [self.read(here, every), term], self.dtype, self.dtype, constants)
            self.write(here, new, every, self.dtype)

    def write(self, index: Sequence[Array], value: Value, mask: Array, source: DType) -> None:
        """Store ``value`` of type ``source``, rounded, where ``mask`` holds. Raises Malformed for two writes."""
        at = self.places(index, mask)
        full = np.broadcast_shapes(mask.shape, *(x.shape for x in at))
        mask = np.broadcast_to(mask, full)
        count = int(np.count_nonzero(mask))
        if not count:
            return
        every, single = count == mask.size, mask.size == 1
        picked: tuple[Any, ...]
        if single:
            picked = tuple(int(x.item()) for x in at)
        else:
            picked = tuple(x if every else np.broadcast_to(x, full)[mask] for x in at)
        if count > 1 and not picked:
            raise Malformed(f"two iterations write {self.name}")
        if count > 1:
            flat = np.ravel_multi_index(picked, self.shape)
            seen = np.zeros(self.written.size, bool)
            seen[flat] = True
            if flat.size != count or int(np.count_nonzero(seen)) != count:
                raise Malformed(f"two iterations write one element of {self.name}")

        def put(to: Array, x: Array) -> None:
            if single:
                to[picked] = x.reshape(())
            elif every:
                to[picked] = x
            else:
                to[picked] = np.broadcast_to(x, full)[mask] if picked else np.broadcast_to(x, full)[mask][0]

        put(self.written, np.asarray(True))
        if not isinstance(value, Number):
            put(self.real, wrapped(value, self.dtype))
            return
        if not self.dtype.is_float:
            raise Malformed(f"a float is stored in {self.name}")
        stored = rounded(value, self.dtype, source)
        put(self.real, stored.real)
        if self.u is not None and stored.u is not None:
            put(self.u, stored.u)
        if stored.v is None:
            self.v = None
        elif self.v is not None:
            put(self.v, stored.v)


def reduced(op: str, x: Value, dims: tuple[int, ...], mask: Array | None, dtype: DType) -> Value:
    """Combiner ``op`` of ``dtype`` over ``dims`` of the elements where ``mask`` holds; the dims stay with size 1.

    Raises Unsupported.
    """
    if isinstance(x, Number):
        match op:
            case "sum":
                return numbers.total(x, dims, mask)
            case "max" | "min":
                return numbers.extreme(x, dims, mask, 1.0 if op == "max" else -1.0)
            case "prod":
                return numbers.product_over(x, dims, mask)
        raise Unsupported(f"{op} of floats")
    least, most = -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    empty = {"sum": 0, "prod": 1, "max": least, "min": most, "any": False, "all": True}[op]
    if x.dtype == np.bool_:
        empty = {"max": False, "min": True}.get(op, empty)
    full = x if mask is None else np.where(mask, x, empty)
    functions = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}
    if op in ("max", "min"):
        return np.asarray(functions[op](full, axis=dims, keepdims=True, initial=empty))  # type: ignore[operator]
    return wrapped(np.asarray(functions[op](full, axis=dims, keepdims=True)), dtype)  # type: ignore[operator]


def contracted(a: Number, b: Number, dims: tuple[int, ...]) -> Number:
    """``sum over dims of a * b`` without the product of both as an array; the dims stay with size 1."""
    full = np.broadcast_shapes(a.real.shape, b.real.shape)
    left = [d for d in range(len(full)) if d not in dims and b.real.shape[d] == 1]
    right = [d for d in range(len(full)) if d not in dims and d not in left and a.real.shape[d] == 1]
    batch = [d for d in range(len(full)) if d not in dims and d not in left and d not in right]

    def laid(x: Array, first: Sequence[int], second: Sequence[int], third: Sequence[int]) -> Array:
        wide = np.broadcast_to(x, tuple(full[d] if d in (*second, *third) else n for d, n in enumerate(x.shape)))
        rest = (d for d in range(len(full)) if d not in (*first, *second, *third))
        moved = wide.transpose((*first, *second, *third, *rest))
        size = [int(np.prod([wide.shape[d] for d in part], dtype=np.int64)) for part in (second, third)]
        return np.ascontiguousarray(moved.reshape((*(wide.shape[d] for d in first), *size)))

    def back(x: Array) -> Array:
        sizes = [full[d] for d in (*batch, *left, *right)]
        order = np.argsort([*batch, *left, *right, *dims])
        return x.reshape((*sizes, *(1 for _ in dims))).transpose(order)

    def pair(x: Array, y: Array) -> tuple[Array, Array]:
        return laid(x, batch, left, dims), laid(y, batch, dims, right)

    left_real, right_real = pair(a.real, b.real)
    real = left_real @ right_real
    u = None if a.u is None or b.u is None else back(residues.products(*pair(a.u, b.u), P))
    v = None if a.v is None or b.v is None else back(residues.products(*pair(a.v, b.v), Q))
    return numbers.number(back(real), u, v)
