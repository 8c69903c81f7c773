"""The printed text of a kernel whose sizes are known only at launch, at several sizes; also of variants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.core.schedule import AxisPlan, Schedule, SplitPlan
from nautilus.core.schedule.dispatch import Divided, SizeFact, Threshold
from nautilus.cuda.host.choice import Choice
from nautilus.cuda.variants import lower_variants
from nautilus.driver import Request
from tests.fuzz.thresholds import lowered
from tests.shipped import ROOT, paged_decode
from tests.simulation.compared import Case, at_sizes, compiled, differing, prepare
from tests.simulation.simulate import MISSING, build, execute

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

#: title -> text, target, sizes of the dims in order, whether sums are exact
CASES: dict[str, tuple[str, str, list[tuple[int, ...]], bool]] = {
    "rows": (
        """
        dim M = runtime, N = runtime <= 2000
        input X: f16[M, N]
        output Y: f16[M, N]
        Y[i, j] = softmax[j](X[i, j])
        """,
        "sm_80",
        [(1, 1), (7, 77), (3, 0), (0, 5)],
        False,
    ),
    "product": (
        """
        dim M = runtime, N = 24, K = runtime <= 500
        input A: f16[M, K]
        input B: f16[K, N]
        output C: f16[M, N]
        C[i, j] = sum[k](A[i, k] * B[k, j])
        """,
        "sm_90a",
        [(1, 1), (7, 77), (77, 7), (5, 0), (0, 3)],
        True,
    ),
    "warpgroup GEMM with facts": (
        """
        dim M = runtime, N = runtime, K = runtime <= 500
        assume N % 8 == 0 and K % 16 == 0
        input A: f16[M, K]
        input B: f16[K, N]
        output C: f16[M, N]
        C[i, j] = sum[k](A[i, k] * B[k, j])
        """,
        "sm_90a",
        [(1, 8, 16), (70, 72, 48), (5, 8, 0), (0, 8, 16)],
        True,
    ),
    "warpgroup GEMM with strides": (
        """
        dim M = runtime, N = 72, K = runtime <= 500
        input A: f16[M, K] strided
        input B: f16[K, N] strided
        output C: f16[M, N] strided
        C[i, j] = sum[k](A[i, k] * B[k, j])
        """,
        "sm_90a",
        [(1, 1), (70, 77), (5, 0), (0, 16)],
        True,
    ),
    "rows with strides": (
        """
        dim B = 2, M = runtime, N = 40
        input X: f16[B, M, N] strided
        input Y: f16[B, M, N] strided(M)
        input Z: f16[B, M, N] strided(all)
        output O: f16[B, M, N] strided(B)
        O[b, i, j] = softmax[j](X[b, i, j] + Y[b, i, j] * Z[b, i, j])
        """,
        "sm_80",
        [(1,), (7,), (0,)],
        False,
    ),
    "rows of a size in device memory": (
        """
        dim M = 3, N = device <= 90
        input X: f16[M, N]
        output Y: f16[M, N]
        Y[i, j] = softmax[j](X[i, j])
        """,
        "sm_90a",
        [(1,), (77,), (0,)],
        False,
    ),
    "warpgroup attention on a packed tensor": (
        """
        dim M = runtime, H = 2, D = 64
        input X: f16[M, 3, H, D] strided
        output O: f16[M, H, D] strided(M)
        S[h, i, j] = sum[d](X[i, 0, h, d] * X[j, 1, h, d]) / sqrt(D)
        P[h, i, j] = softmax[j | j <= i](S[h, i, j])
        O[i, h, d] = sum[j](P[h, i, j] * X[j, 2, h, d])
        """,
        "sm_90a",
        [(1,), (70,)],
        False,
    ),
    "warpgroup GEMM": (
        """
        dim B = runtime <= 9, K = runtime <= 500, M = 128, N = 64
        input X: f16[B, K, M]
        input W: f16[K, N]
        output C: f16[B, M, N]
        C[b, i, j] = sum[k](X[b, k, i] * W[k, j])
        """,
        "sm_90a",
        [(1, 1), (2, 77), (3, 0), (0, 3)],
        True,
    ),
    "sizes in device memory, with scratch memory": (
        """
        dim T = device <= 500, B = device <= 9, K = 64, N = 24
        input X: f16[T, K]
        input W: f16[K, N]
        input Z: f16[3, T, B]
        output Y: f16[T, N], R: f16[3, T, B], S: f32[N]
        H: f16[t, n] = sum[k](X[t, k] * W[k, n])
        M[n] = max[t](H[t, n])
        Y[t, n] = H[t, n] - M[n]
        R[i, t, b] = Z[i, t, b] * 2 + T
        S[n] = sum[t](H[t, n])
        """,
        "sm_90a",
        [(1, 1), (77, 9), (0, 3), (500, 0)],
        True,
    ),
    "warpgroup GEMM with rows of a size in device memory": (
        """
        dim M = device <= 200, K = 128, N = 64
        input X: f16[M, K]
        input W: f16[K, N]
        output Y: f16[M, N]
        Y[i, n] = max(sum[k](X[i, k] * W[k, n]), 0)
        """,
        "sm_90a",
        [(1,), (70,), (0,), (200,)],
        True,
    ),
    "a batch of a size in device memory": (
        """
        dim B = device <= 5, H = 2, N = 96, D = 32
        input Q: f16[B, H, D]
        input K: f16[B, N, D]
        input V: f16[B, N, D]
        input len: i32[B]
        output O: f16[B, H, D]
        assume 0 <= len[b] <= N
        S[b, h, j] = sum[d](Q[b, h, d] * K[b, j, d]) / sqrt(D)
        P[b, h, j] = softmax[j | j < len[b]](S[b, h, j])
        O[b, h, d] = sum[j](P[b, h, j] * V[b, j, d])
        """,
        "sm_80",
        [(1,), (5,), (0,)],
        False,
    ),
    "warpgroup attention": (
        """
        dim M = runtime, N = runtime <= 9000, D = 64
        input Q: f16[M, D]
        input K: f16[N, D]
        input V: f16[N, D]
        output O: f16[M, D]
        S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
        P[i, j] = softmax[j | j - i <= N - M](S[i, j])
        O[i, d] = sum[j](P[i, j] * V[j, d])
        """,
        "sm_90a",
        [(1, 1), (140, 77), (3, 150), (3, 0), (0, 3)],
        False,
    ),
    "warpgroup attention whose loops may all be empty, with ordered MMAs": (
        """
        dim B = runtime <= 9, M = 192, N = 300, D = 64
        input Q: f16[B, M, D]
        input K: f16[B, N, D]
        input V: f16[B, N, D]
        input len: i32[B]
        output O: f16[B, M, D]
        S[b, i, j] = sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(D)
        P[b, i, j] = softmax[j | j < len[b]](S[b, i, j])
        O[b, i, d] = sum[j](P[b, i, j] * V[b, j, d])
        """,
        "sm_90a",
        [(5,), (0,)],
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_text_serves_every_size(name: str, tmp_path: Path) -> None:
    text, arch, sizes, exact = CASES[name]
    case = prepare(Request(Path("given.naut"), arch, text=text.lstrip()), integers=exact)
    assert ("wgmma" in case.text) == name.startswith("warpgroup")
    program, dims = compiled(case, tmp_path), case.result.modules["spec"].runtime_dims
    for n, size in enumerate(sizes):
        here = at_sizes(case, {d.name: value for d, value in zip(dims, size, strict=True)})
        found = differing(here, [n], program)
        assert not found, f"{size}: " + "\n".join(found)


VARIANTS = """
dim M = runtime <= 500, N = 24, K = 256
assume M % 2 == 0
input A: f16[M, K]
input B: f16[K, N]
output C: f16[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


def test_every_size_reaches_its_variant_with_scratch_memory_of_its_own(tmp_path: Path) -> None:
    request = Request(Path("given.naut"), "sm_80", text=VARIANTS.lstrip())
    whole = prepare(request, integers=True)
    cut = prepare(replace(request, schedule=Schedule(splits=(SplitPlan("C_acc", "k", 4, 64),))), integers=True)
    modules = [replace(c.module, name=f"spec_{name}") for c, name in ((cut, "few"), (whole, "many"))]
    assert len(modules[0].kernels) > len(modules[1].kernels)
    dispatch = Threshold("M", 40, 0, 1)
    made = lower_variants(Choice(tuple(modules), dispatch, whole.module))
    program = build(made.text, whole.module, whole.given, tmp_path)
    for m in (0, 2, 40, 42, 90):
        case = at_sizes(cut if m <= 40 else whole, {"M": m})
        assert differing(case, [m], program) == [], m
    assert made.kernels.keys() == {f"{x.name}__{k.name}" for x in modules for k in x.kernels}


STRIDED = """
dim M = runtime <= 500, N = 72, K = 128
input A: f16[M, K] strided
input B: f16[K, N] strided
output C: f16[M, N] strided
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


def test_strides_that_are_no_whole_vectors_reach_their_variant(tmp_path: Path) -> None:
    request = Request(Path("given.naut"), "sm_90a", text=STRIDED.lstrip())
    aligned, any_stride = (prepare(replace(request, unaligned=x), integers=True) for x in (False, True))
    modules = [replace(c.module, name=f"spec_{n}") for n, c in enumerate((aligned, any_stride))]
    text = lower_variants(Choice((modules[0],), 0, aligned.module, modules[1])).text
    assert "tma_load" in aligned.text
    program = build(text, aligned.module, aligned.given, tmp_path)
    for m in (0, 1, 70):
        for case in (aligned, any_stride):
            here = at_sizes(case, {"M": m})
            odd = any(here.given.sizes[p.name] % 8 for p in aligned.module.params if "stride" in p.name)
            assert odd == (case is any_stride)
            assert differing(here, [m], program) == [], m


SHORT_ROWS = """
dim M = runtime, N = runtime
input X: f16[M, N]
output Y: f16[M, N]
Y[i, j] = softmax[j](X[i, j])
"""


def test_rows_reach_the_variants_whose_facts_hold(tmp_path: Path) -> None:
    request = Request(Path("given.naut"), "sm_80", text=SHORT_ROWS.lstrip())
    facts = {"short": SizeFact("N", 96, 8), "vectors": SizeFact("N", multiple=8), "any": None}
    cases = {name: prepare(replace(request, assumed=() if f is None else (f,))) for name, f in facts.items()}
    modules = [replace(c.module, name=f"spec_{name}") for name, c in cases.items()]
    assert "for (int" in cases["any"].text and [a.role for a in axes_of(cases["short"])] == ["grid", "tile"]
    dispatch = Divided((("N", 8),), Threshold("N", 96, 0, 1), 2)
    whole = cases["any"]
    text = lower_variants(Choice(tuple(modules), dispatch, whole.module)).text
    program = build(text, whole.module, whole.given, tmp_path)
    for n, name in ((0, "short"), (8, "short"), (96, "short"), (104, "vectors"), (97, "any"), (7, "any")):
        assert differing(at_sizes(cases[name], {"M": 3, "N": n}), [n], program) == [], n


def axes_of(case: Case) -> tuple[AxisPlan, ...]:
    schedule = case.result.context.schedule
    assert schedule is not None
    return schedule.kernels[0].axes


# ---- specs of a server: pages after lengths, windows and sinks
FOLDER = ROOT / "specs" / "serving" / "attention"
HEADS = {"Hq": 2, "Hkv": 1, "N": 48, "D": 32, "P": 16}

#: title -> spec, fixed sizes, sizes of one launch each, engines of the kernels; thresholds are lowered
SERVED: dict[str, tuple[str, dict[str, int], list[dict[str, int]], list[str]]] = {
    "operands from pages in rows of their own": (
        "chunked_prefill", {**HEADS, "N": 128, "D": 64, "Pages": 300},
        [{"B": 1, "M": 40}], ["warp", "warpgroup"],
    ),
    "a correction that reads an input of fewer rows than a tile": (
        "paged_sinks_decode", {**HEADS, "Hq": 4, "Hkv": 2, "Pages": 5, "W": 20}, [{"B": 2}, {"B": 0}], ["warp"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SERVED)
def test_serving(name: str, tmp_path: Path) -> None:
    spec, dims, sizes, engines = SERVED[name]
    with lowered():
        request = Request(FOLDER / f"{spec}.naut", "sm_90a", {**dims, **sizes[0]}, keep_runtime=True)
        case = prepare(request)
    schedule = case.result.context.schedule
    assert schedule is not None and [k.mapping.engine for k in schedule.kernels] == engines
    program = compiled(case, tmp_path)
    for n, here in enumerate(sizes):
        found = differing(at_sizes(case, here), [n], program)
        assert not found, f"{here}: " + "\n".join(found)


# ---- equal bits in every batch
RAGGED = """
dim T = runtime <= 500, H = 1, D = 32
input Q: f16[T, H, D]
input K: f16[T, H, D]
input V: f16[T, H, D]
input start: i32[T]
output O: f16[T, H, D]
S[h, i, j] = sum[d](Q[i, h, d] * K[j, h, d]) / sqrt(D)
A[h, i, j] = softmax[j | start[i] <= j and j <= i](S[h, i, j])
O[i, h, d] = sum[j](A[h, i, j] * V[j, h, d])
"""


def test_a_row_has_equal_bits_in_every_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sequence, at several places of batches of several sizes, over the same pages."""
    monkeypatch.setattr("nautilus.planner.cuts.CHUNK", 64)
    monkeypatch.setattr("nautilus.planner.streaming.SHORTEST", 64)
    text = paged_decode("B = runtime <= 16, Hq = 2, Hkv = 1, N = 256, D = 32, P = 16, Pages = 64")
    case = prepare(Request(Path("given.naut"), "sm_80", text=text, schedule=Schedule(batch_invariant=True)))
    schedule, spec = case.result.context.schedule, case.result.modules["spec"]
    assert schedule is not None and schedule.splits
    program, pages = compiled(case, tmp_path), ("K", "V")
    row = generate(spec, "random", 5, sizes={"B": 1})
    found = []
    for seed, (count, place) in enumerate([(1, 0), (2, 1), (7, 0), (7, 6), (16, 3)]):
        several = generate(spec, "random", 100 + seed, sizes={"B": count})
        arrays = {n: row.arrays[n] if n in pages else x.copy() for n, x in several.arrays.items()}
        for name in ("Q", "page", "len"):
            arrays[name][place] = row.arrays[name][0]
        (got,) = execute(program, replace(several, arrays=arrays), [seed])
        found.append(got["O"][place])
    assert np.abs(found[0]).max() > 0
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_ragged_sequence_has_equal_bits_after_any_neighbours(tmp_path: Path) -> None:
    """The sequence lies at positions 40 to 59; what lies before and after it has other lengths and contents."""
    request = Request(Path("given.naut"), "sm_80", text=RAGGED.lstrip(), schedule=Schedule(batch_invariant=True))
    case = prepare(request)
    program, spec = compiled(case, tmp_path), case.result.modules["spec"]
    own = generate(spec, "random", 5, sizes={"T": 20})
    found = []
    for seed, starts in enumerate([(0, 60), (0, 10, 60, 70), (0, 39, 60), (0, 1, 2, 3, 60, 61, 100)]):
        length = 60 if seed == 0 else 130
        several = generate(spec, "random", 100 + seed, sizes={"T": length})
        arrays = {n: x.copy() for n, x in several.arrays.items()}
        for name in ("Q", "K", "V"):
            arrays[name][40:60] = own.arrays[name]
        begins = sorted({*starts, 40})
        arrays["start"] = np.array([max(s for s in begins if s <= i) for i in range(length)], arrays["start"].dtype)
        (got,) = execute(program, replace(several, arrays=arrays), [seed])
        found.append(got["O"][40:60])
    assert np.abs(found[0]).max() > 0
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
