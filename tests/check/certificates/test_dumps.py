"""``check`` of a dump reads its certificate, and refuses one that was edited or belongs to another module."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nautilus.check.certificates import dumped
from nautilus.check.certificates.dumped import Dumped, read
from nautilus.check.inputs import generate, interface
from nautilus.check.levels import Level, Trace
from nautilus.check.report import Report
from nautilus.check.run import check_spec
from nautilus.core.errors import DiagnosticError
from nautilus.driver import Request, compile_file
from nautilus.passes.dumps import CERTIFICATE, dump_header, read_header
from nautilus.passes.instruments import certificate_of, text_of
from nautilus.passes.manager import Context, Record
from nautilus.passes.step_certificate import StepCertificate, applied, changed, undone

SPEC = """dim M = 20, N = 33, D = 16
input  Q: f16[M, D]
input  K: f16[N, D]
input  V: f16[N, D]
output O: f16[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
P[i, j] = softmax[j | j <= i + 13](S[i, j])
O[i, d] = sum[j](P[i, j] * V[j, d])
"""


@cache
def records() -> tuple[Record, ...]:
    trace = Trace()
    compile_file(Request(Path("t.naut"), "sm_80", text=SPEC, until="ma-tile"), [trace])
    return tuple(trace.records)


def parts(step: str) -> tuple[Record, StepCertificate, str, str]:
    """The record of a step, its certificate, and the header and the text of its dump."""
    at = next(n for n, r in enumerate(records()) if f"{r.stage.name}/{r.name}" == step)
    record = records()[at]
    header = dump_header(record.stage, record.name, record.context)
    return record, certificate_of(records()[at - 1], record), header, text_of(record)


def checked(record: Record, header: str, certificate: str, text: str) -> Report:
    dump = f"{header}{CERTIFICATE}{certificate}\n{text}"
    request = Request(Path(f"t{record.stage.suffix}"), "sm_80", text=dump)
    return check_spec(request, device="cpu", only=["random"])


@pytest.mark.parametrize("step", ["scalar/factor", "vr-tile/fold-scale", "ma-tile/pipeline-copies"])
def test_the_step_of_a_dump_is_checked(step: str) -> None:
    record, certificate, header, text = parts(step)
    report = checked(record, header, certificate.to_json(), text)
    assert report.ok, report.text()
    own = [o for o in report.outcomes if o.subject == step]
    assert any(o.check == "certificate" and o.status == "ok" for o in own)
    wanted = "tested" if step.startswith("ma-tile") else "proved"
    assert any(o.check == "validation" and o.verdict.startswith(wanted) for o in own), report.text()
    assert len([o for o in own if o.check == "certificate"]) == 1 + len(certificate.rewrites)


def test_a_dump_without_a_certificate_says_so() -> None:
    record, _, header, text = parts("vr-tile/fold-scale")
    request = Request(Path(f"t{record.stage.suffix}"), "sm_80", text=header + text)
    report = check_spec(request, device="cpu", only=["random"])
    assert report.ok
    assert any(o.check == "certificate" and o.status == "skip" and o.message == "it has none" for o in report.outcomes)


def other_module(data: dict[str, Any]) -> str:
    return json.dumps(data | {"after": data["before"]})


def other_step(data: dict[str, Any]) -> str:
    return sealed(data | {"step": "scalar/narrow"})


def other_rewrite(data: dict[str, Any]) -> str:
    """A sum that is twice as large, in a certificate with a seal of its own."""
    rewrite = dict(data["rewrites"][0])
    rewrite["after"] = f"({rewrite['after']}) * 2.0"
    return sealed(data | {"rewrites": [rewrite, *data["rewrites"][1:]]})


def sealed(data: dict[str, Any]) -> str:
    return StepCertificate.from_json(json.dumps(data)).sealed().to_json()


EDITS = [lambda _: "{}", lambda _: "[1]", lambda _: "{", other_module, other_step, other_rewrite]


@pytest.mark.parametrize("edit", EDITS, ids=["empty", "list", "cut", "module", "step", "rewrite"])
def test_an_edited_certificate_fails(edit: Any) -> None:
    record, certificate, header, text = parts("scalar/factor")
    report = checked(record, header, edit(json.loads(certificate.to_json())), text)
    assert not report.ok
    assert {o.check for o in report.failures} == {"certificate"}


def test_an_edited_module_fails() -> None:
    record, certificate, header, text = parts("vr-tile/fold-scale")
    assert " fma " in text
    report = checked(record, header, certificate.to_json(), text.replace(" max ", " min ", 1))
    assert any(o.check == "certificate" for o in report.failures), report.text()


def test_a_forged_step_is_refuted() -> None:
    """Both the module and the certificate are changed, so that they belong together."""
    record, certificate, header, text = parts("vr-tile/fold-scale")
    before = undone(text, certificate.changes)
    assert before is not None and applied(before, certificate.changes) == text
    wrong = text.replace(" max ", " min ", 1)
    assert wrong != text
    forged = StepCertificate(certificate.step, certificate.before, digest(wrong), changed(before, wrong), ())
    report = checked(record, header, forged.sealed().to_json(), wrong)
    assert any(o.check == "validation" and o.verdict == "refuted" for o in report.failures), report.text()


def digest(text: str) -> str:
    from nautilus.passes.step_certificate import digest as found

    return found(text)


GROUPS = """dim E = 3, M = 20, N = 8, D = 16
input  X: f16[M, D]
input  W: f16[E, D, N]
input  off: i32[E + 1]
output Y: f32[M, N]
Y[t, n] = sum[e: E, d | off[e] <= t < off[e + 1]](X[t, d] * W[e, d, n])
"""


def test_integers_of_a_dump_have_the_ranges_of_its_header() -> None:
    """Ends of groups that are drawn beyond all rows would leave no row to a group, so that a wrong guard is right."""
    trace = Trace()
    compile_file(Request(Path("t.naut"), "sm_80", text=GROUPS, until="scalar"), [trace])
    record = trace.records[-1]
    header = dump_header(record.stage, record.name, record.context)
    context, _ = read_header(header, Context())
    assert context.integers == {"off": (0, 20)}
    assert (
        dump_header(record.stage, record.name, replace(record.context, spec=None, integers=context.integers)) == header
    )
    off = generate(interface(record.module, context.integers)).arrays["off"]
    assert off.min() >= 0 and off.max() <= 20
    report = check_spec(
        Request(Path("t.scalar"), "sm_80", text=header + text_of(record)), device="cpu", only=["random"]
    )
    assert report.ok, report.text()


@pytest.mark.parametrize("line", ['{"off": [3, 1]}', '{"off": 3}', "[1]", "nothing"])
def test_a_damaged_line_of_integers_is_refused(line: str) -> None:
    text = f"; nautilusc dump: scalar after fuse\n; context: {{}}\n; integers: {line}\nprogram t {{\n}}\n"
    with pytest.raises(DiagnosticError):
        compile_file(Request(Path("t.scalar"), "sm_80", text=text))


@pytest.mark.parametrize("step", ["vr-tile/fold-scale", "scalar/factor"])
def test_the_levels_on_both_sides_of_a_step(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is compared with the one before it, by its place in the pipeline."""
    record, certificate, header, text = parts(step)
    made = read(f"{header}{CERTIFICATE}{certificate.to_json()}\n{text}", record)
    assert isinstance(made, Dumped)
    seen: list[list[Level]] = []

    def verdicts(pair: list[Level], *_: object, **__: object) -> list[object]:
        seen.append(pair)
        return []

    monkeypatch.setattr(dumped, "verdicts", verdicts)
    list(made._validated(0))
    ((before, after),) = seen
    names = record.stage.step_names
    at = names.index(step.partition("/")[2])
    assert (after.step, after.number, after.module) == (names[at], at + 1, record.module)
    assert (before.step, before.number) == (names[at - 1], at)
