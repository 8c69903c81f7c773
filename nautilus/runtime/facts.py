"""The check of facts about numbers that are given at launch, in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nautilus.core.buffers import Fact
from nautilus.core.errors import InputError
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Param, walk


def check_facts(facts: Iterable[Fact], numbers: Mapping[str, Any]) -> None:
    """Raises InputError for a fact that does not hold; one about a number that is not given is left to its user."""
    for f in facts:
        names = sorted({n.name for n in walk(f.condition) if isinstance(n, Param)})
        if all(n in numbers for n in names) and not bool(evaluate(f.condition, numbers)):
            where = ", ".join(f"{n} is {numbers[n]}" for n in names)
            raise InputError(f"'{f.said}' does not hold: {where}")
