"""Tests of passes as files of IR text: the input, the passes to run, and CHECK lines for the result.

The suffix names the level (``.scalar``, ``.vr``, ``.ma``).  A file holds cases, each under a line ``; CASE:``
with its title.  What stands before the first case is a comment.  Directives are comments of the IR:

====================== ==========================================================================================
``; INPUT: file``      the program is that of ``tests/<level>/inputs/file``; without it, the case holds its program
``; SPEC``             the program is a spec, and the input its lowering to the level (``.scalar``)
``; EDIT: old => new`` every ``old`` in the program becomes ``new``; ``\\n`` is a line break; ``old`` must occur
``; FIRST: P {JSON}``  run pass P in front; edits after this line change its result
``; RUN: P {JSON}``    run pass P (its registry name) with options; several lines run in order
``; PRINT: S``         lower the result to stage S (``cuda``); CHECK lines match its text; RUN may be absent
``; SCHEDULE: JSON``   the schedule in its JSON form; several lines are joined
``; PLAN: K JSON``     instead of a schedule: fields of the plan of kernel K; without a name, of all other kernels
``; CONSTANT: M:C x``  the constant C of the module ``nautilus.M`` is the number x
``; ARCH: A``          the target (default sm_90a)
``; CHECK...:``        FileCheck lines, matched against the printed result; they may stand inside the program
``; CERTIFICATE: A: B``
                       the passes leave a certificate that begins with A (``RULE in BUFFER``) and contains B; the
                       certificates of a case are those that it names, or any number where it names none; the
                       checker must not refute any
``; UNCHANGED``        the passes leave the module as it is; without this line they must change it
``; AGAIN``            the passes leave their own result as it is
``; ERROR: text``      the passes, or the verifier after them, raise an error that contains the text
``; COMPLETE: P, ...`` for ``.ma``: run both modules, each after these passes, which make it executable
``; TOLERANCE: x``     relative and absolute, for the comparison of results (default 1e-9)
====================== ==========================================================================================

Every input must verify, except for shared memory without addresses in front of ``allocate-shared``.  Every result
must verify and read back from its text.  A result of ``.scalar`` or ``.vr`` is run before and after the passes on the
same random inputs, and the outputs are compared; a result of ``.ma`` is run where ``COMPLETE`` says how (with no
passes after the colon: as it stands).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.errors import NautilusError
from nautilus.core.expr.nodes import Param
from nautilus.core.schedule import Schedule
from nautilus.core.schedule.plans import VERSION
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.passes.manager import Context, Step
from nautilus.passes.pipelines import MA_TILE, SCALAR, VR_TILE, PassSpec, Stage
from nautilus.passes.pipelines import stage as stage_of

SUFFIXES: Mapping[str, Stage] = {s.suffix: s for s in (SCALAR, VR_TILE, MA_TILE)}
INPUTS = Path(__file__).parent
_TITLE = re.compile(r"^; CASE: (.+)$", re.MULTILINE)
_NAMES = (
    "INPUT|SPEC|CERTIFICATE|EDIT|FIRST|RUN|PRINT|SCHEDULE|PLAN|CONSTANT|ARCH|ERROR|COMPLETE|TOLERANCE|UNCHANGED|AGAIN"
)
_DIRECTIVE = re.compile(rf"^\s*; ({_NAMES})(?::[ ]*(.*))?$")
_PLAN = re.compile(r"(\w*)\s*(\{.*\})\s*")
_CAPITALS = re.compile(r"\s*;\s*[A-Z]{3,}[A-Z-]*(:|$)")
_RUN = re.compile(r"([a-z0-9-]+)\s*(\{.*\})?\s*")
_INTERPRETERS = {
    "scalar": "nautilus.scalar.interp.program:run_program",
    "vr-tile": "nautilus.vr_tile.interp:run_module",
    "ma-tile": "nautilus.ma_tile.interp.module:run_module",
}


@dataclass(frozen=True)
class Case:
    """One case of a file."""

    title: str
    stage: Stage
    text: str
    directives: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """What follows each directive ``name``, in order."""
        return [value for key, value in self.directives if key == name]

    def has(self, name: str) -> bool:
        return bool(self.all(name))

    def one(self, name: str, default: str) -> str:
        """What follows the last directive ``name``."""
        return [default, *self.all(name)][-1]


def cases(text: str, stage: Stage) -> Iterator[Case]:
    """The cases of a file's text. Raises ValueError for a directive that does not exist or a title given twice."""
    parts = _TITLE.split(text)[1:]
    titles, bodies = parts[::2], parts[1::2]
    if not titles or len(set(titles)) != len(titles):
        raise ValueError("a file holds cases with a title each, which differ: '; CASE: title'")
    for title, body in zip(titles, bodies, strict=True):
        found = []
        for line in body.splitlines():
            if match := _DIRECTIVE.match(line):
                found.append((match[1], match[2] or ""))
            elif _CAPITALS.match(line) and not line.lstrip().startswith("; CHECK"):
                raise ValueError(f"case {title!r}: no directive reads {line.strip()!r}")
        yield Case(title, stage, body, tuple(found))


def cases_in(path: Path) -> dict[str, Case]:
    """The cases of a file by their titles, for tests in Python that use the same programs."""
    return {case.title: case for case in cases(path.read_text("utf-8"), SUFFIXES[path.suffix])}


def load(target: str) -> Any:
    """The attribute that ``"module:attribute"`` names."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def pass_of(stage: Stage, name: str) -> PassSpec:
    """The pass ``name`` of ``stage`` without options. Raises ValueError where the stage has none."""
    for spec in stage.passes:
        if spec.name == name:
            return replace(spec, options={})
    raise ValueError(f"{stage.name} has no pass {name!r}")


def passes_of(case: Case) -> list[PassSpec]:
    """The passes that a case runs."""
    out = [parsed_pass(case.stage, line) for line in case.all("RUN")]
    if not out and not case.has("PRINT"):
        raise ValueError(f"case {case.title!r} runs no pass")
    return out


def parsed_pass(stage: Stage, line: str) -> PassSpec:
    """The pass and the options that a line names. Raises ValueError."""
    match = _RUN.fullmatch(line)
    if match is None:
        raise ValueError(f"'{line}' is not the name of a pass and its options as JSON")
    return replace(pass_of(stage, match[1]), options=json.loads(match[2] or "{}"))


def program_of(case: Case) -> str:
    """The text of a case's program, before edits."""
    name = case.one("INPUT", "")
    text = (INPUTS / case.stage.name.replace("-", "_") / "inputs" / name).read_text("utf-8") if name else case.text
    return "\n".join(line for line in text.splitlines() if not _CAPITALS.match(line))


def edited(text: str, line: str) -> str:
    """``text`` with the edit ``old => new``. Raises ValueError where ``old`` is not in it."""
    old, arrow, new = (x.replace("\\n", "\n") for x in line.partition(" =>"))
    if not arrow or old not in text:
        raise ValueError(f"the program does not hold {old!r}")
    return text.replace(old, new.removeprefix(" "))


def context_of(case: Case, module: Any) -> Context:
    """What the passes of a case are told besides their options."""
    schedule = " ".join(case.all("SCHEDULE"))
    told = Schedule.from_json(schedule) if schedule else planned(case.all("PLAN"), module)
    return Context(arch=case.one("ARCH", "sm_90a"), schedule=told)


def planned(lines: list[str], module: Any) -> Schedule | None:
    """A schedule in which the plans of the kernels of ``module`` have the fields that ``lines`` give."""
    if not lines:
        return None
    plans = {}
    for line in lines:
        match = _PLAN.fullmatch(line)
        if match is None:
            raise ValueError(f"'{line}' is not the name of a kernel, if any, and fields of its plan as JSON")
        plans[match[1]] = json.loads(match[2])
    names = [k.name for k in module.kernels]
    if unknown := sorted(set(plans) - {"", *names}):
        raise ValueError(f"the module has no kernel {', '.join(unknown)}")
    axes = [{"name": "i", "role": "tile", "tile": 1}]
    kernels = [{"name": n, "ops": [], "axes": axes, **plans.get(n, plans.get("", {}))} for n in names]
    return Schedule.from_json(json.dumps({"version": VERSION, "kernels": kernels}))


def derived(passes: list[PassSpec], module: Any, stage: Stage, context: Context) -> tuple[Any, list[Certificate]]:
    """``module`` after ``passes``, each result of which must verify, and their certificates."""
    found: list[Certificate] = []
    for spec in passes:
        module, certificates = Step(stage, spec.name, spec, False).derive(module, context)
        load(stage.verify)(module)
        found += certificates
    return module, found


def run_passes(passes: list[PassSpec], module: Any, stage: Stage, context: Context) -> Any:
    """``module`` after ``passes``; each result must verify."""
    return derived(passes, module, stage, context)[0]


def check_certificates(case: Case, found: list[Certificate]) -> None:
    """The certificates are those that the case names."""
    named = [line.split(": ", 1) for line in case.all("CERTIFICATE")]
    texts = [c.text() for c in found]
    for head, part in named:
        assert any(t.startswith(f"{head}:") and part in t for t in texts), f"no {head} with {part!r} in {texts}"
    assert not named or len(texts) == len({head for head, _ in named}), f"other certificates: {texts}"
    refuted = [v for c in found if not (v := check(c)).ok]
    assert not refuted, f"refuted: {refuted}"


def random_inputs(module: Any) -> dict[str, Any]:
    """Inputs of a module of any level, the same ones in every run."""
    rng = np.random.default_rng(7)
    out: dict[str, Any] = {}
    for b in module.buffers:
        if b.space is not Space.INPUT:
            continue
        shape = tuple(5 if isinstance(e, Param) else e for e in b.shape)
        if b.dtype is DType.BOOL:
            out[b.name] = rng.random(shape) < 0.6
        elif b.dtype.is_int:
            out[b.name] = rng.integers(0, 5, shape)
        else:
            out[b.name] = np.round(rng.standard_normal(shape) * 64) / 64
    return out


def scalars(module: Any) -> dict[str, Any]:
    """Values of the parameters that have no default: runtime extents are 5, as in :func:`random_inputs`."""
    return {p.name: 5 if p.dtype.is_int else 0.5 for p in module.params if p.default is None}


def compare_runs(case: Case, before: Any, after: Any, context: Context) -> None:
    """Both modules compute the same outputs from the same inputs."""
    if case.stage is MA_TILE:
        finish = [pass_of(case.stage, n.strip()) for n in case.one("COMPLETE", "").split(",") if n.strip()]
        before, after = (run_passes(finish, m, case.stage, context) for m in (before, after))
    run = load(_INTERPRETERS[case.stage.name])
    inputs, tolerance = random_inputs(before), float(case.one("TOLERANCE", "1e-9"))
    want, got = (run(m, inputs, scalars(before)) for m in (before, after))
    for name in [b.name for b in before.buffers if b.space is Space.OUTPUT]:
        np.testing.assert_allclose(got[name], want[name], rtol=tolerance, atol=tolerance, err_msg=name)


def input_of(case: Case) -> Any:
    """The module that a case starts from: its program after its edits and passes in front, in their order."""
    stage, text = case.stage, program_of(case)
    parse = load(stage.parse)
    if case.has("SPEC"):  # edits change the spec
        for value in case.all("EDIT"):
            text = edited(text, value)
        lines = (line.strip() for line in text.splitlines())
        spec = load_text("\n".join(line for line in lines if not line.startswith(";")) + "\n")
        text = load(stage.format)(load(stage.lower)(spec))
    for name, value in case.directives:
        if name == "EDIT" and not case.has("SPEC"):
            text = edited(text, value)
        elif name == "FIRST":
            module = parse(text, "<case>")
            text = load(stage.format)(run_passes([parsed_pass(stage, value)], module, stage, context_of(case, module)))
    module = parse(text, "<case>")
    if [line.split()[0] for line in case.all("RUN")[:1]] != ["allocate-shared"]:
        load(stage.verify)(module)
    return module


def output_of(case: Case) -> Any:
    """The module that the passes of a case make."""
    module = input_of(case)
    return run_passes(passes_of(case), module, case.stage, context_of(case, module))


def printed(case: Case, module: Any) -> str:
    """The text that CHECK lines match: that of ``module``, or of what it is lowered to."""
    if not case.has("PRINT"):
        return str(load(case.stage.format)(module))
    target = stage_of(case.one("PRINT", ""))
    return str(load(target.format)(Step(target, "lower", None, True).run(module, context_of(case, module))))


def check_case(case: Case) -> None:
    """Run one case. Raises AssertionError where it does not hold."""
    with constants_of(case):
        _check(case)


@contextmanager
def constants_of(case: Case) -> Iterator[None]:
    """The constants of the package are those that ``case`` names."""
    with pytest.MonkeyPatch.context() as patch:
        for line in case.all("CONSTANT"):
            place, _, value = line.partition(" ")
            module, _, name = place.partition(":")
            patch.setattr(import_module(f"nautilus.{module}"), name, json.loads(value))
        yield


def _check(case: Case) -> None:
    stage, passes, before = case.stage, passes_of(case), input_of(case)
    parse, write, context = load(stage.parse), load(stage.format), context_of(case, before)
    if case.has("ERROR"):
        with pytest.raises(NautilusError, match=re.escape(case.one("ERROR", ""))):
            run_passes(passes, before, stage, context)
        return
    after, certificates = derived(passes, before, stage, context)
    check_certificates(case, certificates)
    assert parse(write(after), "<case>") == after, "the result does not read back from its text"
    if case.has("UNCHANGED"):
        assert write(after) == write(before), "the passes change a module that they must leave as it is"
        assert not certificates, "the passes leave certificates of nothing"
        return
    assert not passes or write(after) != write(before), "the passes leave the module as it is"
    assert "CHECK" in case.text, "a case that changes the module has CHECK lines"
    from tests.conftest import run_filecheck

    complaint = run_filecheck(printed(case, after), case.text)
    assert not complaint, complaint
    if case.has("AGAIN"):
        assert run_passes(passes, after, stage, context) == after, "the passes change their own result"
    if (stage is not MA_TILE and not case.has("PRINT")) or case.has("COMPLETE"):
        compare_runs(case, before, after, context)


class IRFile(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[pytest.Item]:
        for case in cases(self.path.read_text(encoding="utf-8"), SUFFIXES[self.path.suffix]):
            yield IRItem.from_parent(self, name=case.title, case=case)


class IRItem(pytest.Item):
    """A case as a test."""

    def __init__(self, *, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self.case = case

    def runtest(self) -> None:
        check_case(self.case)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The complaint alone; the trace where the passes failed."""
        if isinstance(excinfo.value, AssertionError | pytest.fail.Exception):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.name}: {self.case.title}"
