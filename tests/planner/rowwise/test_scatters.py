"""Reductions with keys become scatters where their terms may be many."""

import pytest

from tests.planner.plans import schedule_of


@pytest.mark.parametrize(("size", "scattered"), [("runtime", True), ("runtime <= 2048", False), ("2048", False)])
def test_sizes_that_are_known_only_at_launch(size: str, scattered: bool) -> None:
    """Few terms cost some launches more, and the masked form of many terms may take any time."""
    text = f"dim N = {size}, B = 1024\ninput k: i32[N]\noutput H: i32[B]\nH[b: B] = sum[i | k[i] == b](1)\n"
    schedule = schedule_of(text)
    assert bool(schedule.scatters) is scattered


def test_keys_in_front_of_another_axis() -> None:
    """The masked form reads all terms for every key; terms without a position of their own meet before the scatter."""
    text = "dim B = 8, H = 8, L = 512, K = 32\ninput X: f32[B, H, L, L], k: i32[L, L]\noutput Y: f32[K, H]\n"
    text += "Y[n, h] = sum[b, i, j | k[i, j] == n](X[b, h, i, j])\n"
    assert schedule_of(text).scatters == ("Y",)


SEGMENTS = """dim N = 1048576, E = {e}
input X: f32[N], Id: i32[N]
output Lo: f32[E], Hi: f32[E], S: f32[E], C: i32[E]
Lo[e] = min[n | Id[n] == e](X[n])
Hi[e] = max[n | Id[n] == e](X[n])
S[e] = sum[n | Id[n] == e](X[n])
C[e] = sum[n | Id[n] == e](1)
"""


@pytest.mark.parametrize(("elements", "together"), [(1024, {4, 1}), (8192, {2, 1})])
def test_reductions_over_the_same_segments_read_their_terms_once(elements: int, together: set[int]) -> None:
    """Four scatters of 4 bytes an element fit in the shared memory of a block, or two of them do."""
    kernels = schedule_of(SEGMENTS.format(e=elements)).kernels
    assert {len(k.ops) for k in kernels} == together
    assert not any("S_fixed" in k.ops and len(k.ops) > 1 for k in kernels)  # its terms depend on S_most


def test_a_scatter_in_blocks_stays_apart_from_one_in_memory() -> None:
    text = "dim N = 1048576, E = 64, F = 65536\ninput X: f32[N], Id: i32[N], Jd: i32[N]\n"
    text += "output A: f32[E], B: f32[F]\nA[e] = max[n | Id[n] == e](X[n])\nB[f] = max[n | Jd[n] == f](X[n])\n"
    assert {k.ops for k in schedule_of(text).kernels} == {("A",), ("B",)}


def test_rows_of_few_segments_are_not_sorted() -> None:
    """Blocks combine all elements in shared memory, where each of few segments would have thousands of rows."""
    text = "dim N = {n}, K = 64, D = 64\ninput X: f32[N, D], Id: i32[N]\noutput S: f32[K, D]\n"
    text += "S[k, d] = sum[n | Id[n] == k](X[n, d])\n"
    sums = [schedule_of(text.format(n=n)).scatters or () for n in (1048576, 524288)]
    assert ["S" in found for found in sums] == [True, False]
