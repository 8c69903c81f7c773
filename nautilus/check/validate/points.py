"""The points at which both sides of a pass are evaluated.

* generic: rationals with 20 random bits, on which residues decide identities;
* positive: the same without signs, for functions that are defined there only;
* special: few small numbers, with zeros of both signs, equal elements and equal rows, and with the largest and the
  least one at the ends of rows, where a loop that is too short misses them; of the reals alone;
* large: the generic numbers times 64, on which an exponential overflows that is not under its reference; of the reals
  alone;
* infinite: as the caller gives them, with inf, -inf, NaN, zeros and the lowest number among the elements; of the reals
  alone;
* wrapping: the generic numbers beside integers of their whole type, whose sums and products wrap; of the reals alone.

Integers and bools come from the caller, because integers may be positions, and so do the numbers of the infinite point,
because a spec may promise that some of them are finite.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from nautilus.check.validate.scalar_run import Given
from nautilus.core.buffers import Buffer, Space
from nautilus.core.numerics import Array

INFINITE = "infinite"
KINDS = ("generic", "positive", "special", "large", INFINITE, "wrapping")
_TRACKED = frozenset({"generic", "positive"})
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 1.0, 0.5, -2.0, 3.0)
_ENDS = (4.0, -3.0)  # no other element is equal to one of them, so that no tie excuses a difference


def points(
    buffers: Sequence[Buffer],
    inputs: Sequence[Mapping[str, Array]],
    params: Mapping[str, int | float | bool],
    seed: int,
    bounded: Collection[str] = (),
) -> Iterator[tuple[str, Given]]:
    """The kind and the inputs of every point; each takes shapes, integers and bools from its own of ``inputs``.

    A point for which ``inputs`` has no element is left out.  The inputs ``bounded``, whose elements a spec promises to
    be in a range, are not large: powers of them would overflow, which the promise excludes.
    """
    for kind, arrays in zip(KINDS, inputs, strict=False):
        small = bounded if kind == "large" else ()
        made = {
            b.name: _floats("generic" if b.name in small else kind, b.name, np.shape(arrays[b.name]), seed)
            if b.dtype.is_float and kind != INFINITE
            else arrays[b.name]
            for b in buffers
            if b.space is Space.INPUT
        }
        yield kind, Given(made, params, kind in _TRACKED)


def _floats(kind: str, name: str, shape: tuple[int, ...], seed: int) -> Array:
    rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), zlib.crc32(name.encode())])
    if kind == "special":
        out = np.asarray(rng.choice(_SPECIAL, shape))
        if not out.size:
            return out
        rows = out.reshape(out.shape[0] if out.ndim > 1 else 1, -1)  # a view
        if rows.shape[1] > 1:
            rows[0, 0], rows[0, -1] = _ENDS
            if rows.shape[0] > 2:
                rows[1, 0], rows[1, -1] = reversed(_ENDS)
        if out.ndim and out.shape[0] > 1 and rows.shape[0] > 1:
            out[-1] = out[0]
        return out
    whole = rng.integers(1, 1 << 19, shape) / (1 << (12 if kind == "large" else 18))
    return np.asarray(whole if kind == "positive" else whole * rng.choice((-1.0, 1.0), shape))
