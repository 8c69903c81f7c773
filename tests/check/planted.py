"""Faulty passes for the tests of the checker: each does what the real pass does, with one fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Const, Load, Op
from nautilus.core.passes import CertifyingPass
from nautilus.passes.loading import load
from nautilus.passes.pipelines import STAGES
from nautilus.scalar.ir import Store

Rule = Callable[[Any], Any]  # a node's replacement, or None

REAL = {p.name: p.target for stage in STAGES for p in stage.passes}


def mutated(module: Any, rule: Rule) -> Any:
    """``module`` with every node for which ``rule`` gives something replaced."""
    return _walk(module, rule)


def _walk(node: Any, rule: Rule) -> Any:
    found = rule(node)
    if found is not None:
        return found
    if isinstance(node, tuple):
        return tuple(_walk(item, rule) for item in node)
    if is_dataclass(node) and not isinstance(node, type):
        return replace(node, **{f.name: _walk(getattr(node, f.name), rule) for f in fields(node) if f.init})
    return node


def drop_repair(n: Any) -> Any:
    """``x = x * fix`` becomes ``x = x``."""
    match n:
        case Store(buffer=b, value=Op(op="mul", args=(Load(buffer=same) as x, Load()))) if b == same:
            return replace(n, value=x)
    return None


def shift_mask(n: Any) -> Any:
    """``a <= b`` becomes ``a < b``."""
    return replace(n, op="lt") if isinstance(n, Op) and n.op == "le" else None


def invert_repair(n: Any) -> Any:
    """``exp(old - new)`` becomes ``exp(new - old)``.

    (A running maximum or a rescaled sum may have any initial value, because the first repair corrects it.)
    """
    match n:
        case Op(op="sub", args=(Load() as a, Load() as b)):
            return replace(n, args=(b, a))
    return None


def swap_tile(old: str, new: str) -> Rule:
    """Every elementwise operation ``old`` on tiles or fragments becomes ``new``."""

    def rule(n: Any) -> Any:
        return replace(n, op=new) if type(n).__name__ == "MapOp" and n.op == old else None

    return rule


def planted(name: str, rule: Rule) -> type:
    """A class that replaces pass ``name``."""
    real: Any = load(REAL[name])

    class Planted(real):  # type: ignore[misc]
        __slots__ = ()

        def apply(self, module: Any) -> Any:
            return mutated(real.apply(self, module), rule)

    class PlantedCertifying(real):  # type: ignore[misc]
        __slots__ = ()

        def derive(self, module: Any) -> Any:
            made, certificates = real.derive(self, module)
            return mutated(made, rule), certificates

    if issubclass(real, CertifyingPass):
        return PlantedCertifying
    Planted.__name__ = f"Planted_{real.__name__}"
    return Planted


@dataclass(frozen=True)
class Doubled:
    """Certificates whose right side is twice the right value."""

    certificate: Certificate

    def wrong(self) -> Certificate:
        c = self.certificate
        return replace(c, after=Op("mul", (c.after, Const(2.0, c.after.dtype)), c.after.dtype))
