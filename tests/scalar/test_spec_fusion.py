"""The shipped specs at odd sizes: one kernel each, and every stage of fusion agrees with the unfused program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.frontend.check import load_spec, load_text
from nautilus.scalar.interp import run_program
from nautilus.scalar.lower import lower
from nautilus.scalar.ops import Program, Space
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.narrow import Narrow
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.plan import default_schedule
from nautilus.scalar.verify import verify

from .test_fusion import stages

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*/*.naut"))
SMALL = {"B": 1, "D": 16, "M": 77, "S": 77}


def sizes(path: Path) -> dict[str, int]:
    """Small, odd sizes for the dims of a spec."""
    found: dict[str, int] = {}
    for line in re.findall(r"^dim ([^#\n]*)", path.read_text(), re.MULTILINE):
        for name, value in re.findall(r"(\w+) *= *(\d+)", line):
            heads = max(1, int(value) // 16)
            found[name] = 1 if value == "1" else heads if name.startswith("H") else SMALL.get(name, 130)
    return found


def prepared(program: Program) -> Program:
    for make in (Simplify, Inline, Factor, Narrow, Simplify, Dead):
        program = make().apply(program)
    return program


def inputs(program: Program) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    out: dict[str, Any] = {}
    for b in program.buffers:
        if b.space is Space.INPUT:
            shape = tuple(n for n in b.shape if isinstance(n, int))
            out[b.name] = rng.normal(size=shape) if b.dtype.is_float else rng.integers(0, 5, shape)
    return out


def agree(program: Program) -> Program:
    given = inputs(program)
    want = run_program(program, given)
    for stage in stages(program, default_schedule(program)):
        verify(stage)
        got = run_program(stage, given)
        for b in program.buffers:
            if b.space is Space.OUTPUT:
                # Both sides round their outputs once: an f16 output may differ in its last place.
                rtol = 2.0 ** -(b.dtype.mantissa) if b.dtype.is_float and b.dtype.bits <= 16 else 1e-6
                np.testing.assert_allclose(got[b.name], want[b.name], rtol=rtol, atol=1e-6)
    return stage


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_a_shipped_spec_is_one_kernel(path: Path) -> None:
    last = agree(prepared(lower(load_spec(path, dims=sizes(path)))))
    assert len(last.kernels) == 1
    assert not any(b.space is Space.TEMP for b in last.buffers)


UNSEEN = {
    "two softmaxes in a chain": """
        dim M = 20, N = 77
        input X: f16[M, N]
        output Y: f16[M, N]
        A[i, j] = softmax[j](X[i, j])
        Y[i, j] = softmax[j](A[i, j] * 3.0)
    """,
    "attention with a gate and two outputs": """
        dim M = 33, N = 130, D = 16
        input Q: f16[M, D]
        input K: f16[N, D]
        input V: f16[N, D]
        input G: f16[M, D]
        output O: f16[M, D]
        output L: f32[M]
        S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
        P[i, j] = softmax[j | j <= i + 97](S[i, j])
        O[i, d] = sum[j](P[i, j] * V[j, d]) * sigmoid(G[i, d])
        L[i] = log(sum[j | j <= i + 97](exp(S[i, j])))
    """,
    "normalised queries": """
        dim M = 33, N = 40, D = 16
        input Q: f16[M, D]
        input K: f16[N, D]
        output O: f16[M, N]
        R[i, d] = Q[i, d] * rsqrt(mean[d](Q[i, d] ** 2) + 1e-5)
        O[i, j] = sum[d](R[i, d] * K[j, d])
    """,
    "paged": """
        dim N = 64, P = 8, D = 16
        input page: i32[N // P]
        input K: f16[16, P, D]
        input q: f16[D]
        output O: f16[D]
        s[j: N] = sum[d](q[d] * K[page[j // P], j % P, d])
        p[j] = softmax[j](s[j])
        O[d] = sum[j](p[j] * K[page[j // P], j % P, d])
    """,
    "distances": """
        dim M = 20, N = 33, D = 5
        input X: f32[M, D]
        input Y: f32[N, D]
        output O: f32[M]
        output A: i32[M]
        E[i, j] = sum[d]((X[i, d] - Y[j, d]) ** 2)
        O[i] = min[j](E[i, j])
        A[i] = argmin[j](E[i, j])
    """,
    "relu squared attention": """
        dim M = 20, N = 70, D = 16
        input Q: f16[M, D]
        input K: f16[N, D]
        input V: f16[N, D]
        output O: f16[M, D]
        S[i, j] = max(sum[d](Q[i, d] * K[j, d]), 0) ** 2
        O[i, d] = sum[j](S[i, j] * V[j, d]) / (sum[j](S[i, j]) + 1)
    """,
    "one number": """
        dim N = 77
        input X: f32[N]
        input Y: f32[N]
        output O: f32[]
        O[] = sum[i](X[i] * Y[i])
    """,
}


@pytest.mark.parametrize("name", UNSEEN)
def test_an_unseen_spec_agrees(name: str) -> None:
    text = "\n".join(line.strip() for line in UNSEEN[name].splitlines())
    agree(prepared(lower(load_text(text))))
