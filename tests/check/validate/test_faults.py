"""Faults of a module after a pass are refuted, and edits of a certificate are refused."""

from __future__ import annotations

import json
import random
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.check import levels as interpreters
from nautilus.check.certificates.places import misplaced
from nautilus.check.certificates.recheck import step_certificates
from nautilus.check.certificates.rules import check
from nautilus.check.inputs import InputSet, generate
from nautilus.check.levels import Level, Trace
from nautilus.check.validate.refinement import Validator
from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Expr, Op, rewrite
from nautilus.core.numerics import Array
from nautilus.driver import Request, compile_checked
from nautilus.frontend.semantics.check import load_text
from nautilus.passes.instruments import certificate_of, text_of
from nautilus.passes.manager import Record
from nautilus.passes.step_certificate import StepCertificate
from tests.check.validate.faults import faults, inside, leaves
from tests.check.validate.specs import SPECS
from tests.check.validate.test_passes import levels, points

PER_PASS = 3  # faults of one pass and spec
CAUGHT = 0.95
#: specs that together reach every certifying pass and rule
CERTIFIED = ("square", "grouped decoding", "one long row", "gates")
PASSES = {
    "simplify", "inline", "factor", "narrow", "pack", "split-k-update", "fuse", "split", "reorder", "rolling-update",
    "partition", "simplify-masks", "hardware-math", "exp-to-exp2", "div-to-rcp", "fold-scale", "unscale-maxima",
    "sink-masks", "contract", "raise-exponents", "lazy-rescale", "guard-exponents",
}  # fmt: skip
RULES = {"inline", "factor", "narrow", "rolling-update", "distribute", "split-k-update", "lazy-rescale"}
LEAVES = 60  # edits of one certificate of a step
KINDS = ("random", "large-logits", "ascending", "descending")


def differ(results: list[dict[str, Array]], after: Level, sets: list[InputSet]) -> bool:
    """Whether the interpreter gives other results than ``results`` on some inputs; a module that cannot run does."""
    for left, given in zip(results, sets, strict=True):
        try:
            right = interpreters.run(after, given, "real")
        except Exception:
            return True
        if not all(np.allclose(right[n], x, rtol=1e-6, atol=1e-9, equal_nan=True) for n, x in left.items()):
            return True
    return False


def missed(name: str) -> tuple[int, list[str]]:
    """The number of faults in the passes of a spec that change a result, and those that are not refuted."""
    text, rng = SPECS[name], random.Random(name)
    made = levels(text)
    sets = [generate(load_text(text), kind) for kind in KINDS]
    count, found = 0, []
    for before, after in pairwise(made):
        if after.is_lowering:
            continue
        every = list(faults(after.module))
        results = [interpreters.run(before, given, "real") for given in sets]
        validator = Validator(*points(text))
        validator.results(before.module)
        for fault in rng.sample(every, min(PER_PASS, len(every))):
            if not differ(results, replace(after, module=fault.module), sets):
                continue
            count += 1
            again = replace(validator, constants=copy(validator.constants), _kept=dict(validator._kept))
            again.constants.unknowns = list(validator.constants.unknowns)  # those of the module before alone
            again.constants.known = dict(validator.constants.known)
            verdict = again.validate(before.module, fault.module)
            if verdict.status != "refuted":
                found.append(f"{after.subject}: {fault.kind} in {fault.at}: {verdict.text}")
    return count, found


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SPECS if n != "grouped decoding"])  # this spec takes minutes
def test_faults_that_change_a_result_are_refuted(name: str) -> None:
    count, found = missed(name)
    assert count > 10
    assert len(found) <= (1 - CAUGHT) * count, found


@cache
def records(name: str) -> tuple[Record, ...]:
    trace = Trace()
    compile_checked(Request(Path("t.naut"), text=SPECS[name], until="ma-tile"), [trace])
    return tuple(trace.records)


def certified(name: str) -> list[tuple[Record, Record]]:
    """The records before and after every step of a spec that changed its module."""
    return [(a, b) for a, b in pairwise(records(name)) if b.changed and b.spec is not None]


def test_the_specs_reach_every_pass_that_certifies() -> None:
    steps = [b for name in CERTIFIED for _, b in certified(name)]
    assert {b.base for b in steps} >= PASSES
    assert {c.rule for b in steps for c in b.certificates} == RULES


@pytest.mark.parametrize("name", CERTIFIED)
def test_every_pass_that_changes_its_module_has_a_certificate_of_its_own_modules(name: str) -> None:
    made = list(step_certificates(records(name)))
    assert len(made) == len(certified(name))
    assert [problem for _, problem in made if problem] == []


@pytest.mark.parametrize("name", CERTIFIED)
def test_every_edit_of_a_leaf_of_a_certificate_is_refused(name: str) -> None:
    edited, rng = 0, random.Random(name)
    for before, record in certified(name):
        good = certificate_of(before, record)
        assert StepCertificate.from_json(good.to_json()) == good
        sides = text_of(before), text_of(record)
        every = list(leaves(json.loads(good.to_json())))
        for path, data in rng.sample(every, min(LEAVES, len(every))):
            changed = _from_data(data)
            if changed is not None:
                assert changed.problem(*sides), f"{good.step}{path}"
                edited += 1
        for side in range(2):
            for fault in list(faults((before, record)[side].module))[:3] if record.stage.name != "ma-tile" else ():
                texts = list(sides)
                texts[side] = text_of(replace((before, record)[side], module=fault.module))
                assert texts == list(sides) or good.problem(*texts), f"{good.step}: {fault.kind}"
    assert edited > 200


@pytest.mark.parametrize("name", CERTIFIED)
def test_an_edit_that_is_sealed_again_does_not_lead_from_one_module_to_the_other(name: str) -> None:
    for before, record in certified(name):
        good = certificate_of(before, record)
        for n, change in enumerate(good.changes[:5]):
            for wrong in (replace(change, line=change.line + 1), replace(change, added=(*change.added, "x\n"))):
                changes = (*good.changes[:n], wrong, *good.changes[n + 1 :])
                assert replace(good, changes=changes).sealed().problem(text_of(before), text_of(record))


def test_a_rewrite_that_was_edited_is_none_of_its_step() -> None:
    edited, rng = 0, random.Random(0)
    for before, record in (pair for name in CERTIFIED for pair in certified(name)):
        made = certificate_of(before, record) if record.certificates else None
        for c in record.certificates:
            assert made is not None and made.holds(c)
            assert misplaced(c, before.module, record.module) == ""
            every = edits(c)
            for wrong in rng.sample(every, min(LEAVES, len(every))):
                assert not made.holds(wrong)
                edited += 1
    assert edited > 100


def test_a_side_that_was_edited_is_no_identity_or_has_another_form() -> None:
    """Without the seal: edits of the sides are found by the mathematics, those of words are not."""
    caught, tried, rng = 0, 0, random.Random(0)
    rules = {c.rule: (a, b, c) for name in CERTIFIED for a, b in certified(name) for c in b.certificates}
    for before, record, c in rules.values():
        every = edits(c, ("before", "after"))
        for wrong in rng.sample(every, min(12, len(every))):
            tried += 1
            caught += check(wrong).status != "proved" or bool(misplaced(wrong, before.module, record.module))
    assert caught >= 0.9 * tried
    assert tried > 50


CHAINS = {
    "a sum of a sum": """
dim M = 4, N = 5, D = 8
input A: f16[M, D]
input B: f16[N, D]
input V: f32[N]
output O: f32[M]
S[i, j] = sum[d](A[i, d] * B[j, d] * (1 + i)) / 3
O[i] = sum[j](exp(S[i, j]) * V[j] * (2 + i))
""",
    "of a sum that may be empty": """
dim M = 4, N = 5, D = 8
input A: f32[M, D]
input W: f32[M]
input V: f32[N]
output O: f32[M]
S[i] = sum[d | d <= i - 1](A[i, d] / (abs(W[i]) + 1))
O[i] = sum[j](S[(i + j) // 2] * V[j] * (2 + i))
""",
    "a moved reader": """
dim M = 9, D = 8
input A: f32[M, D]
output O: f32[M]
S[i] = sum[d](A[i, d] * (1 + i))
O[i] = sum[w: 3 | 0 <= i + w - 1 < M](S[i + w - 1] * (w + 1) * 0.5)
""",
}


def factored(text: str) -> tuple[Record, Record]:
    """The records before and after ``factor``."""
    trace = Trace()
    compile_checked(Request(Path("given.naut"), "sm_80", text=text.strip() + "\n", until="scalar"), [trace])
    return next((a, b) for a, b in pairwise(trace.records) if b.base == "factor")


@pytest.mark.parametrize("name", CHAINS)
def test_of_rewrites_in_a_row_a_later_one_starts_from_what_the_earlier_ones_made(name: str) -> None:
    before, after = factored(CHAINS[name])
    made, rng = after.certificates, random.Random(name)
    assert len(made) > 1
    caught = tried = 0
    for n, c in enumerate(made):
        rest = made[:n], made[n + 1 :]
        assert misplaced(c, before.module, after.module, *rest) == ""
        every = edits(c, ("before", "after"))
        for wrong in rng.sample(every, min(30, len(every))):
            tried += 1
            caught += check(wrong).status != "proved" or bool(misplaced(wrong, before.module, after.module, *rest))
    assert misplaced(made[-1], before.module, after.module)  # without the earlier ones it starts from nothing
    assert tried > 20 and caught >= 0.9 * tried


def test_both_sides_of_a_later_rewrite_cannot_be_changed_together() -> None:
    before, after = factored(CHAINS["a sum of a sum"])
    *earlier, last = after.certificates

    def other(e: Expr) -> Expr:
        return rewrite(e, lambda n: Op("tanh", n.args, n.dtype) if isinstance(n, Op) and n.op == "exp" else None)

    wrong = replace(last, before=other(last.before), after=other(last.after))
    assert check(wrong).status == "proved" and misplaced(wrong, before.module, after.module, earlier)


FIELDS = ("rule", "subject", "before", "after", "bindings", "conditions", "notes", "proof")


def edits(c: Certificate, names: tuple[str, ...] = FIELDS) -> list[Certificate]:
    """``c`` with one leaf changed, or with one part of a tuple left out."""
    out = []
    for name in names:
        value: Any = getattr(c, name)
        new = [value + "x"] if isinstance(value, str) else [e for _, _, e in inside(value)]
        if isinstance(value, tuple):
            new += [(*value[:n], *value[n + 1 :]) for n in range(len(value))]
        changes: list[dict[str, Any]] = [{name: x} for x in new]
        out += [replace(c, **change) for change in changes]
    return out


def _from_data(data: dict[str, Any]) -> StepCertificate | None:
    """The certificate in JSON data; None where the data has another shape."""
    try:
        return StepCertificate.from_json(json.dumps(data))
    except (TypeError, ValueError, KeyError):
        return None
