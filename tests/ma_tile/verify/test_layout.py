"""Layouts hold each element of their tile once, apart from copies."""

from __future__ import annotations

import random
from itertools import product

from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.verify.layout import layout_fault


def drawn(seed: int) -> FragLayout:
    """Digits of positions on two axes in random places; in some layouts one digit is another one, or a copy."""
    r = random.Random(seed)
    bits = {"i": r.randint(1, 4), "j": r.randint(3, 4)}
    digits = [Mode(2, axis, 1 << n) for axis, count in bits.items() for n in range(count)]
    if r.random() < 0.5:
        at = r.randrange(len(digits))
        digits[at] = r.choice([Mode(2, "i", 1 << r.randint(0, 3)), Mode(2, "j", 3), Mode(2, "j", 1), Mode(2, None)])
    r.shuffle(digits)
    digits += [Mode(2, None)] * (5 - len(digits))
    lane, rest = digits[:5], digits[5:]
    cut = r.randint(0, len(rest))
    return FragLayout(tuple(rest[:cut]), tuple(lane), tuple(rest[cut:]))


def held_once(layout: FragLayout) -> bool:
    """Whether registers hold no copies, and each position of each axis is held by as many threads."""
    if any(m.axis is None for m in layout.reg):
        return False
    axes, found = layout.axes, dict[tuple[int, ...], int]()
    places = [layout.coords(a) for a in axes]
    for at in product(range(layout.warps), range(32), range(layout.registers)):
        element = tuple(int(p[at]) for p in places)
        found[element] = found.get(element, 0) + 1
    copies = 1
    for m in (*layout.lane, *layout.warp):
        copies *= m.size if m.axis is None else 1
    whole = 1
    for a in axes:
        whole *= layout.extent(a)
    return len(found) == whole and set(found.values()) == {copies}


def test_each_element_is_held_once() -> None:
    """The verdict is that of counting the elements, on layouts of which many are valid and many are not."""
    valid = 0
    for seed in range(200):
        layout = drawn(seed)
        assert (layout_fault(layout) == "") == held_once(layout), layout
        valid += held_once(layout)
    assert 50 < valid < 150
