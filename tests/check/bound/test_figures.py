"""The stated bounds of small specs are those in ``figures.json``, so that a change of the model shows what it moves.

``pytest --update-golden`` records them again, for a change that means to move them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.check.bound.bound import Bound
from nautilus.check.bound.stated import stated
from nautilus.frontend.semantics.check import load_text
from tests.check.bound.programs import SPECS as PROGRAMS
from tests.endtoend.collection import attention, networks, numbers, tensors

FIGURES = Path(__file__).parent / "figures.json"
#: those that take as long as all others
_SLOW = {
    "adam step", "all pairs in one number", "batch norm", "casts between everything", "float functions", "gated mlp",
    "group norm", "linear recurrence with gates", "mean squared error and its gradient", "mixed products",
    "mlp with a norm in front and a residual", "moments and a standardised output", "outputs that read each other",
    "rank 0", "reductions with conditions", "sparse blocks times a matrix, scaled",
    "typed intermediates after reductions",
}  # fmt: skip
SPECS = {
    name: text
    for specs in (numbers.SPECS, tensors.SPECS, networks.SPECS, attention.SPECS, PROGRAMS)
    for name, text in specs.items()
    if name not in _SLOW
}


def described(b: Bound) -> dict[str, object]:
    """The parts of a bound that are not the defaults."""
    return {n: v for n, v in asdict(b).items() if n == "relative" or v != getattr(Bound(0.0), n)}


@pytest.mark.parametrize("name", SPECS)
def test_the_figure_is_as_recorded(name: str, update_golden: bool) -> None:
    found = {n: described(b) for n, b in stated(load_text(dedent(SPECS[name]).lstrip())).items()}
    recorded = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if update_golden:
        recorded[name] = json.loads(json.dumps(found), parse_float=lambda x: float(f"{float(x):.4g}"))
        FIGURES.write_text(json.dumps({n: recorded[n] for n in SPECS if n in recorded}, indent=1) + "\n")
    for output, parts in json.loads(json.dumps(found)).items():
        # sums of numpy differ in their order between processors
        assert parts == pytest.approx(recorded[name][output], rel=0.01)


def test_no_other_spec_is_recorded() -> None:
    assert json.loads(FIGURES.read_text()).keys() == SPECS.keys()
