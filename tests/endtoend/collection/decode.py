"""Specs of few new queries against many keys, and schedules with more or fewer split-K warps than the rules choose."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import patch

from nautilus.check.levels import Trace
from nautilus.core.schedule import KernelPlan, Schedule, WarpPlan
from nautilus.driver import Request, compile_file
from nautilus.passes.selection import split_choice
from nautilus.planner import streaming
from nautilus.planner.streaming import Cut
from tests.endtoend.support import Compilation

#: what happens to the scores; the inputs that it needs
SCORES = {
    "plain": ("S[b, h, i, j]", ""),
    "softcap": ("softcap(S[b, h, i, j], 20.0)", ""),
    "alibi": ("S[b, h, i, j] + slope[h] * (j - i - N + M)", "input slope: f32[H]"),
}
CAUSAL = " | j - i <= N - M"


@dataclass(frozen=True)
class Decode:
    """A decoding spec: ``group`` heads share keys; ``mask`` is the text of the domain of the softmax."""

    n: int
    d: int = 64
    batch: int = 1
    heads: int = 2
    group: int = 1
    rows: int = 1
    dtype: str = "f16"
    score: str = "plain"
    mask: str = CAUSAL

    @property
    def text(self) -> str:
        score, inputs = SCORES[self.score]
        return dedent(f"""
            dim B = {self.batch}, H = {self.heads}, G = {self.heads // self.group}
            dim M = {self.rows}, N = {self.n}, D = {self.d}
            input Q: {self.dtype}[B, H, M, D]
            input K: {self.dtype}[B, G, N, D]
            input V: {self.dtype}[B, G, N, D]
            {inputs}
            output O: {self.dtype}[B, H, M, D]
            S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h // {self.group}, j, d]) / sqrt(D)
            P[b, h, i, j] = softmax[j{self.mask}]({score})
            O[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, h // {self.group}, j, d])""").lstrip()

    def __str__(self) -> str:
        heads = f"{self.batch}x{self.heads}:{self.group}"
        return f"{heads} {self.rows}x{self.n}x{self.d} {self.dtype} {self.score}{self.mask}"


def drawn(seed: int) -> Decode:
    """Random sizes and options, small enough for the interpreter of the MA-tile IR."""
    r = random.Random(seed)
    group = r.randint(1, 8)
    d = r.choice((64, 64, 96, 128, 256))
    return Decode(
        n=r.randint(40, 300) if d < 128 else r.randint(40, 150),
        d=d,
        batch=r.randint(1, 2),
        heads=group * r.randint(1, 2),
        group=group,
        rows=1 if group > 1 or r.random() < 0.7 else r.randint(2, 5),
        dtype=r.choice(("f16", "bf16")),
        score=r.choice(tuple(SCORES)),
        mask=r.choice((CAUSAL, CAUSAL, "", " | j < N - 7", " | -50 < j - i - N + M <= 0")),
    )


@contextmanager
def forced(groups: int, warps: int, step: int) -> Iterator[None]:
    """In the block, the rules split each of their reduction loops in this way, whatever its length is."""

    def cut(plan: object, unified: object, loop: str, *rest: object) -> Cut | None:
        found = streaming.few_rows(plan, unified)  # type: ignore[arg-type]
        return Cut(groups, warps, step) if found else None

    alone = patch.object(split_choice, "choose", lambda *_: None)  # no other plan after a refusal
    with patch.object(streaming, "cut", cut), patch.object(streaming, "SHORTEST", 1), alone:
        yield


def combines(plan: KernelPlan) -> bool:
    """Whether the kernel's warps combine their partial results in a block."""
    return isinstance(plan.mapping, WarpPlan) and plan.mapping.combine_in_block


def schedule(text: str, groups: int, warps: int, step: int, arch: str = "sm_90a", **mapping: Any) -> Schedule:
    """The schedule of the rules for so many groups of split-K warps; ``mapping``: options for their kernel.

    ``cluster``: groups in a cluster, in place of the choice of the rules (1: a second kernel combines them).
    """
    cluster = mapping.pop("cluster", None)
    with forced(groups, warps, step):
        found = compile_file(Request(Path("given.naut"), arch, text=text, until="scalar")).context.schedule
    assert found is not None and found.splits, "nothing was cut"
    kernels = [replace(k, mapping=replace(k.mapping, **mapping)) if combines(k) else k for k in found.kernels]
    if cluster is not None:
        kernels = [
            replace(k, mapping=replace(k.mapping, cluster=cluster)) if k.mapping.cluster > 1 else k for k in kernels
        ]
    return replace(found, kernels=tuple(kernels))


def compilation(text: str, schedule: Schedule | None = None, arch: str = "sm_90a") -> Compilation:
    """``text`` with the modules of every level."""
    trace = Trace()
    request = Request(Path("given.naut"), arch, text=text, schedule=schedule, verified_stages=True)
    return Compilation(compile_file(request, [trace]), tuple(trace.levels))
