"""Tiles of axes that a block holds whole, and loop steps, that are no powers of two."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.interleaved import position
from nautilus.core.expr.nodes import Axis, Expr, Load, Var
from nautilus.core.fallbacks import FEWER, LIGHTER, Fallbacks
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.source import NO_SPAN
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.planner.products.back_to_back import LONGEST, is_plain, live_in_bytes, steps, whole_tile
from nautilus.scalar.analysis.definitions import Def
from tests.planner.plans import schedule_of

TEXT = """
dim H = 32, M = 4096, D = {0}, E = {1}
input  Q: f16[H, M, D]
input  K: f16[H, M, D]
input  V: f16[H, M, E]
output O: f16[H, M, E]
P[h, i, j] = softmax[j{2}](sum[d](Q[h, i, d] * K[h, j, d]))
O[h, i, e] = sum[j](P[h, i, j] * V[h, j, e])
"""


def test_tiles_waste_little() -> None:
    tiles = {n: whole_tile(n) for n in (16, 24, 48, 64, 72, 80, 88, 96, 112, 128, 144, 160, 192, 200, 256)}
    assert tiles == {
        16: 16, 24: 32, 48: 48, 64: 64, 72: 80, 80: 80, 88: 96, 96: 96, 112: 128, 128: 128, 144: 160, 160: 160,
        192: 192, 200: 224, 256: 256,
    }  # fmt: skip
    assert {n: whole_tile(n, unit=32) for n in (16, 80, 88, 128)} == {16: 32, 80: 96, 88: 96, 128: 128}


@pytest.mark.parametrize(("extent", "first"), [(4096, 128), (224, 112), (320, 112), (192, 96), (129, 128), (77, 80)])
def test_steps_leave_few_positions_unused(extent: int, first: int) -> None:
    assert steps(extent, plain=True)[0] == first
    assert set(steps(extent, plain=False)) == {64, LONGEST}


@pytest.mark.parametrize(
    ("sizes", "mask", "step", "registers"),
    [
        ((128, 128), "", 128, True),
        ((80, 80), "", 128, True),
        ((160, 160), "", 96, True),
        ((192, 128), "", 112, True),
        ((192, 128), " | j <= i", 96, True),  # a mask needs registers
        ((192, 192), "", 64, True),
        ((224, 224), "", 80, False),
        ((256, 256), "", 64, False),
        ((160, 160), " | j // 64 <= i // 64", 64, True),  # blocks of positions want steps that divide them
    ],
)
def test_steps_fit_registers(tmp_path: Path, sizes: tuple[int, int], mask: str, step: int, registers: bool) -> None:
    path = tmp_path / "held.naut"
    path.write_text(TEXT.format(*sizes, mask))
    schedule = compile_file(Request(path, "sm_90a", until="scalar")).context.schedule
    assert schedule is not None
    plan = schedule.kernels[-1]
    tiles = {a.name: a.tile for a in plan.axes}
    assert isinstance(plan.mapping, WarpgroupPlan)
    assert (tiles["j"], tiles["d"], tiles["e"]) == (step, whole_tile(sizes[0]), whole_tile(sizes[1]))
    assert plan.mapping.register_operands is registers


def test_interleaved_rows_have_steps_of_whole_units() -> None:
    """A position inside of a unit divides the loop's index; one of a page of 48 positions divides all of it."""
    j, axis = Var("j"), Axis("j", 4096)

    def summed(place: Expr) -> Def:
        return Def(
            "T",
            Buffer("T", DType.F32, (), Space.TEMP),
            (),
            (axis,),
            "sum",
            Load("X", (place,), DType.F32),
            None,
            NO_SPAN,
        )

    assert is_plain([summed(position(j))], "j", unit=32)
    assert not is_plain([summed(position(j))], "j")
    assert not is_plain([summed(calc("floordiv", j, 48))], "j", unit=32)


def test_a_left_operand_in_registers_shortens_steps_of_bytes() -> None:
    assert live_in_bytes(128, 128) == live_in_bytes(128, 96, 128) + 4 == 208


LATENT = """
dim H = 4, N = 256, F = 576, R = 512
input  Q: bf16[N, H, F]
input  C: bf16[N, F]
output O: bf16[N, H, R]
P[h, i, j] = softmax[j | j <= i](sum[f](Q[i, h, f] * C[j, f]))
O[i, h, r] = sum[j](P[h, i, j] * C[j, r + 0])
"""


@pytest.mark.parametrize(("rung", "step", "stages"), [(0, 64, 2), (LIGHTER, 32, 4)])
def test_divided_columns_take_a_shorter_step_where_registers_were_too_few(rung: int, step: int, stages: int) -> None:
    fallbacks = Fallbacks(taken=(("O", rung),) if rung else ())
    whole = Schedule(splits=())
    request = Request(Path("latent.naut"), "sm_90a", text=LATENT, until="scalar", fallbacks=fallbacks, schedule=whole)
    schedule = compile_file(request).context.schedule
    assert schedule is not None
    (plan,) = schedule.kernels
    assert {a.name: a.tile for a in plan.axes}["j"] == step and plan.mapping.stages == stages


SHARED = """
dim B = 8, H = 4, M = 64, N = 2048, D = 64
input  Q: f16[H, M, D]
input  K: f16[B, N, H, D]
input  V: f16[B, N, H, D]
output O: f16[B, M, H, D]
S[b, i, h, j] = sum[d](Q[h, i, d] * K[b, j, h, d])
O[b, i, h, d] = sum[j](softmax[j](S[b, i, h, j]) * V[b, j, h, d])
"""


def test_queries_that_all_batches_share_are_fused_with_their_keys() -> None:
    schedule = schedule_of(SHARED)
    first = schedule.kernels[0]
    assert {"S", "O_acc_part"} <= set(first.ops) and {a.name: a.tile for a in first.axes}["b"] == 1


GROUPS = """
dim M = 2048, B = 512, L = 180, D = 128
input  Q: f16[M, D]
input  C: f16[B, L, D]
output O: f32[M, B]
O[i, b] = max[j](sum[d](Q[i, d] * C[b, j, d]))
"""


def test_a_block_has_one_group_of_the_columns_that_its_loop_visits() -> None:
    """Columns along the loop fill a tile, so that a second axis of columns stays with the grid."""
    (plan,) = schedule_of(GROUPS).kernels
    assert {a.name: a.tile for a in plan.axes}["b"] == 1 and isinstance(plan.mapping, WarpgroupPlan)


@pytest.mark.parametrize(("rung", "rows", "step"), [(0, 192, 128), (FEWER, 128, 128), (LIGHTER, 128, 64)])
def test_two_warpgroups_keep_the_step_before_it_is_halved(rung: int, rows: int, step: int) -> None:
    fallbacks = Fallbacks.of({"O": rung})
    text = TEXT.format(64, 64, "")
    request = Request(Path("narrow.naut"), "sm_90a", text=text, until="scalar", fallbacks=fallbacks)
    schedule = compile_file(request).context.schedule
    assert schedule is not None
    (plan,) = schedule.kernels
    assert isinstance(plan.mapping, WarpgroupPlan) and not plan.mapping.register_operands
    assert (plan.axis("i").tile, plan.axis("j").tile, plan.mapping.ordered_mma) == (rows, step, rung != LIGHTER)


def test_a_chain_of_products_of_one_extent() -> None:
    """Each reduced axis may be whole inside the loop over another one, so that one kernel would have no loop."""
    given = ["dim B = 64, D = 512", "input X0: f16[B, D]", "output X3: f16[B, D]"]
    given += [f"input W{n}: f16[D, D]" for n in range(3)]
    made = [f"X{n + 1}{': f16' * (n < 2)}[i, j] = sum[k](X{n}[i, k] * W{n}[k, j])" for n in range(3)]
    assert len(schedule_of("\n".join([*given, *made, ""])).kernels) == 3
