"""The planner: one decision before each pass that carries one out; what the schedule says stays."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.core.errors import InternalError
from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.driver import Request, compile_file
from nautilus.passes.manager import Record
from nautilus.passes.pipelines import SCALAR
from nautilus.planner.planner import Planner
from nautilus.scalar.ir import Program
from tests.planner.plans import schedule_of

SPEC = dedent("""\
    dim M = 64, N = 256
    input X: f16[M, N]
    output Y: f32[M]
    S[i, j] = X[i, j] * 2.0
    Y[i] = sum[j](S[i, j])
""")
PLANNER = Planner("sm_80")


class Recorder:
    """Keeps the schedule after every step of the Scalar IR, and the module before every decision."""

    def __init__(self) -> None:
        self.schedules: dict[str, Schedule | None] = {}
        self.modules: dict[str, Program] = {}
        self._last: Program | None = None

    def after(self, record: Record) -> None:
        if record.stage is SCALAR:
            if record.name in SCALAR.decisions and self._last is not None:
                self.modules[record.name] = self._last
            self.schedules[record.name], self._last = record.context.schedule, record.module


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    recorder = Recorder()
    compile_file(Request(Path("rows.naut"), "sm_80", text=SPEC, until="scalar"), [recorder])
    return recorder


def test_each_decision_is_made_right_before_its_pass(recorded: Recorder) -> None:
    made = recorded.schedules
    assert made["simplify"] is None
    assert made["inline"] == made["dead"] == Schedule(inline=("S",))
    fused = made["fuse"]
    assert fused is not None and fused.inline == ("S",) and [k.name for k in fused.kernels] == ["Y"]
    assert made["partition"] == fused


@pytest.mark.parametrize("before", SCALAR.decisions)
def test_what_the_schedule_says_stays(recorded: Recorder, before: str) -> None:
    given = recorded.schedules["partition"]
    assert given is not None
    assert PLANNER.decide(before, recorded.modules[before], given) is given


def test_there_are_no_other_decisions(recorded: Recorder) -> None:
    with pytest.raises(InternalError, match="nothing before the pass 'split'"):
        PLANNER.decide("split", recorded.modules["fuse"], None)


def test_the_largest_scale_of_a_product_has_a_kernel_of_its_own() -> None:
    """A loop that found it as it goes would multiply all sums of the product in every step."""
    text = (
        "dim B = 2, G = 4, N = 512, D = 64\ninput Q: f16[B, G, D]\ninput K: f16[B, N, D]\ninput V: i8[B, N, D]\n"
        "input s: f32[B, N]\noutput O: f16[B, G, D]\nS[b, g, j] = sum[d](Q[b, g, d] * K[b, j, d])\n"
        "O[b, g, d] = sum[j](softmax[j](S[b, g, j]) * (s[b, j] * V[b, j, d]))\n"
    )
    schedule = schedule_of(text)
    groups = [{n.removesuffix("_part") for n in k.ops} for k in schedule.kernels]
    assert {"O_acc_largest"} in groups and not any({"S", "O_acc_largest"} <= g for g in groups)


def test_a_large_sum_beside_a_convolution_has_a_kernel_of_its_own() -> None:
    """The zero point of its image adds a sum of the filter, of 128 channels times 16 taps times 64."""
    text = """
        dim B = 8, H = 58, C = 64, F = 128
        scalar z: i32
        input x: i8[B, H, H, C], w: i8[F, 3, 3, C], m: f32[F]
        output y: f32[B, H - 2, H - 2, F]
        y[b, i, j, f] = m[f] * sum[r: 3, s: 3, c]((x[b, i + r, j + s, c] - z) * w[f, r, s, c])
    """
    made = compile_file(Request(Path("given.naut"), text=dedent(text), until="ma-tile")).modules["ma-tile"]
    assert [k.name for k in made.kernels] == ["y_sum_term", "y"]


def test_the_largest_scale_of_a_product_joins_no_other_reader_of_it() -> None:
    text = (
        "dim B = 16, G = 4, N = 8192, D = 128\ninput Q: f16[B, G, D]\ninput K: i8[B, N, D]\ninput V: i8[B, N, D]\n"
        "input s: f32[D]\noutput O: f16[B, G, D]\nS[b, g, j] = sum[d](Q[b, g, d] * s[d] * K[b, j, d])\n"
        "O[b, g, d] = sum[j](softmax[j](S[b, g, j]) * V[b, j, d])\n"
    )
    schedule = schedule_of(text)
    assert not any({"S_sum", "S_sum_largest"} <= {*k.ops} for k in schedule.kernels)


def test_chunks_of_a_sum_over_rows_stay_apart_from_what_is_stored_for_each_row() -> None:
    """A block of one kernel for both would compute all chunks of its columns."""
    text = (
        "dim T = 8192, F = 4096\ninput x: bf16[T, F]\ninput dy: bf16[T, F]\noutput dx: bf16[T, F]\noutput db: f32[F]\n"
        "dz[t, f] = dy[t, f] * exp(x[t, f])\ndx[t, f] = dz[t, f]\ndb[f] = sum[t](dz[t, f])\n"
    )
    given = Schedule(splits=(SplitPlan("db", "t", 8, 64),))
    schedule = schedule_of(text, given=given)
    assert {k.ops for k in schedule.kernels} == {("dx",), ("db_part",), ("db",)}


def test_no_block_has_rows_of_elementwise_results_that_are_contiguous_from_block_to_block() -> None:
    text = (
        "dim N = 4096, K = 4096\ninput A: i4[N, K]\ninput B: u4[K, N]\noutput Y: i32[N, N // 2]\noutput Z: i4[K, N]\n"
        "Y[i, j: N // 2] = sum[k](A[i, k] * B[k, 2 * j + 1])\nZ[k, i] = A[i, k] - i32(B[k, i])\n"
    )
    schedule = schedule_of(text)
    assert ("Y_right",) in {k.ops for k in schedule.kernels}


def test_one_block_ends_all_reductions_of_a_tensor() -> None:
    text = (
        "dim N = 4194304\ninput X: f32[N]\noutput S: f32[], M: f32[], C: i32[]\nS = sum[n](X[n])\n"
        "M = max[n](abs(X[n]))\nC = sum[n](i32(X[n] > 0))\n"
    )
    schedule = schedule_of(text)
    assert [len(k.ops) for k in schedule.kernels] == [3, 3]
