"""Random programs: plan, run every pass, compare with the unfused program at each stage.

The seed is the test's parameter; NAUTILUS_FUZZ=N tries N of them.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from nautilus.core.expr.nodes import Expr
from nautilus.core.types import DType
from nautilus.planner import kernel as plan_kernel
from nautilus.planner import kernels as plan
from tests.scalar.programs.build import F16, F32, Builder, f, i, op, v
from tests.scalar.programs.small import Case
from tests.scalar.test_fusion import agree

SIZES = {"a": 2, "b": 5, "c": 7, "d": 3, "e": 18}


class _Random:
    """A random program: a chain of definitions, each reading inputs and earlier ones."""

    def __init__(self, seed: int, sizes: dict[str, int] | None = None) -> None:
        self.sizes = sizes or SIZES
        self.r = random.Random(seed)
        self.b = Builder(f"fuzz{seed}")
        self.defs: dict[str, tuple[str, ...]] = {}
        self.inputs: dict[str, Any] = {}

    def case(self) -> Case:
        for k in range(self.r.randint(2, 4)):
            axes = tuple(self.r.sample(sorted(self.sizes), self.r.randint(1, 3)))
            shape = tuple(self.sizes[a] for a in axes)
            self.b.input(f"X{k}", *shape, dtype=self.r.choice((F16, F32)))
            self.defs[f"X{k}"] = axes
            self.inputs[f"X{k}"] = np.random.default_rng(k).normal(size=shape) * self.r.choice((1, 4))
        count = self.r.randint(1, 5)
        for k in range(count):
            self._define(f"T{k}", last=k == count - 1)
        return self.b.program(), self.inputs

    def _define(self, name: str, *, last: bool) -> None:
        axes = self.r.sample(sorted(self.sizes), self.r.randint(1, 3))
        if self.r.random() < 0.7:
            red = tuple(axes[: self.r.randint(1, len(axes))])
            par = tuple(a for a in axes if a not in red)
            self._reduce(name, par, red, out=last)
        else:
            par = tuple(axes)
            value = self._value(par, 2)
            kind = self.r.choice((F16, F32)) if last or self.r.random() < 0.2 else None
            self.b.define(name, {a: self.sizes[a] for a in par}, value, out=kind)
        self.defs[name] = par

    def _reduce(self, name: str, par: tuple[str, ...], red: tuple[str, ...], *, out: bool) -> None:
        combiner = self.r.choice(("sum", "sum", "max", "min"))
        guard = self._guard((*par, *red)) if self.r.random() < 0.4 else None
        value = self._value((*par, *red), 2)
        extents = {a: self.sizes[a] for a in par}, {a: self.sizes[a] for a in red}
        if combiner == "max" and self.r.random() < 0.7 and not out:
            # The shape that online reductions come from: a maximum, then sums of exp(x - max).
            self.b.reduce(f"{name}m", *extents, "max", value, guard)
            self.defs[f"{name}m"] = par
            value = op("exp", op("sub", value, self.b.at(f"{name}m", *par)))
            combiner = "sum"
            if self.r.random() < 0.5:
                value = op("mul", value, self._value((*par, *red), 1))
        if guard is not None and combiner != "sum":
            self.b.reduce(f"{name}g", *extents, combiner, value, guard)
            low = op("max", op("min", self.b.at(f"{name}g", *par), f(9)), f(-9))
            self.b.define(name, extents[0], low, out=F32 if out else None)
            return
        self.b.reduce(name, *extents, combiner, value, guard, out=out)

    def _guard(self, axes: tuple[str, ...]) -> Expr:
        x, y = self.r.choice(axes), self.r.choice(axes)
        e = op(self.r.choice(("le", "lt", "ge")), v(x), op("add", v(y), i(self.r.randint(-3, 3))))
        if self.r.random() < 0.3:
            e = op("and", e, op("lt", op("sub", v(y), v(x)), i(self.r.randint(1, 4))))
        if self.r.random() < 0.15:
            e = op("eq", op("mod", v(x), i(2)), i(0))
        return e

    def _value(self, axes: tuple[str, ...], depth: int) -> Expr:
        if depth == 0:
            return self._leaf(axes)
        a = self._value(axes, depth - 1)
        b = self._leaf(axes)
        match self.r.randint(0, 6):
            case 0:
                return op("add", a, b)
            case 1 | 2:
                return op("mul", a, b)
            case 3:
                return op("tanh", a)
            case 4:
                return op("max", a, b)
            case 5:
                return op("sub", a, b)
        return op("select", self._guard(axes), a, b)

    def _leaf(self, axes: tuple[str, ...]) -> Expr:
        usable = [n for n, need in self.defs.items() if set(need) <= set(axes)]
        if not usable or self.r.random() < 0.1:
            return self.r.choice((f(0.5), op("mul", op_cast(self.r.choice(axes)), f(0.25))))
        name = self.r.choice(usable)
        index: list[str | Expr] = list(self.defs[name])
        if self.r.random() < 0.1:
            k = self.r.randrange(len(index)) if index else 0
            if index:
                at = op("sub", i(self.sizes[self.defs[name][k]] - 1), v(self.defs[name][k]))
                index[k] = at
        return self.b.at(name, *index)


def op_cast(axis: str) -> Expr:
    from nautilus.core.expr.nodes import Op

    return Op("cast", (v(axis),), DType.F32)


SEEDS = range(int(os.environ.get("NAUTILUS_FUZZ", "60")))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_survive_fusion(seed: int) -> None:
    agree(_Random(seed).case())


@pytest.mark.parametrize(("row", "tile"), [(4, 4), (0, 64)], ids=["tiny", "looped"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_agree_with_loops(seed: int, row: int, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiles are so small that nearly every reduction has a loop, for any number of blocks."""
    monkeypatch.setattr(plan_kernel, "MAX_ROW", row)
    monkeypatch.setattr(plan_kernel, "MAX_TILE", tile)
    monkeypatch.setattr(plan_kernel, "BLOCK", 4)
    monkeypatch.setattr(plan, "_starves", lambda *_: False)
    agree(_Random(seed).case())
