"""The steps of linear recurrences in numpy, for :mod:`nautilus.vr_tile.interp`.

Tiles have the grid as their first dimension, before those of their axes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nautilus.core.numerics import Array, Mode, eval_quietly
from nautilus.vr_tile.ir import ScanOp


def stepped(op: ScanOp, given: Array, factors: Sequence[Array], mode: Mode) -> Array:
    """One step of the recurrence ``op`` with one state after another: its rests ``given`` and its factors."""
    t, dim = op.result.type, 1 + op.arg.type.names.index(op.axis)
    data, (by,) = np.moveaxis(given, dim, 0), (np.moveaxis(f, dim, 0) for f in factors)
    out, before, order = np.empty_like(data), np.zeros_like(data[0]), range(len(data))
    for n in reversed(order) if op.reverse else order:
        moved = eval_quietly("mul", [by[n], before], t.dtype, mode)
        after = eval_quietly("add", [moved, data[n]], t.dtype, mode)
        before = out[n] = np.where(np.isinf(by[n]), data[n], after)
    return np.moveaxis(out, 0, dim)


def steps_of_states(op: ScanOp, given: Array, factors: Sequence[Array], mode: Mode) -> Array:
    """One step of states that need each other after another, as many terms of a state as it has factors."""
    assert op.states is not None, "a recurrence has one factor, or states"
    t, names = op.result.type, op.arg.type.names
    dims = 1 + names.index(op.axis), 1 + names.index(op.states)
    data, moved = np.moveaxis(given, dims, (0, 1)), [np.moveaxis(f, dims, (0, 1))[:, 0] for f in factors]
    out, order, size = np.empty_like(data), range(len(data)), data.shape[1]
    before: Array | None = None
    for n in reversed(order) if op.reverse else order:
        out[n] = data[n]
        for place, f in zip(op.places, moved, strict=True) if before is not None else ():
            row, column = divmod(place, size)
            assert before is not None
            term = eval_quietly("mul", [f[n], before[column]], t.dtype, mode)
            out[n, row] = eval_quietly("add", [term, out[n, row]], t.dtype, mode)
        before = out[n]
    return np.moveaxis(out, (0, 1), dims)
