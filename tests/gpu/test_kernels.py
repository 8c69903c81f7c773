"""Every shipped spec on the GPU: within its stated bound, on random and adversarial inputs, bit for bit twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from nautilus.check import compare, device
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import InputSet, generate
from nautilus.check.run import check_spec
from nautilus.check.sizes import large, variants
from nautilus.core.numerics import Array, eval_op, round_to
from nautilus.driver import Request, compile_file
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec
from nautilus.frontend.spec import Spec
from nautilus.runtime.device import default_arch
from tests.shipped import SPECS

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
all_specs = pytest.mark.parametrize("path", SPECS, ids=lambda p: f"{p.parent.name}-{p.stem}")


#: in two halves: the reference takes most of the time
HALVES = (("random", "large-logits", "ascending", "tiny"), ("zeros", "huge", "one-hot", "masked", "unmasked"))


@all_specs
@pytest.mark.parametrize("only", HALVES, ids=["ordinary", "extreme"])
def test_small_odd_sizes_on_adversarial_inputs(path: Path, only: tuple[str, ...]) -> None:
    report = check_spec(Request(path, default_arch()), device="cuda", steps=False, only=only)
    assert report.ok, report.text()
    assert any(o.check == "gpu" and o.status == "ok" for o in report.outcomes), report.text()


@pytest.mark.slow
@all_specs
@pytest.mark.parametrize("kind", ["random", "large-logits"])
def test_large_sizes(path: Path, kind: str) -> None:
    """Declared lengths; the bound is the stated one plus the effect of the last bits of f32 inputs."""
    v = large(lambda dims: load_spec(path, dims=dims), {})
    bounds = stated(v.spec)
    given, want = _finite(v.spec, kind)
    request = Request(path, default_arch(), dict(v.dims))
    with device.opened(compile_file(request)) as runner:
        got, same = runner.run(given)
    assert same, "two launches on the same inputs gave different bits"
    for t in v.spec.outputs:
        if not t.dtype.is_float:
            share = 0.01 if bounds[t.name].ties else 0.0
            assert compare.exact(got[t.name], want[t.name], share) is None
            continue
        rounded = eval_op("cast", [want[t.name]], t.dtype)
        truth = np.where(np.isfinite(rounded), want[t.name], rounded)
        # logits 2500 times the usual size have errors in proportion: 2^-24 times their size, a few times over
        extra = 0.0 if kind == "random" else 1e-2
        allowed = (bounds[t.name].relative + extra) * compare.norm(truth)
        found = compare.within(got[t.name], truth, allowed + compare.floor(t.dtype) * sqrt(truth.size))
        assert found is None, f"{t.name}{found.text}; error {found.measured:.2e}, {given.name}, {v.text}"


def _finite(spec: Spec, kind: str) -> tuple[InputSet, dict[str, Array]]:
    """Inputs as large as the output types can take: near overflow, rounding alone decides what is infinite."""
    for scale in (1.0, 0.25, 0.0625, 0.015625):
        given = generate(spec, kind, 11)
        floats = {t.name: t.dtype for t in spec.inputs if t.dtype.is_float}
        scaled = {n: round_to(given.arrays[n] * scale, d) for n, d in floats.items()}
        given = replace(given, arrays={**given.arrays, **scaled})
        want = run_spec(spec, given.arrays, given.scalars, given.sizes)
        rounded = (eval_op("cast", [want[t.name]], t.dtype) for t in spec.outputs)
        if all(np.isfinite(x).all() or x.dtype.kind != "f" for x in rounded):
            break
    return given, want


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not on PATH")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
@all_specs
def test_the_sanitizer_finds_nothing(path: Path, tool: str) -> None:
    (v, *_) = variants(lambda dims: load_spec(path, dims=dims), {})
    sizes = [f"--dim={n}={value}" for n, value in v.dims.items()]
    run = [sys.executable, "-m", "nautilus", "run", str(path), "--device", "cuda", *sizes]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *run]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_a_kernel_for_another_machine_is_refused() -> None:
    other = "sm_80" if not default_arch().startswith("sm_8") else "sm_90"
    request = replace(Request(SPECS[0], other))
    report = check_spec(request, device="cuda", steps=False, only=["random"])
    assert not report.ok
    assert any(o.check == "gpu" and o.status == "fail" for o in report.failures)
