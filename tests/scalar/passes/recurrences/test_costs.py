"""What the passes that cut recurrences predict and plan, to the last operation; and the tiles of nests of a step."""

from __future__ import annotations

import pytest

from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import loads
from nautilus.core.index.sizes import at_most
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.analysis.states.linear_states import linear_states
from nautilus.scalar.analysis.states.recurrences import RATE, form_of
from nautilus.scalar.ir import Kind, Loop
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.recurrences import chunk_matrix_states
from nautilus.scalar.passes.recurrences.chunk_matrix_states import ChunkMatrixStates, matrix_recurrence
from nautilus.scalar.passes.recurrences.chunk_recurrences import STEP, times
from nautilus.scalar.passes.recurrences.members.join_recurrences import JoinRecurrences
from nautilus.scalar.passes.recurrences.tile_recurrences import LANES, _plan, _shared_lanes
from nautilus.scalar.rewriting import find_defs
from nautilus.scalar.rewriting.states.chunks import Found
from nautilus.targets.memory_rates import LAUNCH
from tests.scalar.passes.recurrences.test_chunk_matrix_states import DELTA

STATE = """
dim H = 2, T = 128, D = 16, E = 32
input q: bf16[H, T, D], k: bf16[H, T, D], v: bf16[H, T, E], g: f32[H, T]
output Y: f32[H, T, E]
recur {
  S[h, t, d, e] = sigmoid(g[h, t]) * (S[h, t - 1, d, e] if t > 0 else 0) + k[h, t, d] * v[h, t, e]
  Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
}
"""


def found(text: str) -> Found:
    """The matrix state of the recurrence of the spec ``text``."""
    spec = load_text(text)
    program = JoinRecurrences().apply(lower(spec))
    (k,) = (k for k in program.kernels if is_recurrence(k))
    state = matrix_recurrence(program, k, spec)
    assert state is not None
    return state


@pytest.mark.parametrize(
    ("length", "bytes_", "operations", "launches", "steps"),
    [
        (64, 2 * 2 * 128 * 48 * 3 + 2 * 2 * 16 * 32 * 12, 2 * 128 * 48 * 192 + 4 * 2 * 128 * 16 * 32, 7, 66),
        (128, 2 * 2 * 128 * 48 * 3, 2 * 128 * 48 * 256, 3, 129),
    ],
)
def test_chunks_have_states_and_one_chunk_has_none(
    length: int, bytes_: int, operations: int, launches: int, steps: int
) -> None:
    want = bytes_ / RATE + operations / 4e8 + launches * LAUNCH + steps * STEP
    assert chunk_matrix_states._time(found(STATE), length) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("length", [64, 128])
def test_corrections_are_systems_of_equations_and_pass_through_the_chunks(short: bool, length: int) -> None:
    text = DELTA.replace("f32[H, T, ", "bf16[H, T, ") if short else DELTA
    state = found(text.replace("T = 50", "T = 128").replace("H = 2", "H = 200"))
    size, passes, each = (2, 1, 4e8) if short else (4, 3, 4e7)
    bytes_ = 200 * 128 * (24 * length + size * (5 * 4 + 3 * 3))
    operations = 200 * 128 * length * (2 * 4 + 2 * 3 + 6 * length) * passes
    passing = 2 * 2 * (1.0 if short else 4.0) if length < 128 else 0.0  # two waves of blocks, two chunks
    want = bytes_ / RATE + operations / each + 4 * LAUNCH + passing
    assert chunk_matrix_states._corrections(state, length) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize(("length", "cuts"), [(16, 0), (32, 1), (64, 2), (128, 3)])
def test_pairs_of_steps_are_cut_once_for_each_power_of_two_of_blocks(length: int, cuts: int) -> None:
    state = found(STATE.replace("sigmoid(g[h, t])", "exp(-exp(g[h, t] + k[h, t, d]))"))
    assert state.by_row and not state.by_column
    work = 4 * (length + 64) / RATE + 16 * 16 / 2.1e6 + 12 * (1 + cuts) * 16 / RATE
    assert chunk_matrix_states._pairs(state, length) == pytest.approx(2 * 128 * work, rel=1e-12)


def test_a_certificate_has_two_steps() -> None:
    spec = load_text(STATE)
    _, certificates = ChunkMatrixStates(spec, length=16).derive(JoinRecurrences().apply(lower(spec)))
    (one,) = certificates
    for side in (one.before, one.after):
        assert {ld.index[1] for ld in loads(side) if ld.buffer == "k"} == {integer(1), integer(2)}


@pytest.mark.parametrize(("bound", "length"), [(" <= 32768", 256), (" <= 65536", 512), ("", 512)])
def test_chunks_of_a_number_of_steps_that_is_known_at_launch(bound: str, length: int) -> None:
    spec = load_text(f"""
dim B = 3, T = runtime{bound}
input x: f32[B, T], g: f32[B, T]
output h: f32[B, T]
recur h[b, t] = sigmoid(g[b, t]) * h[b, t - 1] + x[b, t] if t > 0 else x[b, 0]
""")
    program = lower(spec)
    form = form_of(program.kernels[0])
    states = None if form is None else linear_states(form, extremes=True)
    assert form is not None and states is not None
    assert times(program, form, states).length == length


@pytest.mark.parametrize(
    ("shape", "lanes", "tiles"),
    [
        ((1, 1, 6, 300), None, {"d": 128}),
        ((1, 1, 300, 6), None, {"d": 8}),
        ((40, 70, 6, 5), None, {"b": 128, "d": 8}),
        ((70, 1, 6, 5), None, {"a": 128, "d": 8}),
        ((40, 70, 6, 5), "a", {"a": 64}),
    ],
)
def test_tiles_of_a_nest(shape: tuple[int, ...], lanes: str | None, tiles: dict[str, int]) -> None:
    a, b, c, d = shape
    program = lower(
        load_text(f"""
dim A = {a}, B = {b}, C = {c}, D = {d}
input X: f32[A, B, C, D]
output Y: f32[A, B]
Y[a, b] = sum[c, d](X[a, b, c, d])
""")
    )
    plan = _plan(find_defs(program)["Y"], (), "t", lanes, LANES)
    assert {x.name: x.tile for x in plan.axes if x.tile > 1} == tiles


@pytest.mark.parametrize(
    ("a", "b", "c", "lanes"),
    [(40, 70, 31, "b"), (70, 40, 31, "a"), (40, 70, 32, None), (40, 70, 33, None), (1, 1, 5, None)],
)
def test_the_longest_independent_axis_has_the_lanes_beside_few_elements(
    a: int, b: int, c: int, lanes: str | None
) -> None:
    text = f"input X: f32[{a}, {b}, {c}]\noutput Y: f32[{a}, {b}, {c}]\nY[a, b, c] = exp(X[a, b, c])\n"
    d = find_defs(lower(load_text(text)))["Y"]
    loops = [Loop(x.name, integer(0), integer(at_most(x.extent)), Kind.PAR, ()) for x in d.par[:2]]
    assert _shared_lanes([d], loops, {"a", "b"}) == lanes
