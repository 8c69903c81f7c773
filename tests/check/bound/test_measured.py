"""The results of compiled programs are within the bound, and the stated figure is not much larger than their errors.

The VR-tile interpreter rounds as the program says on all kinds of inputs, and the MA-tile interpreter, which executes
the roundings of the instructions, on random ones.
"""

from __future__ import annotations

from functools import cache
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from nautilus.check import compare
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import InputSet, generate, kinds
from nautilus.check.levels import Level, Trace, run
from nautilus.check.reference import Compiled, reference
from nautilus.core.numerics import round_to
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from tests.check.bound.programs import SPECS

USEFUL = 10.0  # the stated bound of random inputs, relative to what is measured
#: the stated errors of instructions are those of the CUDA C++ Programming Guide, and the interpreters round to nearest,
#: so outputs of f32 have smaller errors than stated
ROUNDED = 20.0
#: a last-place difference at a typed intermediate is part of the bound, and happens rarely
TYPED = frozenset({"typed intermediate"})
all_specs = pytest.mark.parametrize("name", SPECS)


@cache
def compiled(name: str) -> tuple[Spec, dict[str, Level]]:
    """The Spec, and the last level of each stage."""
    trace = Trace()
    request = Request(Path("given.naut"), "sm_90a", text=SPECS[name], until="ma-tile")
    result = compile_file(request, [trace])
    return result.modules["spec"], {x.stage: x for x in trace.levels}


def sinks(spec: Spec) -> InputSet:
    """Random inputs whose first row, or first element of a row, is ten times as large."""
    given = generate(spec, "random", 5)
    arrays = {n: np.array(x) for n, x in given.arrays.items()}
    types = {t.name: t.dtype for t in spec.inputs}
    for n, x in arrays.items():
        if types[n].is_float and x.ndim > 1:
            x[..., :1, :] *= 10.0
            arrays[n] = round_to(x, types[n])
    return InputSet("random", 5, arrays, given.scalars, given.sizes)


def complaints(name: str, given: InputSet, stage: str) -> list[str]:
    """Outputs of ``stage`` that exceed the bound on ``given``."""
    spec, levels = compiled(name)
    bounds = stated(spec)
    want = reference(Compiled(spec), given, bounds)
    if not want.in_range:
        return []
    got = run(levels[stage], given, "typed")
    found = []
    for t in spec.outputs:
        if t.dtype.is_float:
            truth = np.where(np.isfinite(want.rounded[t.name]), want.values[t.name], want.rounded[t.name])
            wrong = compare.within(got[t.name], truth, want.allowed[t.name])
            if wrong is not None:
                allowed = want.allowed[t.name] / max(compare.norm(truth), 1e-300)
                found.append(f"{given.name}: {t.name}{wrong.text}: {wrong.measured:.2e}, allowed {allowed:.2e}")
        elif not bounds[t.name].ties:
            found += [given.name] if compare.exact(got[t.name], want.rounded[t.name]) else []
    return found


@all_specs
def test_every_kind_of_inputs_is_within_the_bound(name: str) -> None:
    spec, _ = compiled(name)
    sets = [generate(spec, k, 3, scale=2.0**-8) for k in kinds(spec)]
    assert [c for given in (*sets, sinks(spec)) for c in complaints(name, given, "vr-tile")] == []


@all_specs
def test_random_inputs_are_within_the_stated_bound(name: str) -> None:
    spec, levels = compiled(name)
    bounds = stated(spec)
    given = generate(spec, "random", 7)
    want = reference(Compiled(spec), given, bounds)
    got = run(levels["ma-tile"], given, "typed")
    for t in spec.outputs:
        if not t.dtype.is_float:
            continue
        measured, bound = compare.relative(got[t.name], want.values[t.name]), bounds[t.name].relative
        assert measured <= bound, t.name
        if t.dtype.bits < 64 and name not in TYPED:  # the reference is in f64 itself
            assert bound <= (USEFUL if t.dtype.bits <= 16 else ROUNDED) * measured, t.name


def test_a_single_number_is_within_the_bound_for_all_inputs() -> None:
    """Its error varies from input to input, and so does its size."""
    text = "dim N = 300\ninput X: f32[N]\noutput Y: f32\nY = sqrt(sum[i](X[i] * X[i])) / 3\n"
    spec = load_text(text)
    bound = stated(spec)["Y"].relative
    errors = []
    for seed in range(200):
        x = generate(spec, "random", seed).arrays["X"].astype(np.float32)
        lanes = np.zeros(32, np.float32)
        for part in np.split(np.append(x, np.zeros(20, np.float32)), 10):
            lanes += part * part
        total = np.sum(lanes.reshape(8, 4).sum(1))
        want = sqrt(float(np.sum(x.astype(np.float64) ** 2))) / 3
        errors.append(abs(float(np.sqrt(total) / np.float32(3)) - want) / want)
    assert max(errors) <= bound <= USEFUL * max(errors)


@pytest.mark.parametrize("n", [17, 53, 100])
def test_a_single_sum_that_cancels_is_within_what_is_allowed(n: int) -> None:
    """Two orders of a sum in f32: that of numpy, and that of 32 lanes and their tree."""
    spec = load_text(f"dim N = {n}\ninput X: f32[N]\noutput S: f32\nS = sum[j](X[j])\n")
    bounds = stated(spec)
    for seed in range(20):
        given = generate(spec, "random", seed)
        x = given.arrays["X"].astype(np.float32)
        lanes = np.append(x, np.zeros(-n % 32, np.float32)).reshape(-1, 32).sum(0)
        while len(lanes) > 1:
            lanes = lanes[::2] + lanes[1::2]
        allowed = reference(Compiled(spec), given, bounds).allowed["S"]
        for total in (np.sum(x), lanes[0]):
            assert abs(float(total) - float(np.sum(given.arrays["X"]))) <= allowed
