"""``nautilusc check``: validate one compilation.

1. A checker that shares no code with the passes re-checks their certificates.  A validator decides whether each pass of
   the levels above MA-tile IR kept the meaning (:mod:`nautilus.check.validate`), at the smallest sizes, and whether the
   passes of Scalar IR kept every iteration, at the declared sizes too.
2. The compilation is repeated at small sizes that no tile divides.  Both sides of every lowering and of every pass run
   on the same inputs: over the reals down to the VR-tile IR (equal to 1e-9), and in the kernel's types below it (equal
   within twice the bound on those inputs; the MA-tile interpreter simulates threads and memory).  On one set of random
   inputs every step is compared.  On the others the two ends are compared, and every step only where the ends disagree.
   A disagreement names the step between the two sides.  Passes that only the declared sizes use are checked at larger
   ones (:mod:`nautilus.check.coverage`).
3. The result is compared with the Spec in float64, and so is the result of the GPU if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from itertools import pairwise
from math import inf
from time import thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.check import compare, device, levels
from nautilus.check.bound.bound import Bound
from nautilus.check.bound.stated import stated
from nautilus.check.input_sets import Clock, input_sets
from nautilus.check.inputs import InputSet, generate, interface, validation_inputs, with_specials, without_ties
from nautilus.check.levels import Level, Trace
from nautilus.check.reference import Compiled as Made
from nautilus.check.reference import OutOfRange, Reference
from nautilus.check.report import Outcome, Report
from nautilus.check.sizes import Variant
from nautilus.core.errors import NautilusError, ScheduleError, UnsupportedError, first_line
from nautilus.core.numerics import Array, Mode
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, Result, build_cubin, compile_checked
from nautilus.frontend.spec import Spec

if TYPE_CHECKING:
    from nautilus.runtime.nvrtc import Compiled

#: kinds that run on the MA-tile interpreter, which is slow
_PHYSICAL = frozenset({"random", "large-logits", "ascending", "masked"})
_PHYSICAL_SECONDS = 1.0  # after a slower run, only random inputs run on the MA-tile interpreter
_VALIDATION_SECONDS = 8.0  # seconds of the validator, and of the MA-tile interpreter; later passes are not decided
_TWO = 2.0  # bounds by which two levels may differ, of which each is within one of the reference
_TIED = 0.01  # allowed share of different elements of discrete outputs of computed floats
_SHARE = 0.4  # share of the time of a check for every step on random inputs, and for the validators after all inputs
_STEP_SECONDS = 15.0  # seconds of comparing every step; the steps after that time are compared together


@dataclass
class Check:
    """The check of one compilation at one set of sizes; ``variant`` is None for a dump, which has no Spec."""

    report: Report
    request: Request
    variant: Variant | None
    seed: int
    device: str
    only: Sequence[str] | None
    compares: bool = True
    validates: bool = True
    clock: Clock = field(default_factory=Clock)
    trace: Trace = field(default_factory=Trace)
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    made: Made | None = None  # unless the compilation starts from a dump
    slow: bool = False
    compiled: Result | None = None  # None before :meth:`compile`, and after an error
    cubin: Compiled | None = None  # only with a GPU
    twin: Check | None = None  # a check whose compilation is that of the same request

    def add(self, check: str, subject: str, status: Any, message: str = "", **more: Any) -> None:
        """Add an outcome at these sizes to the report."""
        sizes = self.variant.text if self.variant is not None else ""
        self.report.add(Outcome(check, subject, status, message, sizes, **more))

    def run(self) -> None:
        """Compile, check certificates, and compare all steps and the result on every input set."""
        result = self.compile()
        if self.variant is None:
            self.dump()
            self.certificates()
        if not self.trace.levels:
            return
        first = self.trace.levels[0]
        spec = self.variant.spec if self.variant is not None else interface(first.module, first.context.integers)
        if self.variant is not None:
            schedule = self.trace.levels[-1].context.schedule
            self.made = Made(spec, self.request.precision, schedule)
            self.bounds = stated(spec, self.request.precision, schedule)
        sets = []
        for given, ref in input_sets(spec, self.made, self.bounds, self.seed, self.only):
            sets.append((given, ref))
            if self.compares:
                with self.ranged(given):
                    self.steps(given, ref)
            if self.clock.left <= _SHARE * self.clock.seconds:
                self.add("result", "inputs", "skip", f"the time of the check is over after {given.name}")
                break
        if self.validates:
            if self.twin is None:
                self.index_sets()
            self.validation(spec)
        if self.compares:
            self.machine_validation(spec, sets)
        self.gpu(result, sets)

    # -- compiling -----------------------------------------------------------------------------
    def compile(self) -> Result | None:
        """Compile under a trace up to the kernel that ptxas accepts, and up to the cubin with a GPU.

        An error becomes an outcome that names the step; the levels before it are still checked.
        """
        if self.twin is not None:
            self.trace, self.compiled = self.twin.trace, self.twin.compiled
            return self.compiled
        try:
            if self.device == "cpu" or self.variant is None or device.gpu_missing(self.request.arch):
                self.compiled = compile_checked(self.request, [self.trace])
            else:
                self.compiled, self.cubin = build_cubin(self.request, [self.trace])
            return self.compiled
        except UnsupportedError as error:
            self.add("compile", _step_of(error), "skip", _first(error))
        except ScheduleError as error:
            given = replace(self.request.schedule or Schedule(), scatters=None) != Schedule()
            self.add("compile", _step_of(error), "skip" if given else "fail", _first(error))
        except Exception as error:
            if not self.trace.levels:
                raise
            self.add("compile", _step_of(error), "fail", f"{type(error).__name__}: {_first(error)}")
        return None

    def certificates(self) -> None:
        """Check the certificate of each step, and those of its rewrites."""
        from nautilus.check.certificates.recheck import narrowings, recheck, rewrites, step_certificates

        for made, problem in step_certificates(self.trace.records):
            self.add("certificate", made.step, "fail" if problem else "ok", problem)
        for step, verdict in narrowings(self.trace.records):
            status = "ok" if verdict.status == "proved" else "skip"
            self.add("range", step, status, verdict.detail, verdict=verdict.label)
        for step, certificate, problem in rewrites(self.trace.records):
            verdict = recheck(certificate, self.seed)
            how = problem or verdict.text
            message = f"{certificate.rule} in {certificate.subject}: {how}"
            status = "fail" if problem else {"refuted": "fail", "not decided": "skip"}.get(verdict.status, "ok")
            self.add("certificate", step, status, message, verdict="refuted" if problem else verdict.label)

    def dump(self) -> None:
        """Check the certificate of the dump from which the compilation started, and the step that it describes."""
        from nautilus.check.certificates.dumped import Dumped, read

        if not self.trace.records:
            return
        path, text = self.request.path, self.request.text
        first = self.trace.records[0]
        found = read(path.read_text(encoding="utf-8") if text is None else text, first)
        if not isinstance(found, Dumped):
            self.add("certificate", f"{first.stage.name} dump", "fail" if found else "skip", found or "it has none")
            return
        self.add("certificate", found.step, "ok")
        for check, message, verdict in found.verdicts(self.seed):
            status = {"refuted": "fail", "not decided": "skip"}.get(verdict.status, "ok")
            said = f"{message}: {verdict.text}" if message else verdict.detail
            self.add(check, found.step, status, said, seed=self.seed, verdict=verdict.label)

    def index_sets(self) -> None:
        """The verdict on the iterations of each pass of Scalar IR at these sizes."""
        from nautilus.check.validation import index_verdicts

        for level, verdict in index_verdicts(self.trace.levels):
            status = {"proved": "ok", "refuted": "fail"}.get(verdict.status, "skip")
            self.add("iterations", level.subject, status, verdict.detail, verdict=verdict.label)

    def validation(self, spec: Spec) -> None:
        """The verdict of the validator on every step down to the VR-tile IR."""
        from nautilus.check.validation import verdicts
        from nautilus.scalar.analysis.contractions.promises import promised_ranges

        given = generate(spec, "random", self.seed)
        inputs = validation_inputs(spec, self.seed)
        numbers = {**given.scalars, **given.sizes}

        def approximated(level: Level) -> list[str]:
            return [name for name, b in self.bounds.items() if b.grows or self.approximated(name, level)]

        seconds = self.clock.part(0.5, _VALIDATION_SECONDS).seconds
        whole = self.variant is not None  # a dump may start after a step that moves inf and NaN
        bounded = frozenset(promised_ranges(spec))
        found = verdicts(self.trace.levels, inputs, numbers, self.seed, approximated, seconds, whole, bounded)
        for level, verdict in found:
            status = {"refuted": "fail", "not decided": "skip"}.get(verdict.status, "ok")
            message, label = verdict.detail, verdict.label
            self.add("validation", level.subject, status, message, kind=given.kind, seed=given.seed, verdict=label)

    def machine_validation(self, spec: Spec, sets: Sequence[tuple[InputSet, Reference | None]]) -> None:
        """The verdict on every pass of MA-tile IR: the same bits."""
        from nautilus.check.validation import same_bits

        given = generate(spec, "random", self.seed)
        ref = next((r for g, r in sets if (g.kind, g.seed) == (given.kind, given.seed)), None)
        both = (given, with_specials(spec, given))
        allowed = dict if ref is None else (lambda: ref.allowed)
        seconds = self.clock.part(1.0, _VALIDATION_SECONDS).seconds
        exactly = partial(self.differs_exactly, ref=ref)
        for level, verdict in same_bits(self.trace.levels, both, allowed, exactly, seconds):
            status = {"refuted": "fail", "not decided": "skip"}.get(verdict.status, "ok")
            how = {"kind": given.kind, "seed": given.seed, "verdict": verdict.label}
            self.add("validation", level.subject, status, verdict.detail, **how)

    @contextmanager
    def ranged(self, given: InputSet) -> Iterator[None]:
        """Comparisons on ``given``, which end where the inputs turn out to be outside the stated range."""
        try:
            yield
        except OutOfRange as why:
            text = f"these inputs are outside the stated range: {why}"
            self.add("result", "inputs", "skip", text, kind=given.kind, seed=given.seed)

    # -- both sides of every step --------------------------------------------------------------
    def steps(self, given: InputSet, ref: Reference | None) -> None:
        """Compare the levels with each other, and the last one with the reference."""
        chain = self.trace.levels
        real = [x for x in chain if x.stage != "ma-tile"]
        if not real:  # a dump of MA-tile IR: its passes are compared with each other only
            return
        memo: dict[tuple[int, Mode], Mapping[str, Array] | None] = {}

        def outputs(level: Level, mode: Mode, report: bool = True) -> Mapping[str, Array] | None:
            key = (id(level), mode)
            if key not in memo or (report and memo[key] is None):
                memo[key] = self.outputs(level, given, ref, mode, report)
            return memo[key]

        def pair(a: Level, b: Level, subject: Level | None) -> bool:
            left, right = outputs(a, "real"), outputs(b, "real")
            return left is None or right is None or self.agree(a, left, right, given, ref, subject)

        if (given.kind, given.seed) == ("random", self.seed):
            self.every_step(real, pair, self.clock.part(_SHARE, _STEP_SECONDS).seconds)
        elif not pair(real[0], real[-1], None):
            self.every_step(real, pair, inf)
        elif len(real) > 1:
            self.add("lowering", f"{real[0].stage} -> {real[-1].stage}", "ok", kind=given.kind, seed=given.seed)
        self.typed_steps(given, ref, real[-1], [x for x in chain if x.stage == "ma-tile"], outputs)

    def every_step(self, levels: list[Level], pair: Any, seconds: float) -> None:
        """Compare neighbouring levels; after ``seconds`` the last two that are compared are farther apart, unless they
        disagree."""
        started = thread_time()
        for n, (a, b) in enumerate(pairwise(levels), 1):
            if thread_time() - started > seconds and b is not levels[-1] and pair(a, levels[-1], None):
                for rest in levels[n:]:
                    self.add(rest.check, rest.subject, "ok", "compared together with the steps after it")
                return
            pair(a, b, b)

    def typed_steps(
        self, given: InputSet, ref: Reference | None, above: Level, below: list[Level], outputs: Any
    ) -> None:
        """Compare the MA-tile levels with the last VR-tile level, and the last level that ran with the reference."""
        last, values = above, None if above.stage == "spec" else outputs(above, "typed")
        if values is not None and ref is not None and not self.close(above, values, ref.truth, given, ref, False):
            self.find_typed_fault(given, ref, outputs)
        if below and given.kind in _PHYSICAL and not (self.slow and given.kind != "random"):
            started = thread_time()
            got = outputs(below[-1], "typed", report=False)
            self.slow |= thread_time() - started > _PHYSICAL_SECONDS
            if got is not None and (values is None or self.close(below[-1], got, values, given, ref, False, _TWO)):
                last, values = below[-1], got
                self.add("lowering", f"{above.stage} -> ma-tile", "ok", kind=given.kind, seed=given.seed)
            else:
                self.find_ma_tile_fault(given, ref, values, below, outputs)
        if values is not None and ref is not None:
            self.result("result", last.stage, values, given, ref)

    def find_typed_fault(self, given: InputSet, ref: Reference, outputs: Any) -> None:
        """Report the first step whose result is right over the reals but wrong in the kernel's types."""
        for level in self.trace.levels:
            if level.stage not in ("scalar", "vr-tile"):
                continue
            got = outputs(level, "typed")
            if got is None or not self.close(level, got, ref.truth, given, ref, True):
                return

    def find_ma_tile_fault(
        self, given: InputSet, ref: Reference | None, values: Mapping[str, Array] | None,
        below: list[Level], outputs: Any,
    ) -> None:  # fmt: skip
        """Report the step that made the first wrong MA-tile level."""
        for level in below:
            got = outputs(level, "typed", report=True)
            if got is None or (values is not None and not self.close(level, got, values, given, ref, True, _TWO)):
                return
        message = f"the {below[-1].stage} module disagrees with the {self.trace.levels[0].stage} module"
        self.add(below[-1].check, below[-1].subject, "fail", message, kind=given.kind, seed=given.seed)

    def outputs(
        self, level: Level, given: InputSet, ref: Reference | None, mode: Mode, report: bool = True
    ) -> Mapping[str, Array] | None:
        """The outputs of ``level``, or None after an error, which counts as a failure of the step that made it."""
        try:
            return levels.run(level, given, mode)
        except UnsupportedError as error:
            if report:
                self.add(level.check, level.subject, "skip", _first(error), kind=given.kind, seed=given.seed)
        except Exception as error:
            if report:
                if ref is not None:
                    ref.needs_range()
                message = f"the interpreter fails: {type(error).__name__}: {_first(error)}"
                self.add(level.check, level.subject, "fail", message, kind=given.kind, seed=given.seed)
        return None

    def agree(
        self, a: Level, left: Mapping[str, Array], right: Mapping[str, Array],
        given: InputSet, ref: Reference | None, subject: Level | None,
    ) -> bool:  # fmt: skip
        """Whether two levels agree over the reals; reported for the step ``subject`` unless that is None."""
        fine = True
        for name, dtype in levels.output_types(a.module):
            if self.tied(name, given) or (name in self.bounds and self.bounds[name].grows):
                continue
            if not dtype.is_float:
                found = self.differs_exactly(name, right[name], left[name], ref)
                fine = self.agreed(found, name, given, subject) and fine
                continue
            slack = 0.0 if ref is not None else 1e-6 * compare.norm(left[name])
            truth = ref.values[name] if ref is not None else None
            found = compare.same_reals(right[name], left[name], dtype, slack, truth)
            if found is not None and ref is not None:
                ref.needs_range()
                slack = ref.allowed[name] if self.approximated(name, subject) else ref.noise[name]
                found = compare.same_reals(right[name], left[name], dtype, slack, truth)
            fine = self.agreed(found, name, given, subject) and fine
        if fine and subject is not None:
            self.add(subject.check, subject.subject, "ok", kind=given.kind, seed=given.seed)
        return fine

    def agreed(self, found: compare.Difference | None, name: str, given: InputSet, subject: Level | None) -> bool:
        """Whether there is no difference; one is a failure of the step ``subject`` unless that is None."""
        if found is not None and subject is not None:
            how = {"kind": given.kind, "seed": given.seed, "output": name}
            text = f"{name}{found.text}"
            self.add(
                subject.check, subject.subject, "fail", text, index=found.index, measured=found.measured, **how
            )  # fmt: skip
        return found is None

    def differs_exactly(
        self, name: str, got: Array, want: Array, ref: Reference | None
    ) -> compare.Difference | None:  # fmt: skip
        """How output ``name`` of integers or bools differs where computed floats close to a tie do not decide."""
        ties = ref is not None and name in self.bounds and self.bounds[name].ties
        free = (lambda: ref.undecided()[name]) if ref is not None and ties else None
        return compare.exact(got, want, self.share(name), self.step(name), free)

    def approximated(self, name: str, step: Level | None) -> bool:
        """Whether ``step`` (None: any) may change the value of ``name`` over the reals by a stated error."""
        if name not in self.bounds:
            return False
        steps = {r.name for r in self.trace.records if any(c.rule == "defer-roundings" for c in r.certificates)}
        if self.bounds[name].form:
            steps.add("hardware-math")
        return bool(steps) and (step is None or step.step in steps)

    def tied(self, name: str, given: InputSet) -> bool:
        """Whether ``name`` is a discrete output that ties in these inputs may decide either way."""
        if self.made is None or name not in self.bounds or not self.bounds[name].ties:
            return False
        return given.kind not in without_ties(self.made.spec)

    def close(
        self, level: Level, got: Mapping[str, Array], want: Mapping[str, Array],
        given: InputSet, ref: Reference | None, report: bool, bounds: float = 1.0,
    ) -> bool:  # fmt: skip
        """Whether ``got`` is within this many ``bounds`` of ``want``; with ``report``, a difference is a failure."""
        fine = True
        for name, dtype in levels.output_types(level.module):
            if self.tied(name, given):
                continue
            if dtype.is_float:
                found = self.differs(name, got, want, ref, bounds)
            else:
                found = self.differs_exactly(name, got[name], want[name], ref)
            fine = fine and found is None
            if found is not None and report:
                self.add(
                    level.check, level.subject, "fail", f"{name}{found.text}", kind=given.kind,
                    seed=given.seed, output=name, index=found.index, measured=found.measured,
                )  # fmt: skip
        return fine

    def differs(
        self, name: str, got: Mapping[str, Array], want: Mapping[str, Array], ref: Reference | None, bounds: float
    ) -> compare.Difference | None:
        """How output ``name`` differs from ``want``, or in its single steps, by more than this many ``bounds``."""
        if ref is None:
            return compare.within(got[name], want[name], bounds * 1e-2 * compare.norm(want[name]))
        cut = self.bounds[name].cut
        if self.bounds[name].cancels:  # roundings decide which elements are inf or NaN
            alike = np.isfinite(got[name]) & np.isfinite(want[name])
            got = {**got, name: np.where(alike, got[name], want[name])}
        if compare.within(cut(got[name]), cut(want[name]), bounds * ref.quick[name].allowed) is None:
            return None
        ref.needs_range()
        target = ref.against(name, got)
        other = target.truth if name in ref.single else want[name]
        each = None if target.each is None else bounds * target.each
        return compare.within(cut(got[name]), cut(other), bounds * target.allowed, each)

    def share(self, name: str) -> float:
        """The share of the elements of output ``name`` that may differ because of ties."""
        return _TIED if name in self.bounds and self.bounds[name].ties else 0.0

    def step(self, name: str) -> float:
        """The largest difference that a tie makes in an integer of output ``name``."""
        return self.bounds[name].step if name in self.bounds else np.inf

    # -- against float64 -----------------------------------------------------------------------
    def result(self, check: str, where: str, got: Mapping[str, Array], given: InputSet, ref: Reference) -> None:
        """Compare every output with the Spec and report measured, stated and allowed error."""
        for name, bound in self.bounds.items():
            if self.tied(name, given):
                continue
            target = ref.target(name, got)
            want, mine = bound.cut(target.rounded), bound.cut(got[name])
            common = {"kind": given.kind, "seed": given.seed, "output": name, "bound": bound.relative}
            subject = f"{name} ({where})"
            if not np.isfinite(bound.relative):
                self.add(check, subject, "skip", f"the error of {name} is {bound.text}", **common)
                continue
            if mine.dtype.kind != "f":
                found = self.differs_exactly(name, mine, want, ref)
                measured, allowed = (0.0 if found is None else found.measured), 0.0
            else:
                truth = bound.cut(target.truth)
                found = compare.within(mine, truth, target.allowed, target.each)
                measured, allowed = target.relative(mine, bound)
            more = {} if found is None else {"index": found.index}
            message = "" if found is None else f"{name}{found.text}"
            self.add(
                check, subject, "ok" if found is None else "fail", message,
                measured=measured, allowed=allowed, **common, **more,
            )  # fmt: skip

    def gpu(self, result: Result | None, sets: list[tuple[InputSet, Reference | None]]) -> None:
        """Run the kernel on the GPU on every input set."""
        if self.device == "cpu" or self.variant is None or result is None or "cuda" not in result.modules:
            return
        why = device.gpu_missing(self.request.arch)
        if why:
            self.add("gpu", "kernel", "fail" if self.device == "cuda" else "skip", why)
            return
        try:
            sizes = next((given.sizes for given, _ in sets), {})
            with device.opened(result, self.cubin, sizes) as runner:
                for given, ref in sets:
                    if ref is None:
                        continue
                    got, same = runner.run(given)
                    with self.ranged(given):
                        self.result("gpu", "cuda", got, given, ref)
                    if not same:
                        message = "two launches on the same inputs have different results"
                        self.add("gpu", "kernel", "fail", message, kind=given.kind, seed=given.seed)
        except NautilusError as error:
            self.add("gpu", "kernel", "fail", _first(error))


def _step_of(error: Exception) -> str:
    """The step that the notes of ``error`` name."""
    for note in getattr(error, "__notes__", []):
        for prefix in ("in pass ", "after pass "):
            if note.startswith(prefix):
                return str(note.removeprefix(prefix))
    return "driver"


def _first(error: Exception) -> str:
    return first_line(error) or type(error).__name__
