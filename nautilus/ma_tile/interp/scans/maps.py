"""Linear maps of steps that the lanes and warps of a scan have: factors and rests, or matrices and vectors.

A map is a pair of arrays over [warp, lane, total], with further dimensions for matrices and vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from nautilus.core.numerics import Array
from nautilus.ma_tile.ir.layout import Ints
from nautilus.ma_tile.ir.scan import Digit

Map: TypeAlias = tuple[Array, Array]
#: the map of a first one and then a second one
Follow: TypeAlias = Callable[[Map, Map], Map]


def place(numbers: Ints, digit: Digit, reverse: bool) -> Ints:
    """The place of each of ``numbers`` in the order of the scan."""
    found = numbers // digit.step % digit.size
    return digit.size - 1 - found if reverse else found


def over_lanes(total: Map, digit: Digit, reverse: bool, none: Map, follow: Follow) -> tuple[Map, Map]:
    """The map before each lane, and that of all lanes. ``none``: of no step."""
    lane = np.arange(32)
    at, by = place(lane, digit, reverse), (-digit.step if reverse else digit.step)

    def earlier(x: Map, distance: int) -> Map:
        source = np.clip(lane - distance * by, 0, 31)
        return x[0][:, source], x[1][:, source]

    distance = 1
    while distance < digit.size:
        total = _chosen(at[None, :] >= distance, follow(earlier(total, distance), total), total)
        distance *= 2
    last = lane + (digit.size - 1 - at) * by
    return _chosen(at[None, :] >= 1, earlier(total, 1), none), (total[0][:, last], total[1][:, last])


def over_warps(
    maps: Sequence[Map], at: Ints, before: Map, none: Map, follow: Follow, by_lanes: bool
) -> tuple[Map, Map]:  # fmt: skip
    """The map before each lane, also in the warps before its own, and that of all warps.

    ``maps``: of the warps in the order of the scan; ``at``: the place of each warp in it; ``before``: within a warp.
    ``by_lanes``: the lanes of a warp combine those of all warps; else each thread does, one after another.
    """
    found = list(maps) if by_lanes else list(accumulate(maps, follow))
    distance = 1 if by_lanes else len(found)
    while distance < len(found):
        found = [follow(found[n - distance], m) if n >= distance else m for n, m in enumerate(found)]
        distance *= 2
    earlier = none
    for n, m in enumerate(found):
        earlier = _chosen(at == n + 1, m, earlier)
    return follow(earlier, before), found[-1]


def _chosen(where: Array, a: Map, b: Map) -> Map:
    """``a`` where the first dimensions say so, else ``b``."""
    first, second = (
        np.where(where.reshape(*where.shape, *(1,) * (x.ndim - where.ndim)), x, y) for x, y in zip(a, b, strict=True)
    )
    return first, second
