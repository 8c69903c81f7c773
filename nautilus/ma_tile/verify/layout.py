"""Properties of layouts that the verifier checks.

All of them are computed from positions, so that different notations of one placement are equal.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from nautilus.core.tiles import TileType
from nautilus.ma_tile.ir.instruction_tables import MMA, MmaInstr, a_layout, acc_layout, b_layout
from nautilus.ma_tile.ir.layout import FragLayout, Mode


@lru_cache(maxsize=4096)
def same_map(a: FragLayout, b: FragLayout) -> bool:
    """Whether every register of every thread holds the same element under both layouts."""
    if a == b:
        return True
    if (a.warps, a.registers) != (b.warps, b.registers):
        return False
    axes = dict.fromkeys((*a.axes, *b.axes))
    return all(np.array_equal(a.coords(x), b.coords(x)) for x in axes)


@lru_cache(maxsize=4096)
def is_projection(own: FragLayout, layout: FragLayout, axes: tuple[str, ...]) -> bool:
    """Whether ``own`` is the layout of a tile that varies along ``axes`` only, as ``layout`` places it."""
    return same_map(own, layout.project(axes))


@lru_cache(maxsize=4096)
def layout_fault(layout: FragLayout) -> str:
    """Why ``layout`` is not valid for any tile; empty if it is valid."""
    lanes = 1
    for m in layout.lane:
        lanes *= m.size
    if lanes != 32:
        return f"lane modes multiply to {lanes}, not 32"
    modes = (*layout.reg, *layout.lane, *layout.warp)
    if any(m.size < 1 or (m.axis is not None and m.stride < 1 and m.size > 1) for m in modes):
        return "a mode has no size or no stride"
    if any(m.axis is None for m in layout.reg if m.size > 1):
        return "registers hold copies"
    if _is_mixed_radix(layout):
        return ""
    held = 1
    for m in modes:
        held *= m.size if m.axis is not None else 1
    number: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = np.zeros((1, 1, 1), np.int64)
    total = 1
    for axis in layout.axes:
        number = number * layout.extent(axis) + layout.coords(axis)
        total *= layout.extent(axis)
    distinct = np.count_nonzero(np.bincount(number.ravel()))  # numpy.unique would import the masked arrays of numpy
    if held != total or distinct != total:
        return f"{held} positions hold {distinct} of {total} elements, not each once"
    return ""


def _is_mixed_radix(layout: FragLayout) -> bool:
    """Whether the modes of each axis are the digits of its positions, so that each element is held once.

    Nearly all layouts are of this kind, and counting elements takes a thousand times as long.
    """
    for axis in layout.axes:
        modes = [m for m in (*layout.reg, *layout.lane, *layout.warp) if m.axis == axis and m.size > 1]
        end = 1
        for m in sorted(modes, key=lambda m: m.stride):
            if m.stride != end:
                return False
            end *= m.size
    return True


def cover_fault(layout: FragLayout, t: TileType) -> str:
    """Why ``layout`` does not cover a tile of type ``t``; empty if it does."""
    sizes = {a.name: a.size for a in t.axes}
    for axis in layout.axes:
        if axis not in sizes and layout.extent(axis) > 1:
            return f"the layout distributes {axis}, which is no axis of the tile"
    for name, size in sizes.items():
        if layout.extent(name) != size:
            return f"the layout covers {layout.extent(name)} of the {size} positions on {name}"
    return ""


@lru_cache(maxsize=4096)
def vector_axis(layout: FragLayout, vec: int) -> str | None:
    """The axis along which each ``vec`` registers are contiguous and aligned to ``vec``, or None."""
    if layout.registers % vec:
        return None
    for axis in layout.axes:
        at = layout.coords(axis).reshape(layout.warps, 32, -1, vec)
        if np.array_equal(at, at[..., :1] + np.arange(vec)) and not np.any(at[..., 0] % vec):
            return axis
    return None


def of_slice(layout: FragLayout, slices: Collection[str]) -> FragLayout | None:
    """``layout`` of one warp, if all warps have a position each along the only one of ``slices``; None if not.

    Without ``slices`` the layout is that of all warps.
    """
    if not slices:
        return layout
    within = all(m.axis not in slices for m in (*layout.reg, *layout.lane))
    whole = len(slices) == len(layout.warp) == 1 and layout.warp[0].axis in slices
    return FragLayout(layout.reg, layout.lane, (Mode(1, None),)) if within and whole else None


def warp_grids(warps: int) -> list[tuple[int, int]]:
    """All grids (rows, columns) of ``warps`` warps."""
    return [(r, warps // r) for r in range(1, warps + 1) if warps % r == 0]


def acc_grid(layout: FragLayout, m: tuple[str, int], n: tuple[str, int]) -> tuple[int, int] | None:
    """The warp grid for which ``layout`` is the accumulator layout of a tile m x n; None if there is none."""
    for grid in warp_grids(layout.warps):
        if m[1] % (16 * grid[0]) == 0 and n[1] % (8 * grid[1]) == 0:
            want = acc_layout(m[0], n[0], (m[1], n[1]), grid)
            if same_map(layout, want):
                return grid
    return None


def is_operand(
    layout: FragLayout, instr: str, free: tuple[str, int], k: tuple[str, int], grid: tuple[int, int], a: bool,
    *, runs: bool = False,
) -> bool:  # fmt: skip
    """Whether ``layout`` is an A (else B) operand of ``instr`` for the warp grid, with ``runs`` of terms or not."""
    i: MmaInstr = MMA[instr]
    tall = 16 if a else 8
    if free[1] % (tall * grid[0 if a else 1]) or k[1] % i.k:
        return False
    if a:
        return same_map(layout, a_layout(instr, free[0], k[0], (free[1], k[1]), grid, runs=runs))
    return same_map(layout, b_layout(instr, k[0], free[0], (k[1], free[1]), grid, runs=runs))
