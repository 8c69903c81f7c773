"""The state of a block: each rule is stated as a fault, whatever breaks it."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.ma_tile.interp.state.global_memory import GlobalMemory, check_rows
from nautilus.ma_tile.interp.state.outstanding import Engines, Outstanding, PendingMma
from nautilus.ma_tile.interp.state.shared_memory import Clock, PendingRead, SharedMemory
from nautilus.ma_tile.interp.state.sync import Actor, Barriers
from nautilus.ma_tile.interp.state.values import Fault, spread
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import parse

GAPS = """
module gaps target sm_80 {
  input X: f32[2, 2] strides [4, 1]
  output Y: f32[4]
}
"""


def test_an_op_that_nobody_waits_for_is_unfinished() -> None:
    result = Outstanding(np.zeros(1), frozenset({"c"}), 7)
    mma = PendingMma(7, [], frozenset({"a"}), result)
    read = PendingRead(np.zeros(1, np.int64), np.zeros(1), 9)
    assert Engines().unfinished() is None
    assert Engines(mmas=[mma]).unfinished() == Engines(mma_groups=[[mma]]).unfinished() == 7
    assert Engines(stores=[read]).unfinished() == Engines(store_groups=[[read]]).unfinished() == 9
    assert Engines(mma_groups=[[mma]]).reader("a") is mma and Engines(mmas=[mma]).reader("b") is None


@pytest.mark.parametrize("address", [-4, 64, 62])
def test_an_address_outside_of_shared_memory(address: int) -> None:
    with pytest.raises(Fault, match="is outside 64 bytes"):
        SharedMemory(64, 2, 1, 1)._granules(np.array([0, address]), 4)


def test_elements_that_no_thread_or_another_one_wrote() -> None:
    m: MemModule = parse(GAPS)
    memory = GlobalMemory(m, {"X": np.ones((2, 2))}, {})
    me, at = np.array([3]), np.array([2])
    with pytest.raises(Fault, match="no thread wrote") as gap:
        memory.load("X", at, None, me)
    with pytest.raises(Fault, match="no thread wrote") as empty:
        memory.load("Y", at, None, me)
    memory.owner["Y"][2] = 5
    with pytest.raises(Fault, match="another thread of this launch wrote") as race:
        memory.load("Y", at, None, me)
    assert [x.value.kind for x in (gap, empty, race)] == ["uninitialised", "uninitialised", "global-race"]
    memory.owner["Y"][2] = 3
    assert memory.load("Y", at, None, me).shape == (1,)


@pytest.mark.parametrize(
    ("place", "mask", "kind"),
    [
        ([[0, 1, 2, 3], [10, 11, 12, 13]], None, ""),
        ([[0, 1, 4, 5], [10, 11, 12, 13]], None, "non-contiguous-vector"),
        ([[0, 1, 4, 5], [10, 11, 12, 13]], [[True, True, False, False], [True] * 4], ""),
        ([[0, 1, 2, 3], [10, 11, 12, 13]], [[True, False, True, True], [False] * 4], "mask-not-uniform"),
    ],
)
def test_rows_are_neighbours_on_a_range(place: list[list[int]], mask: list[list[bool]] | None, kind: str) -> None:
    number = np.arange(8).reshape(2, 1, 4)
    live = None if mask is None else np.array(mask)[:, None]
    if not kind:
        check_rows(np.array(place)[:, None], number, 4, live, "Y")
        return
    with pytest.raises(Fault) as info:
        check_rows(np.array(place)[:, None], number, 4, live, "Y")
    assert info.value.kind == kind


def test_a_fragment_with_other_registers_than_are_read() -> None:
    whole = FragLayout((Mode(2, "j", 1), Mode(2, "i", 8)), (Mode(4, "j", 2), Mode(8, "i", 1)), ())
    row = np.zeros((1, 32, 2))
    assert spread(row, whole, ("i",)).shape == (1, 32, 4)
    with pytest.raises(Fault, match="an operand has 3 registers where 2 are read"):
        spread(np.zeros((1, 32, 3)), whole, ("i",))
    with pytest.raises(Fault, match="an operand has 3 registers where 4 are read"):
        spread(np.zeros((1, 32, 3)), whole, ("i", "j"))


def test_threads_arrive_once_at_a_barrier() -> None:
    barriers = Barriers(SharedMemory(64, 2, 2, 2), 128, 2)
    first, second = (Actor(f"c[{c}]", 2 * c, 2, Clock(c, np.zeros(2, np.int32))) for c in range(2))
    barriers.arrive(first, 4, 128, wait=False)
    with pytest.raises(Fault, match="a second time"):
        barriers.arrive(first, 4, 128, wait=False)
    assert barriers.arrive(second, 4, 128)()
    assert not barriers.arrive(first, 4, 128)()  # the next one
