"""The functions of the language and of the IRs below it: one record each, from which all stages derive their tables.

A new elementwise function is one record in ``elementary.py`` (or ``arithmetic.py``) and one entry in
``check/validate/meanings.py``, the independent copy of the validator, which ``tests/check/test_functions.py`` compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nautilus.core.functions import arithmetic, elementary
from nautilus.core.functions.record import Approximation, Call, Function, Operator, Types, approximated

__all__ = ["BY_SYMBOL", "FUNCTIONS", "NAMED", "Approximation", "Call", "Function", "Operator", "Types", "table"]


def table(records: Iterable[Function]) -> Mapping[str, Function]:
    """Records by name. Raises ValueError where two share a name, or an inverse is unknown."""
    found: dict[str, Function] = {}
    for f in records:
        if f.name in found:
            raise ValueError(f"function {f.name} has two records")
        found[f.name] = f
    for f in found.values():
        if f.inverse and f.inverse not in found:
            raise ValueError(f"function {f.name}: its inverse {f.inverse} has no record")
    return found


_RECORDS = (*arithmetic.RECORDS, *elementary.RECORDS)
FUNCTIONS: Mapping[str, Function] = table(
    (*_RECORDS, *(approximated(f, a) for f in _RECORDS for a in f.approximations if a.function))
)
#: The functions that a spec calls by name.
NAMED: Mapping[str, Function] = {f.name: f for f in FUNCTIONS.values() if f.example}
#: The operators of the language: symbol -> function.
BY_SYMBOL: Mapping[str, Function] = {f.symbol: f for f in FUNCTIONS.values() if f.symbol}
