"""A sample of the mutants of a few kernels; ``python -m tests.mutants`` tries all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from textwrap import dedent
from zlib import crc32

import pytest

from nautilus.check.inputs import generate
from nautilus.core.expr.build import integer
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import MemModule, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.verify.module import verify
from nautilus.scalar.rewriting import recurrence_teams
from tests.mutants.judge import OPEN, judge
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.programs import Program, compiled, rules_schedule, with_many_tiles
from tests.shipped import SPECS

#: one of so many mutants is tried
SHARE = {
    "causal_prefill sm_90a": 8,
    "causal_prefill_d64 sm_90a": 8,
    "global_prefill sm_90a": 12,
    "f16 sm_90a": 2,
    "causal_prefill_d256 sm_90a tuned": 8,
    "causal_decode sm_90a": 1,
    "alibi_prefill sm_80": 3,
    "f16 sm_80": 1,
}


@cache
def program(name: str) -> Program:
    stem, arch, *tuned = name.split()
    (path,) = (p for p in SPECS if p.stem == stem)
    schedule = rules_schedule(path, arch, bool(tuned))
    assert schedule is not None
    return compiled(path, arch, schedule, name)


def sample(name: str) -> list[Mutant]:
    """The chosen mutants, which depend on their text only."""
    found = {m.key: m for m in mutants(program(name).module)}
    return [m for key, m in found.items() if crc32(" ".join(key).encode()) % SHARE[name] == 0]


@pytest.mark.parametrize("name", SHARE)
def test_every_mutant_is_noticed(name: str) -> None:
    chosen = sample(name)
    survivors = [m for m in chosen if judge(program(name), m, range(2)).by in OPEN]
    assert chosen and not survivors, [(m.kernel, m.kind, m.text) for m in survivors]


#: recurrences whose states go from thread to thread, or between the blocks of a team: elements of the step before, and
#: reductions over them
RECURRENCES = {
    "gates": """
        dim B = 2, T = 5, H = 40
        input Z: f32[B, T, 2, H], U: f16[H, 2, H]
        output h: f16[B, T, H]
        recur {
          G[b, t, g, i] = Z[b, t, g, i] + (sum[j](h[b, t - 1, j] * U[j, g, i]) if t > 0 else 0)
          h[b, t, i] = max(min(G[b, t, 0, i] * G[b, t, 1, i], 2), -2)
        }
        """,
    "best path": """
        dim T = 5, S = 50
        input A: f32[S, S], E: f32[T, S]
        output V: f32[T, S]
        recur V[t, s] = E[t, s] + max[r](V[t - 1, r] + A[r, s]) if t > 0 else E[0, s]
        """,
    "team": """
        dim B = 2, T = 2, H = 64
        input A: f16[B, T, 2, H], U: f16[2, H, H]
        output h: f32[B, T, H]
        recur {
          z[b, t, i] = sigmoid(A[b, t, 0, i] + (sum[j](h[b, t - 1, j] * U[0, j, i]) if t > 0 else 0))
          h[b, t, i] = tanh(A[b, t, 1, i] + (sum[j](z[b, t, j] * h[b, t - 1, j] * U[1, j, i]) if t > 0 else 0))
        }
        """,
}


@pytest.mark.parametrize("name", RECURRENCES)
def test_every_mutant_of_a_recurrence_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = dedent(RECURRENCES[name]).lstrip()
    if name == "team":
        monkeypatch.setattr(recurrence_teams, "STEP", -99.0)  # microseconds
        monkeypatch.setattr(recurrence_teams, "SLICES", (32,))
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile"))
    given = generate(result.modules["spec"])
    whole = Program(name, result.modules["ma-tile"], given.arrays, given.scalars)
    found = list(mutants(whole.module))
    assert "Barrier: deleted" in {m.kind for m in found}
    assert (name == "team") == ("Barrier: team False" in {m.kind for m in found})
    for m in found:
        assert judge(whole, m, range(2)).by not in OPEN, f"{m.kind}: {m.text}"


def test_the_mutants_differ_and_cover_every_kind_of_op() -> None:
    m: MemModule = program("causal_prefill sm_90a").module
    verify(m)
    found = list(mutants(m))
    assert all(x.module != m for x in found)
    assert {"wait", "fence", "arrive", "commit", "init"} <= {x.text.split()[0].split(".")[-1] for x in found}
    assert {"Mbar: arrivals -1", "Role: registers 256", "MbarWait: parity other"} <= {x.kind for x in found}


def test_a_persistent_block_has_more_tiles_than_a_pipeline_has_stages() -> None:
    p = program("causal_prefill sm_90a")
    loops = [(k, op) for k in p.module.kernels for op in walk_ops(k.body) if isinstance(op, TileSchedulerOp)]
    assert loops
    (few,) = [replace(op, count=integer(2)) for _, op in loops[:1]]
    kernel = replace(loops[0][0], body=(few,), blocks=integer(2), cluster=1)
    (changed,) = with_many_tiles(replace(p.module, kernels=(kernel,)), {}).kernels
    assert changed.blocks == integer(1)
    many = replace(kernel, body=(replace(few, count=integer(100)),))
    assert with_many_tiles(replace(p.module, kernels=(many,)), {}).kernels == (many,)
