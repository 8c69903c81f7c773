"""Elementwise kernels that read along one axis and write along another one have tiles of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file

ACROSS = "dim M = {0}, N = {1}\ninput X: {2}[M, N], s: f32[N]\noutput Y: {2}[N, M]\nY[j, i] = X[i, j] * s[j]\n"
PLAIN = "dim M = {0}, N = {1}\ninput X: {2}[M, N], s: f32[N]\noutput Y: {2}[M, N]\nY[i, j] = X[i, j] * s[j]\n"


def tiles(text: str, tmp_path: Path) -> dict[str, int]:
    schedule = compile_file(Request(tmp_path / "crossed.naut", text=text)).context.schedule
    assert isinstance(schedule, Schedule)
    return {a.name: a.tile for a in schedule.kernels[0].axes}


@pytest.mark.parametrize("dtype", ["i8", "f16", "f32"])
def test_both_sides_are_contiguous(dtype: str, tmp_path: Path) -> None:
    assert tiles(ACROSS.format(512, 512, dtype).replace("X[i, j] * s[j]", "X[i, j]"), tmp_path) == {"i": 64, "j": 64}


def test_tiles_are_no_longer_than_their_axes(tmp_path: Path) -> None:
    assert tiles(ACROSS.format(5, 512, "f16"), tmp_path) == {"i": 8, "j": 64}


def test_one_contiguous_axis_has_long_tiles(tmp_path: Path) -> None:
    assert tiles(PLAIN.format(512, 512, "f16"), tmp_path) == {"i": 2, "j": 512}
