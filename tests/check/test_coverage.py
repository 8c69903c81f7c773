"""Passes of the declared sizes that small sizes do not reach are checked at larger ones, or named."""

from __future__ import annotations

from pathlib import Path

from nautilus.check.coverage import enlarged, missing, with_all
from nautilus.check.inputs import validation_inputs
from nautilus.check.levels import Trace
from nautilus.check.run import check_spec
from nautilus.check.sizes import spec_at, variants
from nautilus.check.validate.refinement import Validator
from nautilus.driver import Request, compile_file
from nautilus.scalar.text import format_program, parse_program

_DECODE = """dim B = 2, N = 4096, D = 64
input Q: f16[B, D]
input K: f16[B, N, D]
input V: f16[B, N, D]
output O: f16[B, D]
P[b, j] = softmax[j](sum[d](Q[b, d] * K[b, j, d]))
O[b, d] = sum[j](P[b, j] * V[b, j, d])
"""


def _request(text: str, **dims: int) -> Request:
    return Request(Path("given.naut"), "sm_80", text=text, dims=dims, keep_runtime=True, until="vr-tile")


def _levels(text: str, **dims: int) -> Trace:
    trace = Trace()
    compile_file(_request(text, **dims), [trace])
    return trace


def test_a_larger_size_reaches_a_pass_that_begins_above_the_small_ones() -> None:
    request = _request(_DECODE)
    found = variants(lambda dims: spec_at(request, dims), {})
    declared = _levels(_DECODE).levels
    small = [_levels(_DECODE, **v.dims).levels for v in found]
    lacking = missing(declared, small)
    assert "scalar/add-unit-axes" in lacking
    more = [_levels(_DECODE, **v.dims).levels for v in enlarged(lambda d: spec_at(request, d), {}, found, lacking)]
    assert more and "scalar/add-unit-axes" not in missing(declared, [*small, *more])


def test_a_pass_of_large_sizes_alone_is_named() -> None:
    text = "dim M = 64, N = 65536\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n"
    request = Request(Path("given.naut"), "sm_90a", text=text)
    report = check_spec(request, device="cpu", only=("random",))
    declared = _levels(text).levels
    said = [o.subject for o in report.outcomes if "at none of the checked ones" in o.message]
    assert report.ok and {x.subject for x in declared} >= {s for s in said if s.startswith("scalar/")}


def test_declared_sizes_that_are_small_reach_what_a_number_of_heads_decides() -> None:
    text = "dim M = 16, N = 12, G = 2\ninput X: f16[M, 16 * G], V: f16[N, G], I: u4[N, G]\noutput Y: f32[M, N]\n"
    text += "Y[m, n] = sum[g: G](X[m, 16 * g + I[n, g]] * V[n, g])\n"
    request = _request(text)
    declared = _levels(text).levels
    found = variants(lambda dims: spec_at(request, dims), {})
    lacking = missing(declared, [_levels(text, **v.dims).levels for v in found])
    assert "scalar/expand-gathers" in lacking
    last = [*enlarged(lambda dims: spec_at(request, dims), {}, found, lacking)][-1]
    assert last.dims == {}


_STATES = """dim T = 4096, D = 16, E = 16
input q: bf16[T, D], k: bf16[T, D], v: bf16[T, E], a: f32[T]
output y: bf16[T, E]
recur {
  S[t: T, d: D, e: E] = sigmoid(a[t]) * (S[t - 1, d, e] if t > 0 else 0) + k[t, d] * v[t, e]
  y[t, e] = sum[d: D](q[t, d] * S[t, d, e])
}
"""
_FAULTS = (
    ("t_from <= t", "t_from < t"),
    ("t // 2 * 2 <= t_from", "t // 2 * 2 < t_from"),
    ("0 < t_chunk", "1 < t_chunk"),
    ("S_entry[t_chunk - 1, d, e]", "S_entry[0, d, e]"),
    ("y_acc_carried[t, e] + y_acc_inside[t, e]", "y_acc_carried[t, e] - y_acc_inside[t, e]"),
    ("t_until <= t_step", "t_until < t_step"),
    ("-69.31471805599453", "-0.6931471805599453"),
)


def test_a_pass_that_few_steps_do_not_pay_runs_on_few_steps() -> None:
    """The validator compares the recurrence with its chunks, and refutes those that read the state of another step."""
    subject = "scalar/chunk-matrix-states"
    assert with_all(_request(_STATES), ["scalar/simplify", "vr-tile/cse"]) is None
    request = with_all(_request(_STATES, T=5), ["scalar/simplify", subject])
    assert request is not None and request.unpriced == {"chunk-matrix-states"} and request.precision == "strict"
    trace = Trace()
    compile_file(request, [trace])
    assert subject not in {x.subject for x in _levels(_STATES, T=5).levels}
    at = next(n for n, x in enumerate(trace.levels) if x.subject == subject)
    before, after = (x.module for x in trace.levels[at - 1 : at + 1])
    spec = spec_at(request, {"T": 5})
    validator = Validator(validation_inputs(spec), {})
    assert validator.validate(before, after).status == "tested"
    text = format_program(after)
    for old, new in _FAULTS:
        assert old in text
        broken = parse_program(text.replace(old, new), "given")
        assert validator.validate(before, broken).status == "refuted", old
