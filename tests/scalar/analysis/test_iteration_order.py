"""The order of the pieces of a reduction loop: the first piece is certainly not empty, and the result is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import Schedule, check_schedule
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.analysis.iteration_order import obstacle
from nautilus.scalar.ir import Kind, Loop, Program, Stmt, Store, statements
from nautilus.scalar.passes.partition import Partition
from nautilus.scalar.text import format_program, parse_program
from nautilus.vr_tile.lowering.lower import lower
from nautilus.vr_tile.text import format as format_tiles
from nautilus.vr_tile.verify import verify
from tests.scalar.programs.build import causal, window
from tests.scalar.programs.small import CASES, attn
from tests.scalar.test_fusion import agree, stages
from tests.scalar.test_fusion_text import body_of, prefill, reduction_loops, tiled


def mixed_first(schedule: Schedule) -> Schedule:
    return replace(schedule, kernels=tuple(replace(k, iteration_order="mixed-first") for k in schedule.kernels))


def last(program: Program, rows: int = 128, step: int = 128) -> Program:
    return stages(program, mixed_first(tiled(default_schedule(program), rows, step)))[-1]


def test_a_causal_loop_starts_at_the_diagonal_once() -> None:
    text = format_program(last(prefill(causal())))
    assert reduction_loops(text) == ["j0 in i0..i0 + 1", "j0 in 0..i0"]
    assert body_of(text, "j0 in i0..i0 + 1").count("where") == 3
    assert "where" not in body_of(text, "j0 in 0..i0")


def test_a_window_starts_at_the_diagonal() -> None:
    text = format_program(last(prefill(window(256))))
    assert reduction_loops(text) == [
        "j0 in i0..i0 + 1",
        "j0 in max(0, i0 - 1)..i0",
        "j0 in max(0, i0 - 2)..max(0, i0 - 1)",
    ]


def test_a_piece_that_may_be_empty_is_not_first() -> None:
    """Rows 0 to 127 may have no keys, so every piece may be empty and the order does not change."""
    program = prefill(causal(-256))
    ascending = stages(program, tiled(default_schedule(program), 128, 128))[-1]
    assert reduction_loops(format_program(last(program))) == reduction_loops(format_program(ascending))


def test_the_pieces_are_one_chain() -> None:
    module = lower(last(prefill(window(256))))
    verify(module)
    assert format_tiles(module).count("chain c0") == 3


@pytest.mark.parametrize("name", CASES)
def test_every_program_computes_the_same(name: str) -> None:
    program, inputs = CASES[name]()
    agree((program, inputs), mixed_first(default_schedule(program)))


@pytest.mark.parametrize(("m", "n"), [(77, 130), (9, 333)])
@pytest.mark.parametrize("guard", [causal(53), causal(-40), window(20)])
def test_attention_at_odd_sizes(m: int, n: int, guard: object) -> None:
    case = attn(m, n, 2, guard)  # type: ignore[arg-type]
    agree(case, mixed_first(tiled(default_schedule(case[0]), 16, 16)))


RECURRENCE = """program p {{
  input X: f32[64]
  output Y: f32[4]
  kernel k {{
    local A: f32[4]
    local R: f32[4]
    tile i in 0..4 {{
      A[i] = 0.0
    }}
    tile i in 0..4 {{
      R[i] = 0.0
    }}
    seq j0 in 0..16 {{
      {body}
    }}
    tile i in 0..4 {{
      Y[i] = A[i]
    }}
  }}
}}
"""


def tile(text: str) -> str:
    return f"tile i in 0..4 {{\n{text}\n}}\n"


def loop_of(body: str) -> Loop:
    def find(body: tuple[Stmt, ...]) -> Loop:
        return next(s for s in body if isinstance(s, Loop) and s.kind is Kind.SEQ)

    return find(parse_program(RECURRENCE.format(body=body)).kernels[0].body)


REFUSED = {
    "A[i] = A[i] * 0.5\n}\ntile i in 0..4 {\nA[i] sum= X[j0 * 4 + i]": "neither an update nor a repair",
    "A[i] = X[j0 * 4 + i]\n}\ntile i in 0..4 {\nR[i] sum= A[i]": None,
    "R[i] sum= X[j0 * 4 + i]\n}\ntile i in 0..4 {\nA[i] sum= R[i]": "not repaired",
    "A[i] sum= A[i] + X[j0 * 4 + i]": "reads itself",
    "A[i] sum= X[j0 * 4 + i]\n}\ntile i in 0..4 {\nA[i] max= X[j0 * 4 + i]": "one combiner",
    "A[i] sum= X[j0 * 4 + i]": None,
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.items())
def test_recurrences_have_an_order(body: str, reason: str | None) -> None:
    found = obstacle(loop_of(tile(body)), frozenset({"A", "R"}))
    assert found is None if reason is None else found is not None and reason in found


def _is_repair(s: Stmt) -> bool:
    leaves = [x for _, x in statements((s,))]
    return len(leaves) == 1 and isinstance(leaves[0], Store) and "_fix" in str(leaves[0].value)


def test_a_loop_with_an_order_is_refused() -> None:
    program = stages(prefill(causal()), tiled(default_schedule(prefill(causal()))))[-2]
    s = mixed_first(tiled(default_schedule(prefill(causal()))))

    def unrepaired(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        kept = (s for s in body if not _is_repair(s))
        return tuple(replace(s, body=unrepaired(s.body)) if isinstance(s, Loop) else s for s in kept)

    kernels = tuple(replace(k, body=unrepaired(k.body)) for k in program.kernels)
    with pytest.raises(ScheduleError, match="not repaired"):
        Partition(s).apply(replace(program, kernels=kernels))


def test_an_unknown_order_is_refused() -> None:
    s = default_schedule(prefill(causal()))
    with pytest.raises(ScheduleError, match="iteration_order is 'up'"):
        check_schedule(replace(s, kernels=(replace(s.kernels[0], iteration_order="up"),)))  # type: ignore[arg-type]
