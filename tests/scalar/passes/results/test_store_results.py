"""``store-results``: which definitions are results whose stores may be turned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nautilus.core.buffers import Space
from nautilus.core.expr.build import calc, integer
from nautilus.scalar.passes.results import store_results


@pytest.mark.parametrize("field", ["op", "guard", "at", "space", ""])
def test_an_elementwise_output_is_a_result(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_results, "is_worth", lambda *_: True)
    other: dict[str, Any] = {"op": "sum", "guard": calc("lt", integer(0), integer(1)), "at": (integer(0),)}
    fields: dict[str, Any] = dict.fromkeys(other) | ({field: other[field]} if field in other else {})
    space = Space.TEMP if field == "space" else Space.OUTPUT
    r: Any = SimpleNamespace(buffer=SimpleNamespace(space=space), **fields)
    found: Any = None
    assert store_results._is_result(found, r) == (not field)
