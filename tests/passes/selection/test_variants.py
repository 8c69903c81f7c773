"""Variants at runtime sizes, and the decision tree among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, log
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from nautilus.core.errors import InternalError, ScheduleError
from nautilus.core.index.sizes import MAX_DIM
from nautilus.core.schedule import Schedule
from nautilus.core.schedule.dispatch import Divided, SizeFact, Threshold, chosen, leaves
from nautilus.cost.model import estimate
from nautilus.cuda.host.choice import Choice, check_dispatch
from nautilus.driver import Request, Result, compile_checked, compile_file, compile_variant
from nautilus.frontend.semantics.check import load_text
from nautilus.ma_tile.ir.ops import ForOp, walk_ops
from nautilus.ma_tile.rewriting.at_sizes import at_sizes
from nautilus.passes.compilation import Variants
from nautilus.passes.selection import dispatch_tree, size_facts, variants
from nautilus.passes.selection.variants import find
from nautilus.passes.trials.sizes import GRID
from nautilus.scalar.ir import Kernel
from tests.passes.selection.products import PRODUCT, request

ROWS = """
dim M = runtime, N = 1000
input X: f16[M, N]
output Y: f16[M, N]
Y[i, j] = softmax[j](X[i, j])
"""
PLAIN_ROWS = """
dim M = runtime, N = runtime
input X: f16[M, N]
output Y: f16[M, N]
Y[i, j] = softmax[j](X[i, j])
"""
WHOLE_VECTORS = """
dim M = runtime, N = runtime
assume N % 8 == 0
input X: f16[M, N]
output Y: f16[M, N]
"""
FACTS = """
dim M = runtime <= 4096, N = runtime <= 4096, K = 64
assume N % 8 == 0 and M <= N
input A: f16[M, K]
input B: f16[K, N]
output C: f16[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


def test_a_product_has_a_variant_for_few_rows_and_one_for_many(found: Variants) -> None:
    few, many = (chosen(found.dispatch, {"M": m}) for m in (16, 16384))
    assert few != many
    for p in found.points:
        n = chosen(found.dispatch, p.sizes)
        assert p.seconds[n] <= 1.02 * min(p.general, *p.seconds)
    assert {x.variant for x in leaves(found.dispatch)} == set(range(len(found.all)))


def test_predictions_are_those_of_the_modules(found: Variants) -> None:
    compared = [(v, x) for v, x in zip(found.all, found.points[0].seconds, strict=True) if x < inf]
    assert len(compared) > 1
    for v, seconds in compared:
        here = at_sizes(v.module, found.points[0].sizes)
        assert estimate(here, "sm_90a").seconds == pytest.approx(seconds)
        assert v.module.name == f"spec_{v.name}" and v.module.params  # still for all sizes


def test_a_kernel_is_predicted_once_at_given_sizes(
    product: tuple[Request, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = product[1].modules["ma-tile"]
    known = dispatch_tree.Predictions("sm_90a")
    here = known.seconds(module, {"M": 48})
    assert here == estimate(at_sizes(module, {"M": 48}), "sm_90a").seconds != known.seconds(module, {"M": 4096})
    monkeypatch.delattr(dispatch_tree, "estimate")
    assert known.seconds(replace(module), {"M": 48}) == here  # another object with equal kernels


def test_variants_share_a_spec_that_other_compilations_read_again(product: tuple[Request, Result]) -> None:
    first, again = (compile_variant(replace(product[0], until="spec")).modules["spec"] for _ in range(2))
    bounded = compile_variant(replace(product[0], until="spec", assumed=(SizeFact("M", 64),))).modules["spec"]
    assert first is again and first != bounded
    assert compile_file(replace(product[0], until="spec")).modules["spec"] is not first


def test_kernels_that_are_the_same_for_whole_vectors_have_no_variants_for_them() -> None:
    text = """
    dim B = runtime, N = 4096
    input X: f16[B, N]
    input len: i32[2, B]
    output Y: f16[B, N]
    Y[b, j] = X[b, j] / max[k | k < len[0, b]](abs(X[b, k]))
    """
    given = request(dedent(text))
    general = compile_file(given)
    assert size_facts.whole_vectors(general.modules["spec"])
    asked: list[Request] = []

    def compile_one(one: Request) -> Result:
        asked.append(one)
        return compile_file(one)

    find(given, general, compile_one)
    assert len([one for one in asked if any(f.multiple > 1 for f in one.assumed)]) == 1


@pytest.mark.parametrize(
    ("text", "more"),
    [
        pytest.param(ROWS, {}, id="one schedule serves all sizes"),
        pytest.param(PRODUCT, {"dims": {"M": 512}}, id="a fixed size"),
    ],
)
def test_no_variants(text: str, more: dict[str, Any]) -> None:
    made = request(text, **more)
    assert find(made, compile_file(made), compile_variant) is None


def test_no_variants_beside_a_given_schedule(product: tuple[Request, Result]) -> None:
    given = request(PRODUCT, schedule=product[1].context.schedule)
    assert find(given, product[1], compile_variant) is None


def test_points_keep_the_facts() -> None:
    made = request(FACTS)
    spec = compile_file(made).modules["spec"]
    points = [*variants._points(spec, variants._grids(spec, GRID))]
    assert points and all(p["M"] <= p["N"] and p["N"] % 8 == 0 for p in points)


PACKED = """
dim T = runtime <= 65536, B = runtime <= 512, B1 = runtime <= 513, Pages = runtime
assume B1 == B + 1
input X: f16[Pages, 64]
input page: i32[T]
input indptr: i32[B1]
output Y: f32[B, 64]
Y[b: B, d] = sum[t: indptr[b] .. indptr[b + 1]](X[page[t], d])
"""


def test_sizes_that_facts_give_and_rows_that_no_axis_counts_do_not_vary() -> None:
    spec = compile_file(request(PACKED, until="spec")).modules["spec"]
    assert [d.name for d in size_facts.varied(spec)] == ["T", "B"]
    points = [*variants._points(spec, variants._grids(spec, GRID))]
    assert {"T": 8192, "B": 1} in points
    assert size_facts.all_sizes(spec, {"T": 16, "B": 64}) == {"T": 16, "B": 64, "B1": 65, "Pages": 4096}
    given = {*size_facts.given_by_others(spec)}  # predictions know them: of B segments, each has a share of the rows
    assert size_facts.with_given(spec, given, {"T": 16, "B": 64}) == {"T": 16, "B": 64, "B1": 65}


@pytest.mark.parametrize(
    ("last", "planned"),
    [
        pytest.param(64, [1, 4, 16, 64, 192, 256, 1024, 4096, 16384], id="several schedules for few rows"),
        pytest.param(4096, [1, 16, 64, 192, 256, 1024, 4096, 16384], id="one"),
    ],
)
def test_sizes_between_two_with_other_schedules_are_planned(last: int, planned: list[int]) -> None:
    """One schedule serves 1, another one 16 to 64, and the last one all others; or one serves all up to 4096."""
    made = request(PRODUCT)
    spec = compile_file(replace(made, until="spec")).modules["spec"]

    def compile_one(one: Request) -> Any:
        own = Schedule(batch_invariant=one.dims["M"] > 4 and last == 64)
        return SimpleNamespace(context=SimpleNamespace(schedule=own))

    found = variants._Schedules(made, spec, compile_one)
    assert [p["M"] for _, p in found.points()] == planned


def test_a_long_reduction_of_few_rows_is_planned() -> None:
    made = request("dim B = runtime, N = runtime\ninput X: f32[B, N]\noutput M: f32[B]\nM[b] = max[n](X[b, n])")
    spec = compile_file(replace(made, until="spec")).modules["spec"]
    assert [*variants._Schedules(made, spec, compile_file)._lone()] == [
        {"B": [1], "N": [4096]},
        {"B": [1, 64], "N": [65536]},
    ]


def test_a_variant_is_faster_than_the_first_one_where_it_was_made() -> None:
    points: tuple[dict[str, int], ...] = ({}, {"M": 1}, {"M": 64}, {"M": 1 << 20})
    candidates = tuple(SimpleNamespace(made_for=p) for p in points)
    given = Given(lambda M: 10, lambda M: 11 if M < 9 else 1, lambda M: 9, lambda M: float("inf"))
    given.candidates = candidates
    assert variants._better(given, [0, 1, 2, 3]) == [0, 2, 3]  # type: ignore[arg-type]


def test_the_text_has_every_variant_and_one_launcher(accepted: Result) -> None:
    result = accepted
    assert result.variants is not None
    assert result.cuda.count('extern "C" int spec_launch(') == 1
    for v in result.variants.all:
        assert f"namespace spec_{v.name}_code {{" in result.cuda and f"// spec_{v.name}\n" in result.cuda
    assert result.launched({"M": 1}).name != result.launched({"M": 16384}).name
    assert any(line.startswith("// variant ") for line in result.cuda.splitlines())


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        pytest.param("Y[i, j] = softmax[j](X[i, j])", 4096, id="softmax"),
        pytest.param("Y[i, j] = X[i, j] * rsqrt(mean[k](X[i, k] * X[i, k]) + 1e-6)", 4096, id="rms norm"),
    ],
)
def test_rows_that_are_read_again_stay_in_registers_under_a_bound(text: str, bound: int) -> None:
    given = request(WHOLE_VECTORS + text + "\n")
    found = find(given, compile_file(given), compile_variant)
    assert found is not None
    n = chosen(found.dispatch, {"M": 4096, "N": bound})
    facts = found.sized[n].assumed
    assert [f.size for f in facts] == ["N"] and facts[0].holds(bound)
    assert not any(isinstance(op, ForOp) for k in found.sized[n].module.kernels for op in walk_ops(k.body))
    assert not found.sized[chosen(found.dispatch, {"M": 4096, "N": 1 << 20})].assumed
    check_dispatch(Choice(tuple(v.module for v in found.sized), found.dispatch, compile_file(given).modules["ma-tile"]))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a[i] = max[j](abs(X[i, j]))\nY[i, j] = X[i, j] / a[i]", id="a tile as long as the bound"),
        pytest.param("Y[i, j: N] = sum[k | k <= j](X[i, k])", id="chunks of running results"),
    ],
)
def test_a_short_row_has_neither_the_tile_nor_the_chunks_of_a_long_one(text: str) -> None:
    sizes = "dim M = 64, N = runtime <= 16384\nassume N % 8 == 0\ninput X: f32[M, N]\noutput Y: f32[M, N]\n"
    given = request(sizes + text + "\n")
    found = find(given, compile_file(given), compile_variant)
    assert found is not None
    short, long = (found.sized[chosen(found.dispatch, {"N": n})] for n in (512, 16384))
    assert short.assumed and short.assumed[0].holds(512) and not short.assumed[0].holds(16384)
    seconds = [estimate(at_sizes(v.module, {"N": 512}), "sm_90a").seconds for v in (short, long)]
    assert seconds[0] < seconds[1]


def test_few_elements_of_a_scatter_are_in_shared_memory_under_a_bound() -> None:
    given = request("dim N = runtime, B = runtime\ninput k: i32[N]\noutput h: i32[B]\nh[b] = sum[i | k[i] == b](1)\n")
    found = find(given, compile_file(given), compile_variant)
    assert found is not None
    few, many = (found.sized[chosen(found.dispatch, {"N": 1 << 24, "B": b})] for b in (8192, 1 << 16))
    assert SizeFact("B", 8192) in few.assumed and not many.assumed
    seconds = [estimate(at_sizes(v.module, {"N": 1 << 24, "B": 8192}), "sm_90a").seconds for v in (few, many)]
    assert 3 * seconds[0] < seconds[1]


def test_few_and_many_steps_of_a_recurrence_have_chunks_of_their_own() -> None:
    spec = load_text("""
dim B = runtime, T = runtime <= 4096, D = 64
input x: f32[B, T, D]
output h: f32[B, T, D]
recur h[b, t, d] = 0.9 * h[b, t - 1, d] + x[b, t, d] if t > 0 else x[b, 0, d]
""")
    assert size_facts.steps(spec) == {"T"}
    (steps,) = [d for d in spec.dims if d.name == "T"]
    bounds = [*size_facts.bounds(steps, size_facts.STEPS)]
    assert bounds == [SizeFact("T", 128), SizeFact("T", 1024)]


def test_few_positions_of_a_recurrence_of_a_fixed_number_of_steps_have_scans() -> None:
    given = request("""
dim B = runtime, T = 2048, D = 512
input x: f32[B, T, D], a: f32[B, T, D]
output h: f32[B, T, D]
recur h[b, t, d] = sigmoid(a[b, t, d]) * h[b, t - 1, d] + x[b, t, d] if t > 0 else x[b, 0, d]
""")
    found = find(given, compile_file(given), compile_variant)
    assert found is not None
    few, many = (found.sized[chosen(found.dispatch, {"B": n})] for n in (4, 4096))
    assert few.assumed == (SizeFact("B", 16),) and not many.assumed  # 8 positions have the same kernels
    assert len(few.module.kernels) == len(many.module.kernels) == 1  # the steps of few positions are tiles, a scan each
    seconds = [estimate(at_sizes(v.module, {"B": 4}), "sm_90a").seconds for v in (few, many)]
    assert seconds[0] < 0.5 * seconds[1]


def test_each_bound_of_positions_under_which_a_recurrence_has_other_kernels_is_tried(
    product: tuple[Request, Result],
) -> None:
    """Kernels of one name differ in the blocks that share a step: an LSTM of 64 rows has teams of 32 blocks."""
    given, general = product
    teams = {8: 64, 16: 64, 32: 64, 64: 32, 128: 16, 256: 16}

    def lowered(asked: Request) -> Any:
        (fact,) = asked.assumed
        kernels = (Kernel("Y", (), (), team=teams[fact.most or 0]),)
        return SimpleNamespace(modules={"scalar": SimpleNamespace(kernels=kernels)})

    made = variants._Family(general, variants._Schedules(given, general.modules["spec"], lowered), ())
    assert [n for n, _ in made._positions()] == [8, 32, 64, 256]


def test_few_positions_of_a_recurrence_of_any_number_of_steps_have_small_tiles() -> None:
    given = request("""
dim B = runtime <= 256, T = runtime <= 100, D = 1024
input x: f32[B, T, D], a: f32[B, T, D]
output h: f32[B, T, D]
recur h[b, t, d] = a[b, t, d] * h[b, t - 1, d] + x[b, t, d] if t > 0 else x[b, 0, d]
""")

    def late(one: Request) -> Result:
        if one.dims:
            raise ScheduleError("plans of fixed sizes are not the question here")
        return compile_variant(one)

    found = find(given, compile_file(given), late)
    assert found is not None
    few, many = (found.sized[chosen(found.dispatch, {"B": n, "T": 100})] for n in (1, 256))
    assert few.assumed == (SizeFact("B", 8),) and not many.assumed
    seconds = [estimate(at_sizes(v.module, {"B": 1, "T": 100}), "sm_90a").seconds for v in (few, many)]
    assert seconds[0] < 0.8 * seconds[1]


def test_the_number_of_rows_need_not_be_one_of_vectors_for_a_number_of_each_row() -> None:
    spec = load_text("""
dim B = runtime, V = runtime, L = runtime
input X: f16[B, V], s: f32[B], id: i32[L]
output Y: f32[L]
Y[l] = sum[v](X[id[l], v]) * s[id[l]]
""")
    assert size_facts.whole_vectors(spec) == (SizeFact("V", multiple=8), SizeFact("L", multiple=4))


def test_axes_collapse_under_bounds_of_sizes_that_have_none() -> None:
    spec = load_text("""
dim A = runtime, B = runtime <= 4096, C = runtime, D = 64
input X: f32[A, B, D], Y: f32[C, D] strided, Z: f32[B, D]
output s: f32
s = sum[a, b, d](X[a, b, d] * Z[b, d]) + sum[c, d](Y[c, d])
""")
    assert size_facts.counted(spec, "ABC") == (SizeFact("A", 4096), SizeFact("B", 4096))
    assert size_facts.counted(spec, "BC") == ()


def test_whole_vectors_are_asked_for_first() -> None:
    given = request(PLAIN_ROWS.replace("M = runtime", "M = 4096"))
    found = find(given, compile_file(given), compile_variant)
    assert found is not None and isinstance(found.dispatch, Divided) and found.dispatch.divisors == (("N", 8),)
    odd, whole = (found.sized[chosen(found.dispatch, {"N": n})] for n in (8191, 8192))
    assert {f.multiple for f in odd.assumed} <= {1} and 8 in {f.multiple for f in whole.assumed}
    seconds = [estimate(at_sizes(v.module, {"N": 8192}), "sm_90a").seconds for v in (odd, whole)]
    assert seconds[1] < seconds[0]


def test_a_variant_at_sizes_that_it_was_not_compiled_for_is_an_error() -> None:
    given = request(PLAIN_ROWS)
    whole = compile_file(given).modules["ma-tile"]
    short = compile_file(replace(given, assumed=(SizeFact("N", 512),))).modules["ma-tile"]
    check_dispatch(Choice((short, whole), Threshold("N", 512, 0, 1), whole))
    with pytest.raises(InternalError, match=r"needs 'N <= 512', which '.*N <= 520' does not imply"):
        check_dispatch(Choice((short, whole), Threshold("N", 520, 0, 1), whole))


class Given:
    """Times of variants as functions of the sizes."""

    def __init__(self, *times: Any) -> None:
        self.times = self.candidates = times
        self.sizes: dict[int, Mapping[str, int]] = {}

    def of(self, n: int, p: Mapping[str, int]) -> float:
        return float(self.times[n](**p))

    def log(self, n: int, p: Mapping[str, int]) -> float:
        return log(self.of(n, p))

    compared = log

    def most(self, n: int, size: str) -> int:
        return MAX_DIM

    def made_for(self, n: int) -> Mapping[str, int]:
        return self.sizes.get(n, {})


def tree(points: list[dict[str, int]], *times: Any) -> Any:
    bounds = dict.fromkeys(points[0], MAX_DIM)
    return dispatch_tree._Search(Given(*times), tuple(bounds), points, range(len(times))).tree(
        tuple((0, n) for n in bounds.values()), dispatch_tree.LEVELS
    )[1]


def test_the_tree_needs_two_thresholds_for_an_island() -> None:
    points = [{"M": m, "N": n} for m in (1, 10, 100) for n in (1, 10, 100)]

    def second(M: int, N: int) -> float:
        return 0.1 if M <= 10 and N > 10 else 2.0

    found = tree(points, lambda M, N: 1.0, second)
    assert all(chosen(found, p) == (p["M"] <= 10 and p["N"] > 10) for p in points)


def test_a_small_gain_is_worth_no_threshold() -> None:
    points = [{"M": m} for m in (1, 10, 100)]
    assert tree(points, lambda M: 1.0, lambda M: 0.98 if M > 10 else 1.05) == 0


def test_no_more_variants_than_allowed() -> None:
    points = [{"M": m} for m in (1, 10, 100, 1000)]
    given = Given(lambda M: 4.0, *(lambda M, own=own: 1.0 if own == M else 9.0 for own in (1, 10, 100)))
    assert dispatch_tree.kept(given, points, 0, [1, 2, 3], 2) == [0, 1]
    assert dispatch_tree.kept(given, points, 0, [1, 2, 3], 9) == [0, 1, 2, 3]


def test_a_candidate_is_predicted_around_the_sizes_that_it_was_made_for() -> None:
    points, asked = [{"M": m} for m in (1, 16, 256, 4096, 65536)], list[int]()

    def small(M: int) -> float:
        asked.append(M)
        return 1.0 if M <= 16 else 2.0 * M

    given = Given(lambda M: 9.0, small)
    given.sizes = {1: {"M": 20}}
    assert dispatch_tree.kept(given, points, 0, [1], 2) == [0, 1] and sorted(asked) == [1, 16, 256]
    given.sizes = {1: {"M": 65536}}
    assert dispatch_tree.kept(given, points, 0, [1], 2) == [0]


def test_bounds_of_candidates_are_no_sizes_of_the_grid_where_they_make_too_many() -> None:
    text = "dim A = runtime, B = runtime, C = runtime\ninput X: f32[A, B, C]\noutput Y: f32[A, B, C]\n"
    spec = load_text(text + "Y[a, b, c] = X[a, b, c] + 1.0\n")
    made = compile_file(request(text + "Y[a, b, c] = X[a, b, c] + 1.0\n"))
    schedule = made.context.schedule
    assert schedule is not None

    def grid(*bounds: int) -> list[int]:
        facts = [SizeFact(d, n) for d in "ABC" for n in bounds]
        candidates = [dispatch_tree.Candidate("x", schedule, made.modules["ma-tile"], (f,)) for f in facts]
        return variants._grids(spec, GRID, candidates)["B"]

    assert grid(64) == [1, 32, 64, 512, 8192]
    assert grid(2, 4, 8, 16, 64, 128) == [1, 32, 512, 8192]


def test_a_threshold_stands_where_times_are_equal() -> None:
    points = [{"M": m} for m in (1, 16, 256, 4096)]
    given = Given(lambda M: 10 + M, lambda M: 100)
    assert tree(points, *given.times) == Threshold("M", 16, 0, 1)
    placed = dispatch_tree.decision_tree(given, points, (0, 1), {"M": MAX_DIM})
    assert isinstance(placed, Threshold) and 74 <= placed.most <= 90


def test_thresholds_of_several_sizes_lie_between_the_sizes_of_the_grid() -> None:
    """Variant 1 is faster from ``N = 3000`` on, which no size of the grid is near to; it is legal there alone."""

    class Times:
        def log(self, n: int, sizes: Mapping[str, int]) -> float:
            return log(max(1, 6000 - sizes["N"]) if n == 1 else 3000)

        def most(self, n: int, size: str) -> int:
            return 1024 if n == 2 else MAX_DIM

    points = [{"B": b, "N": n} for b in (1, 16) for n in (128, 1024, 8192)]
    tree = Threshold("N", 1024, 0, Threshold("B", 1, 1, 0))
    placed = dispatch_tree.placed(tree, Times(), points)  # type: ignore[arg-type]
    assert placed == Threshold("N", 2048, 0, Threshold("B", 4, 1, 0))
    bounded = dispatch_tree.placed(replace(tree, within=2), Times(), points)  # type: ignore[arg-type]
    assert isinstance(bounded, Threshold) and bounded.most == 1024


def test_no_variant_is_made_for_fewer_positions_than_the_given_size() -> None:
    text = """
dim B = runtime, T = 4
input X: f32[B, T]
output Y: f32[B, T]
recur Y[b, t] = sin(X[b, t] + (Y[b, t - 1] if t > 0 else 0))
"""
    made = compile_checked(replace(request(text), dims={"B": 64}, keep_runtime=True)).variants
    assert not [f for v in (made.all if made else ()) for f in v.assumed if f.most is not None and f.most < 64]
