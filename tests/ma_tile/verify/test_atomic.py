"""The rule of atomic stores rejects what could depend on the order, or combine an element twice."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from nautilus.core.errors import VerifyError
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import GlobalStore, MemModule
from nautilus.ma_tile.text import format, parse
from nautilus.ma_tile.verify.module import verify

TEXT = "dim T = 3000, E = 37\ninput K: i32[T]\noutput H: i32[E]\nH[e: E] = sum[t | K[t] == e](1)\n"


@lru_cache
def histogram() -> MemModule:
    request = Request(Path("h.naut"), "sm_90a", text=TEXT, schedule=Schedule(scatters=("H",)), until="ma-tile")
    made: MemModule = compile_file(request).modules["ma-tile"]
    return made


def edited(**changes: Any) -> MemModule:
    """The module with other fields of its atomic store."""
    m = histogram()
    k = m.kernels[-1]
    body = tuple(
        replace(op, **changes) if isinstance(op, GlobalStore) and op.combiner is not None else op for op in k.body
    )
    assert body != k.body
    return replace(m, kernels=(*m.kernels[:-1], replace(k, body=body)))


def test_an_atomic_store_is_legal_and_prints_as_it_reads() -> None:
    m = histogram()
    verify(m)
    assert parse(format(m)) == m


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"combiner": "prod"}, "does not depend on the order"),
        ({"vec": 4}, "one register at a time"),
        ({"buffer": "K"}, "inputs are not written"),
    ],
)
def test_faults(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(VerifyError, match=rule):
        verify(edited(**changes))
