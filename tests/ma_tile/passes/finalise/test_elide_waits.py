"""``elide-waits`` in the tiles of a persistent block: which groups of TMA stores and which barriers are left."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import (
    Barrier,
    MatrixStore,
    MemModule,
    MemOp,
    RolesOp,
    TmaCommit,
    TmaStore,
    TmaWait,
    walk_ops,
)
from nautilus.ma_tile.passes.finalise.elide_waits import ElideWaits, _stores
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs.warpgroup import tiles

GIVEN = {"X": np.arange(64.0 * 64 * 8).reshape(512, 64) % 97}
STORE = """st.matrix so[{n}] swizzle 128, %h
          fence.proxy
          tma.wait 0 read
          barrier 1, 128
          tma.store so[{n}] swizzle 128, Y{n}[first + i, n]
          tma.commit
          """
FIRST, END = (
    "          tma.wait 0 read\n          barrier 1, 128\n          st.matrix",
    "        }\n        tma.wait 0\n",
)


def module(*stores: str, stages: int) -> MemModule:
    """The tiles of ``tests.ma_tile.programs.warpgroup`` with other stores at the end of a tile."""
    text = tiles()
    begin, end = text.index(FIRST), text.index(END)
    text = f"{text[:begin]}          {''.join(stores)}\n{text[end:]}"
    text = text.replace("smem so : f16[i: 64, n: 64] stages 1", f"smem so : f16[i: 64, n: 64] stages {stages}")
    text = text.replace("full stages 2 arrivals 1 @ 24576", "full stages 2 arrivals 1 @ 65536").replace(
        "24592", "65552"
    )
    outputs = "\n".join(f"  output Y{n}: f16[512, 64]" for n in range(len(stores)))
    made = parse(text.replace("  output Y: f16[512, 64]", outputs))
    verify(made)
    return made


def consumer(m: MemModule) -> list[str]:
    """The waits, commits and barriers of the consumer, in their order."""
    (roles,) = (op for op in m.kernels[0].body if isinstance(op, RolesOp))
    text = [type(op).__name__ for op in walk_ops(roles.roles[1].body)]
    return [name for name in text if name in ("TmaWait", "TmaCommit", "TmaStore", "Barrier")]


def agree(a: MemModule, b: MemModule) -> None:
    for seed in range(3):
        found = run_module(b, GIVEN, seed=seed)
        for name, x in run_module(a, GIVEN, seed=seed).items():
            np.testing.assert_array_equal(found[name], x)


def test_stores_from_stages_of_their_own_make_two_groups() -> None:
    before = module(*(STORE.format(n=n) for n in range(4)), stages=4)
    after = ElideWaits().apply(before)
    verify(after)
    kept = ["TmaWait", "Barrier", "TmaStore", "TmaCommit", "Barrier", "TmaStore", "Barrier", "TmaStore"]
    assert consumer(after) == [*kept, "TmaWait", "Barrier", "TmaStore", "TmaCommit", "TmaWait"]
    agree(before, after)
    text = ma_format(after)
    for op in ("            tma.commit\n", "          tma.commit\n", "          tma.wait 0 read\n"):
        if op in text:
            with pytest.raises(InterpError):
                run_module(parse(text.replace(op, "", 1)), GIVEN)


def test_stores_from_two_alternating_stages_keep_their_groups() -> None:
    stores = [STORE.format(n=n).replace(f"so[{n}]", f"so[{n % 2}]") for n in range(4)]
    before = module(*stores, stages=2)
    assert ElideWaits().apply(before) == before


def test_a_barrier_that_another_one_repeats() -> None:
    store = """barrier 1, 128
          st.shared so[0] swizzle 128, %h vec 2
          barrier 1, 128
          %h{n} = ld.shared so[{n}] swizzle 128 vec 2 : f16[i: 64, n: 64] #acc
          st.global Y{n}[first + i, n], %h{n} vec 2
          """
    turns = [store.replace("so[0]", f"so[{n}]").format(n=n) for n in range(2)]
    before = module(*turns, stages=2)
    after = ElideWaits().apply(before)
    assert consumer(before).count("Barrier") == 4 and consumer(after).count("Barrier") == 2
    agree(before, after)
    alike = module(*(store.format(n=0).replace("%h0", f"%h{n}").replace("Y0", f"Y{n}") for n in range(2)), stages=1)
    assert ElideWaits().apply(alike) == alike  # each read of the stage stands before the next write
    assert not any(isinstance(op, Barrier) and op.threads is None for op in walk_ops(alike.kernels[0].body))


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("w s c w", "s c w"),  # nothing is stored before
        ("s c w w b m s c w", "s c w b m s c w"),
        ("s c w w m s c w", "s c w w m s c w"),  # no barrier tells the other threads
        ("s c w b w", "s c b w"),
        ("s c w m w", "s c w m w"),
        ("s c c w", "s c w"),  # a group that nothing awaits alone
        ("s c w c w", "s c w"),
    ],
)
def test_waits_for_stores_that_change_nothing(body: str, left: str) -> None:
    kinds = {"w": TmaWait, "c": TmaCommit, "b": Barrier, "s": TmaStore, "m": MatrixStore}
    every = list(walk_ops(module(STORE.format(n=0), stages=1).kernels[0].body))
    ops: dict[str, MemOp] = {k: next(op for op in every if type(op) is kind) for k, kind in kinds.items()}
    letters = {id(op): k for k, op in ops.items()}
    assert " ".join(letters[id(op)] for op in _stores(tuple(ops[k] for k in body.split()))) == left
