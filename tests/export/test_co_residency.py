"""Kernels whose blocks wait for each other, on stand-ins for devices that run all of them at the same time, or do not.

Every output chooses at launch between a variant with teams and one that every device runs.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from nautilus.api.kernel import Kernel
from nautilus.cli import compiling
from nautilus.cli.main import main
from nautilus.core.errors import ToolchainError
from nautilus.driver import Request, Result, compile_checked
from nautilus.export.manifest import manifest_text
from nautilus.runtime import device
from nautilus.runtime.cuda_driver import Driver
from nautilus.runtime.execute import launched_here, plan_of
from nautilus.runtime.launch import Session
from nautilus.runtime.nvrtc import Compiled
from nautilus.scalar.rewriting import recurrence_teams
from nautilus.tune.explain import explain, text
from tests.api.test_kernel import Fake
from tests.export.test_library import calls, needs_compiler, once, programs

SPEC = """
    dim B = 5, T = 3, H = 64
    input A: f16[B, T, H], U: f16[H, H]
    output h: f16[B, T, H]
    recur h[b, t, i] = tanh(A[b, t, i] + (sum[j](h[b, t - 1, j] * U[j, i]) if t > 0 else 0))
    """
USER = """#include "k.h"
#include <stdio.h>
int main() {
    k_plan plan;
    void* const scratch = (void*)16384;
    if (k_workspace() != 256) return 7;
    for (int n = 0; n < 2; ++n) {
        const int status = k_prepare(&plan, (void*)4096, (void*)8192, (void*)64, scratch, (cudaStream_t)5);
        if (status) return status;
    }
    printf("prepared\\n");
    return k_launch_prepared(&plan, (cudaStream_t)5);
}
"""
DEVICES = [({}, True), ({"MULTIPROCESSORS": "1"}, False), ({"ALONE": "1"}, False)]  # environment, whether teams run


@pytest.fixture(autouse=True, scope="module")
def small_teams() -> Iterator[None]:
    """Teams of two blocks of four warps, however short the steps are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrence_teams, "STEP", -99.0)
        patch.setattr(recurrence_teams, "SLICES", (32,))
        patch.setattr(recurrence_teams, "WARPS", (4,))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with its header, a program that uses it, and the driver."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "k.naut").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "run_and_build", once(compiling.run_and_build))
        for name in ("libk.so", "k.h"):
            assert main([str(folder / "k.naut"), "-o", str(folder / name), "--arch", "sm_90a", "-q"]) == 0
    programs(folder, USER, "libk.so")
    return folder


@pytest.fixture(scope="module")
def result() -> Result:
    return compile_checked(Request(Path("k.naut"), "sm_90a", text=SPEC, variants=6))


@needs_compiler
@pytest.mark.parametrize(("env", "teams"), DEVICES)
def test_a_library_asks_the_device_once(folder: Path, env: dict[str, str], teams: bool) -> None:
    lines = calls(folder, "shared", "90", **env)
    symbols = dict(line.split()[1:] for line in lines if line.startswith("kernel "))
    before, launched = (lines[a:b] for a, b in ((0, lines.index("prepared")), (lines.index("prepared") + 1, None)))
    assert [symbols[line.split()[1]] for line in before if line.startswith("occupancy")] == ["k_general__h"]
    found = [symbols[line.split()[1]] for line in launched]
    assert found == (["k_general__h_arrivals_fill", "k_general__h"] if teams else ["k_noncooperative__h"])
    assert [" together " in line for line in launched] == ([False, True] if teams else [False])


def test_the_need_is_stated(result: Result) -> None:
    need = "the device does not run all 2 blocks of spec_general__h at the same"
    assert f"// variant noncooperative where {need}" in result.cuda
    assert "// kernel  spec_general__h: 2 blocks of 128 threads at the same time, " in result.cuda
    assert "// kernel  spec_noncooperative__h: 5 blocks of 256 threads, " in result.cuda
    assert "needs a device that runs all 2 blocks of k__h at the same time; on others" in text(
        explain(Request(Path("k.naut"), "sm_90a", text=SPEC, variants=6, name="k"), every=False)
    )


@pytest.mark.parametrize(("env", "teams"), DEVICES)
def test_a_kernel_in_python_launches_what_the_device_runs(
    result: Result, env: dict[str, str], teams: bool, stand_in: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    about = json.loads(manifest_text(result.choice, b""))
    assert about["dispatch"] == {"if": ["co_resident", 0], "then": 0, "else": 1}
    given = Fake(4096, (5, 3, 64)), Fake(8192, (64, 64))
    kernel = Kernel(about, b"cubin", Driver(stand_in), stand_in)
    ready = kernel.prepare(*given, out=Fake(64, (5, 3, 64)), stream=0)
    found = [s.kernel.split("__")[0] for s in ready.prepared.steps]
    assert found == (2 * ["spec_general"] if teams else ["spec_noncooperative"])
    alone = Kernel({**about, "dispatch": 0, "variants": about["variants"][:1]}, b"cubin", Driver(stand_in), stand_in)
    refused = pytest.raises(ToolchainError, match="needs all 2 blocks of spec_general__h at the same time")
    with nullcontext() if teams else refused:
        alone.prepare(*given, out=Fake(64, (5, 3, 64)), stream=0)


def test_the_runtime_launches_what_the_device_runs(
    result: Result, stand_in: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_driver", lambda: Driver(stand_in))
    every, cubin = plan_of(result.launched({}), {}), Compiled("sm_90a", "cubin", b"cubin", "", ())
    with Session(b"cubin", every, "sm_90a"):
        assert launched_here(result, {}, cubin).name == "spec_general"
    monkeypatch.setenv("MULTIPROCESSORS", "1")
    with monkeypatch.context() as two:
        two.setenv("RESIDENT", "2")  # blocks on a multiprocessor
        assert launched_here(result, {}, cubin).name == "spec_general"
    assert launched_here(result, {}, cubin).name == "spec_noncooperative"
    with pytest.raises(ToolchainError, match="needs all of its 2 blocks at the same time; the GPU runs 1"):
        Session(b"cubin", every, "sm_90a")
