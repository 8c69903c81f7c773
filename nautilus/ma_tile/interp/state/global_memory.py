"""Global memory of the physical interpreter: arguments and temps, with the writer of each element in this launch.

Arrays are kept flat in register form (``interp.state.values``), with the gaps that strides leave, which no op reads.
Rules: an unmasked access lies inside its tensor in every dimension; an element is read only if it was given or written
by an earlier launch, or by the same thread, or by a thread of the same block before all threads of the block met;
threads that write one element in one launch write the same bits.
Base addresses are aligned to 256 bytes, as the allocator gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from nautilus.core.buffers import Space, extents
from nautilus.core.functions.arrays import every, some
from nautilus.core.index.sizes import at_bound
from nautilus.core.index.strides import places, row_major, span
from nautilus.core.numerics import Array, combine_at
from nautilus.core.types import DType
from nautilus.ma_tile.interp.state.values import Fault, encode, register_type, round_registers
from nautilus.ma_tile.ir.layout import Ints
from nautilus.ma_tile.ir.ops import MemModule

State: TypeAlias = "dict[str, tuple[bytes, bytes]]"  # of each tensor that kernels write: values, and which are written


class GlobalMemory:
    """The buffers of a module. ``params`` gives runtime sizes."""

    def __init__(self, m: MemModule, inputs: Mapping[str, Array], params: Mapping[str, Any]) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}  # of indices
        self.bounds: dict[str, tuple[int, ...]] = {}  # shapes with the bounds of sizes in device memory
        self.strides: dict[str, tuple[int, ...]] = {}
        self.with_gaps = {b.name for b in m.buffers if b.strides is not None}
        self.arrays: dict[str, tuple[int, ...]] = {}  # of what a caller gives and gets
        self.dtypes: dict[str, DType] = {}
        self.values: dict[str, Array] = {}
        self.ready: dict[str, Array] = {}
        self.owner: dict[str, Array] = {}
        self.met: dict[str, Array] = {}  # of tensors that a kernel exchanges: the block whose threads met afterwards
        self.block = 1  # threads
        for b in m.buffers:
            shape, declared = extents(b.shape, params), extents(b.array_shape, params)
            self.strides[b.name] = extents(row_major(shape) if b.strides is None else b.strides, params)
            self.bounds[b.name] = extents(tuple(map(at_bound, b.shape)), params)
            size = span(shape, self.strides[b.name])
            self.shapes[b.name], self.arrays[b.name], self.dtypes[b.name] = shape, declared, b.dtype
            if b.space is Space.INPUT:
                given = np.asarray(inputs[b.name])
                if given.shape != declared:
                    raise ValueError(f"input {b.name} has shape {given.shape}, not {declared}")
                self.values[b.name] = np.full(size, _unwritten(b.dtype), register_type(b.dtype))
                self.ready[b.name] = np.zeros(size, np.bool_)
                rounded = round_registers(given, b.dtype).reshape(shape)
                places(self.values[b.name], shape, self.strides[b.name])[...] = rounded
                places(self.ready[b.name], shape, self.strides[b.name])[...] = True
            else:
                self.values[b.name] = np.full(size, _unwritten(b.dtype), register_type(b.dtype))
                self.ready[b.name] = np.zeros(size, np.bool_)
                self.owner[b.name] = np.zeros(size, np.int64)

    def launch(self, exchanged: frozenset[str] = frozenset()) -> None:
        """A kernel begins: everything written so far is visible.

        ``exchanged``: the tensors that it both stores to and loads from.
        """
        self.met = {name: np.zeros(self.values[name].size, np.int64) for name in exchanged}
        for name, owner in self.owner.items():
            self.ready[name] |= owner != 0
            owner[:] = 0

    def state(self) -> State:
        """What the launches so far have written, between two launches."""
        return {name: (self.values[name].tobytes(), self.ready[name].tobytes()) for name in self.owner}

    def restore(self, state: State) -> None:
        """Make what was written that of ``state``, between two launches."""
        for name, (values, ready) in state.items():
            self.values[name][:] = np.frombuffer(values, self.values[name].dtype)
            self.ready[name][:] = np.frombuffer(ready, np.bool_)

    def meet(self, threads: range) -> None:
        """All ``threads``, those of one block, are at a barrier."""
        self.block = len(threads)
        for name, met in self.met.items():
            owner = self.owner[name]
            met[(owner >= threads.start) & (owner < threads.stop)] = threads.start

    def array(self, name: str) -> Array:
        """The buffer in the shape that a caller sees."""
        return places(self.values[name], self.shapes[name], self.strides[name]).reshape(self.arrays[name])

    def unknown(self, name: str) -> Array:
        """The value of elements between a size in device memory and its bound."""
        return np.asarray(_unwritten(self.dtypes[name]), register_type(self.dtypes[name]))

    def place(self, name: str, index: tuple[Array, ...], mask: Array | None, shape: tuple[int, ...]) -> Ints:
        """Element numbers [shape] of an access (0 where masked). Raises Fault outside the tensor."""
        extents = self.shapes.get(name)
        if extents is None:
            raise Fault("undefined-buffer", f"no buffer is called {name}")
        if len(index) != len(extents):
            raise Fault("out-of-bounds", f"{name} has {len(extents)} dimensions, not {len(index)}")
        linear: Array = np.zeros((), np.int64)
        fixed = 0  # the part of the element number from indices that are the same for all threads
        for axis, (i, extent) in enumerate(zip(index, extents, strict=True)):
            if i.ndim == 0 and 0 <= (one := int(i)) < extent:
                fixed += one * self.strides[name][axis]
                continue
            bad = np.asarray(i, np.int64).view(np.uint64) >= extent  # negative indices are large numbers there
            if some(bad) and (mask is None or some(bad := bad & mask)):
                worst = int(np.broadcast_to(i, np.shape(bad))[bad].flat[0])
                where = f"index {worst} is outside dimension {axis} of {name}, which has {extent}"
                raise Fault("global-out-of-bounds", where)
            linear = linear + i * self.strides[name][axis]
        linear = linear + fixed
        if mask is not None:
            linear = np.where(mask, linear, 0)
        return linear if linear.shape == shape else np.broadcast_to(linear, shape)

    def load(self, name: str, place: Ints, mask: Array | None, thread: Array) -> Array:
        """Elements at ``place``, 0 where masked. Raises Fault."""
        if not len(self.values[name]):
            return np.zeros(place.shape, self.values[name].dtype)
        owner = self.owner.get(name)
        if owner is not None or name in self.with_gaps:
            ok = self.ready[name][place]
            if owner is not None:
                ok = ok | (owner[place] == thread)
            if name in self.met:
                ok = ok | self._met(name, place, thread)
            if mask is not None:
                ok = ok | ~mask
            if not every(ok):
                written = owner is not None and owner[place][~ok].any()
                how = "another thread of this launch wrote" if written else "no thread wrote"
                kind = "global-race" if written else "uninitialised"
                raise Fault(kind, f"reads an element of {name} that {how}")
        out: Array = self.values[name][place]
        return out if mask is None else np.where(mask, out, np.zeros((), out.dtype))

    def _met(self, name: str, place: Ints, thread: Array) -> Array:
        """Whether the threads that wrote the elements and ``thread`` have met since."""
        found: Array = self.met[name][place] == (thread - 1) // self.block * self.block + 1
        return found

    def element(self, name: str, index: tuple[Array, ...]) -> Array:
        """One element that stands there before the launch. Raises Fault."""
        place = self.place(name, index, None, ())
        if name in self.owner and not every(self.ready[name][place]):
            raise Fault("uninitialised", f"a let reads an element of {name} that no thread wrote before this launch")
        found: Array = self.values[name][place]
        return found.astype(np.int64)

    def store(self, name: str, place: Ints, value: Array, mask: Array | None, thread: Array) -> None:
        """Write ``value`` (already of the buffer's type). Raises Fault."""
        if name not in self.owner:
            raise Fault("unsupported", f"{name} is an input")
        dtype = self.dtypes[name]
        thread = np.broadcast_to(thread, place.shape)
        if mask is not None:
            keep = np.broadcast_to(mask, place.shape)
            place, value, thread = place[keep], value[keep], thread[keep]
        store, owner = self.values[name], self.owner[name]
        foreign = (owner[place] != 0) & (owner[place] != thread)
        if name in self.met:
            foreign &= ~self._met(name, place, thread)
            self.met[name][place] = 0
        if some(foreign & ~_same(store[place], value, dtype)):
            raise Fault("global-race", f"overwrites an element of {name} of another thread of this launch")
        store[place] = value
        if not every(_same(store[place], value, dtype)):
            raise Fault("global-race", f"two threads write different values to one element of {name}")
        owner[place] = thread

    def combine(self, name: str, place: Ints, value: Array, mask: Array, combiner: str) -> None:
        """Combine ``value`` into the elements at ``place`` where ``mask`` holds. Raises Fault."""
        if name not in self.owner:
            raise Fault("unsupported", f"{name} is an input")
        keep = np.broadcast_to(mask, place.shape)
        place, value = place[keep], np.broadcast_to(value, keep.shape)[keep]
        owner = self.owner[name]
        if not every(self.ready[name][place]):
            raise Fault("uninitialised", f"combines into an element of {name} that no earlier launch wrote")
        if some((owner[place] != 0) & (owner[place] != _EVERYONE)):
            raise Fault("global-race", f"combines into an element of {name} that a thread of this launch wrote")
        combine_at(combiner, self.values[name], (place,), value, self.dtypes[name], "typed")
        owner[place] = _EVERYONE


_EVERYONE = -1  # the owner of an element into which threads combine atomically


def _unwritten(dtype: DType) -> float | int | bool:
    """The value of an element without a store: NaN, the least integer, false."""
    if dtype is DType.BOOL:
        return False
    return float("nan") if dtype.is_float else int(np.iinfo(register_type(dtype)).min)


def check_shifted(place: Ints, vec: int, shift: int, mask: Array | None, what: str) -> None:
    """``vec`` consecutive registers are ``shift`` elements after a multiple of ``vec``, in vectors with a mask each.

    Raises Fault.
    """
    v = place.reshape(*place.shape[:-1], -1, vec)
    live = np.ones(v.shape, np.bool_) if mask is None else np.broadcast_to(mask, place.shape).reshape(v.shape)
    for part in (slice(0, vec - shift), slice(vec - shift, vec)):
        if some(live[..., part] != live[..., part][..., :1]):
            raise Fault("mask-not-uniform", f"the mask of a vector of {what} differs between its elements")
    at = np.arange(vec) + shift
    if some(((v - at) % vec != 0) & live) or some((v - at != (v - at)[..., :1]) & live & live[..., :1]):
        raise Fault("misaligned", f"a vector of {what} does not start {shift} elements after a multiple of {vec}")


def check_vectors(place: Ints, vec: int, width: int, mask: Array | None, what: str, repeat: int = 1) -> None:
    """``vec`` consecutive registers move as one access: contiguous, aligned, one mask.

    ``place`` [warps, lanes, registers] counts elements of ``width`` bytes; ``repeat`` registers hold one. Raises Fault.
    """
    if vec == 1:
        return
    count = vec // repeat
    if count * width not in (1, 2, 4, 8, 16) or count * repeat != vec:
        raise Fault("misaligned", f"no access moves {count} elements of {width} bytes")
    if place.shape[-1] % vec:
        raise Fault("non-contiguous-vector", f"{place.shape[-1]} registers are no multiple of {vec}")
    v = place.reshape(*place.shape[:-1], -1, vec)
    gap, odd = v != v[..., :1] + np.arange(vec) // repeat, v[..., 0] % count != 0
    if mask is not None:
        live = np.broadcast_to(mask, place.shape).reshape(v.shape)
        if some(live != live[..., :1]):
            raise Fault("mask-not-uniform", f"the mask of a vector of {what} differs between its elements")
        gap, odd = gap & live, odd & live[..., 0]
    if some(gap):
        text = f"the elements of a vector of {what} are no neighbours in memory"
        raise Fault("non-contiguous-vector", text)
    if some(odd):
        raise Fault("misaligned", f"a vector of {what} does not start at a multiple of {count * width} bytes")


def check_nearest(place: Ints, vec: int, width: int, mask: Array | None, what: str) -> None:
    """Each ``vec`` consecutive registers move as one access (:func:`check_vectors`), or have one element all.

    Raises Fault.
    """
    v = place.reshape(*place.shape[:-1], -1, vec)
    one = np.repeat((v == v[..., :1]).all(-1), vec, axis=-1)
    live = ~one if mask is None else ~one & np.broadcast_to(mask, place.shape)
    check_vectors(place, vec, width, live, what)
    if mask is not None:
        check_vectors(np.broadcast_to(np.arange(place.shape[-1]), place.shape), vec, 1, mask, what)


def check_rows(place: Ints, number: Ints, columns: int, mask: Array | None, what: str) -> None:
    """The elements of a row are neighbours in memory, under a condition that holds on a range of them.

    ``number``: of each element in its tile, whose rows have ``columns``. Raises Fault.
    """
    live = np.ones(number.shape, np.bool_) if mask is None else np.broadcast_to(mask, number.shape)
    row, column = np.divmod(number[live], columns)
    start, least, most = (np.full(int(number.max(initial=0)) // columns + 1, x, np.int64) for x in (0, columns, -1))
    begins = place[live] - column
    start[row] = begins
    if some(start[row] != begins):
        raise Fault("non-contiguous-vector", f"the elements of a row of {what} are no neighbours in memory")
    np.minimum.at(least, row, column)
    np.maximum.at(most, row, column)
    held = np.bincount(np.unique(number[live]) // columns, minlength=len(most))
    if some((held != most - least + 1) & (most >= 0)):
        raise Fault("mask-not-uniform", f"the condition of a row of {what} does not hold on a range")


def _same(a: Array, b: Array, dtype: DType) -> Array:
    """Where two values have the same bits in memory; of NaN, whose sign numpy keeps and a GPU does not, any two do."""
    found = encode(a, dtype) == encode(b, dtype)
    return np.asarray(found | (np.isnan(a) & np.isnan(b)) if dtype.is_float else found)
