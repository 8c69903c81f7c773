"""The effort for the choice of variants falls with the definitions of a program."""

from __future__ import annotations

from nautilus.passes.trials.sizes import BATCHES, COARSE_GRID, GRID, MANY, PLANNED, Effort


def test_small_programs_have_all_plans_and_all_sizes() -> None:
    effort = Effort(MANY, 2, 2)
    assert effort.whole and effort.planned == PLANNED and effort.batches == BATCHES
    assert effort.bounded is effort.points is None
    assert effort.fine and effort.grid == GRID
    assert effort.some((1, 2, 3)) == (1, 2, 3) and effort.variants(6) == 6


def test_many_definitions_have_few_plans_and_variants() -> None:
    effort = Effort(MANY + 1, 9, 2)
    assert not effort.whole and len(effort.planned[2]) < len(PLANNED[2]) and effort.bounded is not None
    assert (effort.points, Effort(99, 9, 2).points, Effort(99, 9, 2).bounded) == (5, 1, 1)
    assert effort.some((1, 2, 3, 4, 5, 6)) == (2, 5)
    assert effort.variants(6) == 2 and Effort(99, 99, 1).variants(6) == 2


def test_many_points_of_several_definitions_are_on_a_coarse_grid() -> None:
    few, many = Effort(4, 1, 3), Effort(5, 1, 3)
    assert few.fine and few.grid == GRID
    assert not many.fine and many.grid == COARSE_GRID and many.tiles < few.tiles
