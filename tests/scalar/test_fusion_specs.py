"""The shipped specs at odd sizes: one kernel each, and every stage of fusion agrees with the unfused program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core.buffers import Space
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.narrow import Narrow
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.verify import verify
from tests.scalar.test_fusion import stages
from tests.shipped import SPECS

SMALL = {"B": 1, "P": 2, "D": 16, "M": 77, "S": 77}


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
                rtol = 2.0**-(b.dtype.mantissa) if b.dtype.is_float and b.dtype.bits <= 16 else 1e-6
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
    "convolution in two dimensions": """
        dim B=2,H=9,W=11,C=5,F=20
        input X: f16[B,H,W,C]
        input K: f16[3,3,C,F]
        output Y: f16[B,H,W,F]
        Y[b,y,x,f] = sum[u: 3, v: 3, c](
        (X[b, y+u-1, x+v-1, c] if y+u-1>=0 and y+u-1<H and x+v-1>=0 and x+v-1<W else 0)
        * K[u,v,c,f])
    """,
    "batch norm": """
        dim B=4,C=7,H=33
        input X: f16[B,C,H]
        output Y: f16[B,C,H]
        m[c] = mean[b,h](X[b,c,h])
        v[c] = mean[b,h]((X[b,c,h]-m[c])**2)
        Y[b,c,h] = (X[b,c,h]-m[c])*rsqrt(v[c]+1e-5)
    """,
    "softmax over the first axis": """
        dim M=77,N=20
        input X: f16[M,N]
        output Y: f16[M,N]
        Y[i,j] = softmax[i](X[i,j])
    """,
    "pooling": """
        dim N=10,C=6
        input X: f16[2*N,C]
        output Y: f16[N,C]
        Y[i,c] = max[k: 2](X[2*i+k,c])
    """,
    "attention with a bias": """
        dim H=2,M=33,N=77,D=16
        input Q: f16[H,M,D]
        input K: f16[H,N,D]
        input V: f16[H,N,D]
        input B: f16[H,M,N]
        output O: f16[H,M,D]
        S[h,i,j] = sum[d](Q[h,i,d]*K[h,j,d])*0.25 + B[h,i,j]
        P[h,i,j] = softmax[j](S[h,i,j])
        O[h,i,d] = sum[j](P[h,i,j]*V[h,j,d])
    """,
    "layer norm into a product": """
        dim M=33,N=40,K=77
        input X: f16[M,K]
        input W: f16[K,N]
        output Y: f16[M,N]
        mu[i] = mean[k](X[i,k])
        s[i] = mean[k]((X[i,k]-mu[i])**2)
        Z[i,k] = (X[i,k]-mu[i])*rsqrt(s[i]+1e-5)
        Y[i,n] = sum[k](Z[i,k]*W[k,n])
    """,
    "product into softmax": """
        dim M=33,N=40,K=77
        input X: f16[M,K]
        input W: f16[K,N]
        output Y: f16[M,N]
        Z[i,n] = sum[k](X[i,k]*W[k,n])
        Y[i,n] = softmax[n](Z[i,n])
    """,
    "two layers": """
        dim M=33,N=40,K=77,L=20
        input X: f16[M,K]
        input W: f16[K,N]
        input U: f16[N,L]
        output Y: f16[M,L]
        Z[i,n] = max(sum[k](X[i,k]*W[k,n]),0)
        Y[i,l] = sum[n](Z[i,n]*U[n,l])
    """,
    "logic and products": """
        dim M=20,N=33
        input X: f16[M,N]
        output A: bool[M]
        output P: f32[M]
        output G: i32[M]
        A[i] = any[j](X[i,j] > 2)
        P[i] = prod[j](1 + X[i,j]*0.01)
        G[i] = argmin[j](X[i,j])
    """,
    "causal product without softmax": """
        dim N=77,D=16
        input Q: f16[N,D]
        input K: f16[N,D]
        input V: f16[N,D]
        output O: f16[N,D]
        S[i,j] = sum[d](Q[i,d]*K[j,d])
        O[i,d] = sum[j | j <= i](S[i,j]*V[j,d]*exp(-0.1*(i-j)))
    """,
    "largest probability": """
        dim M=33,N=77,D=16
        input Q: f16[M,D]
        input K: f16[N,D]
        input V: f16[N,D]
        output O: f16[M,D]
        output W: f32[M]
        S[i,j] = sum[d](Q[i,d]*K[j,d])
        P[i,j] = softmax[j](S[i,j])
        O[i,d] = sum[j](P[i,j]*V[j,d])
        W[i] = max[j](P[i,j])
    """,
}


@pytest.mark.parametrize("name", UNSEEN)
def test_an_unseen_spec_agrees(name: str) -> None:
    text = "\n".join(line.strip() for line in UNSEEN[name].splitlines())
    agree(prepared(lower(load_text(text))))
