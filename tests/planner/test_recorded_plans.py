"""The plans of the shipped specs and of forms at many sizes, and the Scalar IR that they are made for, are recorded.

A change of a rule or of a cost shows in ``recorded_plans.json`` which plans it moves.  ``pytest --update-golden``
records them again, for a change that means to move them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nautilus.core.schedule import KernelPlan
from nautilus.driver import Request, compile_file
from nautilus.scalar.text import format_program
from tests.planner.plans import SWEEP
from tests.shipped import MORE, ROOT, SPECS

RECORDED = Path(__file__).parent / "recorded_plans.json"
#: those that take as long as all others
_SLOW = {
    "mixed_batch", "paged_heads_decode", "streaming_decode", "paged_decode", "rotary", "qk_norm_f8", "qk_norm",
    "f4_weights", "u4_weights", "backward", "layer_norm_backward", "linear_few_rows", "paged_sinks_decode", "latent",
    "soft", "attention_projection", "paged_softcap_decode", "tucker", "decode_lengths", "paged_latent_decode", "f8",
    "global_f8", "causal_f8", "retrieval", "talking_heads", "lora", "mttkrp", "linear_pool_gelu_max", "gated_mlp",
}  # fmt: skip
CASES = {
    f"{path.relative_to(ROOT / 'specs').with_suffix('')} {arch}": Request(path, arch)
    for arch, paths in (("sm_90a", [*SPECS, *MORE[::4]]), ("sm_80", SPECS))
    for path in paths
    if path.stem not in _SLOW
} | {name: Request(Path("given.naut"), "sm_90a", text=text) for name, text in SWEEP.items()}


def described(plan: KernelPlan) -> str:
    """The fields that are not the defaults, in one line."""
    axes = " ".join(f"{a.name}:{a.role}:{a.tile}" for a in plan.axes)
    left = ("name", "ops", "axes")
    return " ".join([f"[{' '.join(plan.ops)}]", axes, *_parts(plan, left), *_parts(plan.mapping, ("mapping",))])


def _parts(record: Any, left_out: tuple[str, ...]) -> Iterator[str]:
    for f in fields(record):
        value = getattr(record, f.name)
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if f.name not in left_out and value != default and not is_dataclass(value):
            yield f"{f.name}={value}".replace(" ", "")


@cache
def _recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {}


@pytest.mark.parametrize("case", CASES)
def test_the_plans_are_as_recorded(case: str, update_golden: bool) -> None:
    result = compile_file(replace(CASES[case], until="scalar", verified=False))
    schedule = result.context.schedule
    assert schedule is not None
    text = format_program(result.modules["scalar"])
    found = {k.name: described(k) for k in schedule.kernels}
    found["IR"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    if update_golden:
        recorded = _recorded()
        recorded[case] = found
        RECORDED.write_text(json.dumps({c: recorded[c] for c in CASES if c in recorded}, indent=1) + "\n")
    assert found == _recorded()[case]


def test_no_other_spec_is_recorded() -> None:
    assert _recorded().keys() == CASES.keys()
