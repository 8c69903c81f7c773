"""A spec in two parts: together they compute what the whole does."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.bench.peers.attend import match
from nautilus.bench.peers.stages import stages
from nautilus.core.numerics import round_to
from nautilus.frontend.interp import run_spec
from nautilus.frontend.restrict import shape_of
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Spec
from tests.shipped import ROOT, SPECS

SMALL = {"B": 2, "Hq": 4, "Hkv": 2, "M": 6, "N": 6, "D": 8}


@pytest.mark.parametrize("name", ["qk_norm", "qk_norm_f8"])
def test_both_parts_compute_the_whole(name: str) -> None:
    spec = load_spec(ROOT / "specs" / "models" / f"{name}.naut", dims=SMALL)
    parts = stages(spec)
    assert parts is not None
    first, rest = parts
    assert [t.name for t in first.outputs] == ["Qn", "Kn"] and match(rest).q.name == "Qn"
    rng, numbers = np.random.default_rng(0), {"eps": 1e-6}
    inputs = {t.name: rng.standard_normal(shape_of(t)) for t in spec.inputs}
    made = run_spec(first, inputs, numbers)
    operands = {t.name: round_to(made[t.name], t.dtype) for t in first.outputs}
    found = run_spec(rest, inputs | operands, numbers)
    assert np.allclose(found["O"], run_spec(spec, inputs, numbers)["O"], rtol=1e-12)


def test_without_a_stated_type_there_is_one_part() -> None:
    assert all(stages(load_spec(p)) is None for p in SPECS if p.parent.name == "attention")


def text(body: str) -> Spec:
    return load_text("dim N = 8\ninput X: f16[N]\noutput Y: f16[N]\n" + body, "t.naut")


def test_the_second_part_reads_tensors_of_the_cut_only() -> None:
    assert stages(text("T: f16[i] = X[i] * 2\nY[i] = T[i] + 1\n")) is not None
    assert stages(text("S[i] = X[i] * 2\nT: f16[i] = S[i] + 1\nY[i] = T[i] + S[i]\n")) is None
