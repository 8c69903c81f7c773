"""The estimated number of instructions: it grows with registers, and the planner's schedules stay below the limit."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.driver import Request, Result, compile_file
from nautilus.ma_tile.analysis import code_size as analysis
from nautilus.ma_tile.analysis.code_size import MOST, check_code_size, code_size
from nautilus.passes import attempts

ROWS = """
    dim M = 64, N = {n}
    input X: f32[M, N]
    output Y: {out}[M, N]
    Y[i, j] = {value}
"""
#: Two reductions over the features of one pair: as one kernel, its tiles have three axes.
FEATURES = """
    dim H = 2, N = 256, D = 64
    input Q: f16[H, N, D], K: f16[H, N, D], V: f16[H, N, D]
    output O: f16[H, N, D]
    q[h, i, d] = Q[h, i, d] + 1 if Q[h, i, d] > 0 else exp(Q[h, i, d])
    k[h, i, d] = K[h, i, d] + 1 if K[h, i, d] > 0 else exp(K[h, i, d])
    S[h, d, e] = sum[j: N](k[h, j, d] * V[h, j, e])
    z[h, d] = sum[j: N](k[h, j, d])
    O[h, i, e] = sum[d](q[h, i, d] * S[h, d, e]) / sum[d](q[h, i, d] * z[h, d])
"""


def made(text: str, arch: str = "sm_80", fallbacks: Fallbacks = NO_FALLBACKS) -> Result:
    return compile_file(Request(Path("given.naut"), arch, text=dedent(text), until="ma-tile", fallbacks=fallbacks))


def sizes(result: Result) -> dict[str, int]:
    return {k.name: code_size(k) for k in result.modules["ma-tile"].kernels}


def test_more_operations_and_f64_are_more_code() -> None:
    def one(value: str, out: str = "f32") -> int:
        (size,) = sizes(made(ROWS.format(n=4096, value=value, out=out))).values()
        return size

    assert one("exp(sin(X[i, j]))") > one("exp(X[i, j])") > one("X[i, j]")
    assert one("exp(f64(X[i, j]))", out="f64") > 3 * one("exp(X[i, j])")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_plans_stay_below_the_limit(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(FEATURES, arch)
    assert max(sizes(found).values()) <= MOST and found.context.fallbacks.taken
    monkeypatch.setattr(analysis, "MOST", 10**9)
    monkeypatch.setattr(attempts, "kernel_fault", lambda kernel, target: None)
    assert max(sizes(made(FEATURES, arch)).values()) > MOST  # which the rules alone exceed


def test_the_error_names_the_kernel_and_its_excess(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made(ROWS.format(n=512, value="exp(X[i, j])", out="f32")).modules["ma-tile"]
    (kernel,) = module.kernels
    monkeypatch.setattr(analysis, "MOST", code_size(kernel) // 2)
    with pytest.raises(ScheduleError, match="instructions") as error:
        check_code_size(module)
    assert error.value.kernel == kernel.name and 1.9 < error.value.excess < 2.2
    check_code_size(module, {kernel.name})
