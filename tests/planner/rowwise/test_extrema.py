"""Positions and counts of largest elements: one loop, one read of memory, also of products that are not stored."""

from __future__ import annotations

import pytest

from tests.endtoend.support import check, travel

COLUMNS = """
    dim M = {m}, N = {n}
    input X: f32[M, N]
    output I: i32[N]
    output C: i32[N]
    I[j] = argmin[i](X[i, j])
    m[j] = min[i](X[i, j])
    C[j] = sum[i | X[i, j] == m[j]](1)
"""
NEAREST = """
    dim M = {m}, N = {n}, D = {d}
    input Q: f16[M, D]
    input X: f16[N, D]
    output I: i32[M]
    output V: f32[M]
    S[i, j] = sum[d](Q[i, d] * X[j, d])
    I[i] = argmax[j](S[i, j])
    V[i] = max[j](S[i, j])
"""
UNALIGNED = """
    dim M = 7, N = 300
    input X: f16[M, N]
    output I: i32[M]
    I[i] = argmax[j | j <= i * 40](X[i, j])
"""


def kernels(text: str) -> list[tuple[tuple[str, ...], int]]:
    """Definitions and phases of each kernel."""
    schedule = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    return [(k.ops, len(k.phases)) for k in schedule.kernels]


def test_a_position_is_found_in_the_loop_of_its_extremum() -> None:
    ops, phases = kernels(COLUMNS.format(m=4096, n=4096))[0]
    assert len(ops) == 3 and phases == 1


def test_a_product_of_few_rows_ends_in_reductions() -> None:
    first, _ = kernels(NEAREST.format(m=64, n=1 << 17, d=768))
    assert first[0][0] == "S"


def test_a_product_of_many_rows_keeps_the_matrix_engine() -> None:
    schedule = travel(NEAREST.format(m=4096, n=4096, d=4096), "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    first = schedule.kernels[0]
    assert first.ops[0] == "S_tiles" and first.mapping.engine == "warpgroup"


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(
    "text",
    [COLUMNS.format(m=300, n=70), NEAREST.format(m=33, n=600, d=80), NEAREST.format(m=70, n=130, d=16), UNALIGNED],
)
def test_all_levels_agree_on_positions(text: str, arch: str) -> None:
    check(text, arch)
