"""Modules of one kernel: which are the same object, and that steps make of each what they make of the whole module."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import Const, Var
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.source import Source, Span
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.passes.manager import Context, Step, divided, forget_trials, prepared, steps
from nautilus.passes.pipelines import CUDA, MA_TILE, SCALAR, STAGES, VR_TILE
from nautilus.passes.trials.divided import Divided, Divisions
from nautilus.scalar.ir import Program
from nautilus.scalar.text import parse_program
from tests.shipped import ROOT

TEXT = """
program t {
  input X: f32[8]
  temp A: f32[8]
  output Y: f32[8]
  output Z: f32[8]
  kernel A {
    par i in 0..8 { A[i] = X[i] * 2.0 }
  }
  kernel Y {
    par i in 0..8 { Y[i] = A[i] + 0.0 }
  }
}
"""


def test_the_module_of_a_kernel_has_the_buffers_that_it_names() -> None:
    found = Divisions().of(parse_program(TEXT))
    assert [[b.name for b in m.buffers] for m in found.alone] == [["X", "A"], ["A", "Y"]]
    assert found.frame.kernels == () and len(found.frame.buffers) == 4


def test_equal_kernels_of_two_modules_are_one_object() -> None:
    known, one = Divisions(), parse_program(TEXT)
    changed = _store(one, at=0, value=Const(3.0, DType.F32))
    other = replace(changed, buffers=changed.buffers[:-1])
    first, second = known.of(one), known.of(other)
    assert first.alone[0] is not second.alone[0] and first.alone[1] is second.alone[1]
    assert first.module(one) is one and second.module(other) is other
    assert known.of(one) is first


def _store(program: Program, at: int = 1, **changes: Any) -> Program:
    """``program`` with changes to the statement of kernel ``at``."""
    kernels = list(program.kernels)
    loop: Any = kernels[at].body[0]
    kernels[at] = replace(kernels[at], body=(replace(loop, body=(replace(loop.body[0], **changes),)),))
    return replace(program, kernels=tuple(kernels))


@pytest.mark.parametrize("what", ["place in the source", "sign of zero", "buffer"])
def test_kernels_that_differ_in_a_detail_are_two(what: str) -> None:
    one = parse_program(TEXT)
    changed: dict[str, Program] = {
        "place in the source": _store(one, span=Span(Source("x", "Y[i] = A[i] + 0.0"), 1, 1, 1, 2)),
        "sign of zero": _store(one, value=Const(-0.0, DType.F32)),
        "buffer": replace(one, buffers=(*one.buffers[:-2], Buffer("Y", DType.F16, (8,), Space.OUTPUT))),
    }
    plain = _store(one, value=Const(0.0, DType.F32)) if what == "sign of zero" else one
    known = Divisions()
    a, b = known.of(plain).alone, known.of(changed[what]).alone
    assert a[0] is b[0] and a[1] is not b[1]


def test_a_step_that_sees_all_kernels_leaves_the_others_as_they_are() -> None:
    known, one = Divisions(), parse_program(TEXT)
    before = known.of(one)
    made = _store(one, index=(Var("i"),), value=Const(1.0, DType.F32))
    known.after(one, made)
    again = _store(one, index=(Var("i"),), value=Const(1.0, DType.F32))
    known.after(one, again)
    assert known.of(made).alone[0] is before.alone[0] is known.of(again).alone[0]
    assert known.of(made).alone[1] is known.of(again).alone[1] is not before.alone[1]


def test_a_schedule_is_cut_to_a_kernel() -> None:
    plans = tuple(KernelPlan(n, (n,), ()) for n in ("A", "Y"))
    schedule = Schedule(inline=("B",), kernels=plans, decompose_operands=False)
    own = Divisions().plan_of(schedule, "Y")
    assert own == Schedule(kernels=plans[1:], decompose_operands=False)


SPECS = ("attention/causal_prefill", "gallery/attention/decode/latent", "gallery/attention/prefill/squared_relu")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", SPECS)
def test_steps_make_of_each_kernel_alone_what_they_make_of_all(name: str, arch: str) -> None:
    """They do where the pipeline says that the stage works by kernel and the pass is not for the whole module."""
    result = compile_file(Request(Path(ROOT / "specs" / f"{name}.naut"), arch, until=SCALAR.name))
    forget_trials()
    module: Any = result.modules[SCALAR.name]
    for step in (s for stage in (VR_TILE, MA_TILE) for s in steps(stage)):
        context = prepared(step, module, result.context)
        made = step.run(module, context)
        if step.spec is None or not step.spec.whole:
            _same_alone(step, module, made, context)
        module = made


def _same_alone(step: Step, module: Any, made: Any, context: Context) -> None:
    known = Divisions()
    alone = [
        step.run(m, replace(context, schedule=known.plan_of(context.schedule, m.kernels[0].name)))
        for m in known.of(module).alone
    ]
    found = Divided(replace(made, kernels=()), tuple(alone)).module(None)
    assert found == made, step.name


def test_a_trial_runs_a_step_once_for_equal_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from nautilus.vr_tile.passes.cse import Cse

    forget_trials()
    seen: list[str] = []
    apply = Cse.apply

    def counted(self: Cse, module: Any) -> Any:
        seen.extend(k.name for k in module.kernels)
        return apply(self, module)

    monkeypatch.setattr(Cse, "apply", counted)
    one = parse_program(TEXT.replace("par", "grid"))
    made = []
    for program in (one, _store(one, at=0, value=Const(3.0, DType.F32))):
        module: Any = program
        for step in steps(VR_TILE):
            module = step.tried(module, Context())
        made.append(module)
    assert 0 < 2 * seen.count("Y") == seen.count("A")
    assert made[0].kernels[1] is made[1].kernels[1] and made[0].kernels[0] != made[1].kernels[0]
    assert divided(made[0]).alone[1] is divided(made[1]).alone[1]
    forget_trials()


def test_only_stages_below_scalar_ir_work_by_kernel() -> None:
    assert [s.name for s in STAGES if s.by_kernel] == [VR_TILE.name, MA_TILE.name] and not CUDA.by_kernel
