"""Peers on the CPU, where torch is installed: each one that applies computes what the spec says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.bench.contenders import Absent
from nautilus.bench.inputs import random_inputs
from nautilus.bench.peers import library
from nautilus.bench.peers.library import Setting, contenders, whole
from nautilus.bench.peers.torch_env import from_numpy, load_torch
from nautilus.bench.verify import judge, references
from nautilus.check.bound.stated import stated
from nautilus.check.compare import relative
from nautilus.core.numerics import Array, from_storage
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Spec
from tests.bench.test_restrict import numbers, small
from tests.shipped import IDS, ROOT, SPECS

MQA = """dim B = 2, H = 3, M = 24, N = 24, D = 8
input Q: f16[B, M, H, D]
input K: f16[B, N, D]
input V: f16[B, N, D]
input slope: f32[H]
output O: f16[B, M, H, D]
O[b, i, h, d] = sum[j](V[b, j, d] * softmax[j | {mask}](sum[e](K[b, j, e] * Q[b, i, h, e]) / 4 {more}))
"""
TEXTS = {
    "mqa": MQA.format(mask="j <= i", more=""),
    "mqa alibi": MQA.format(mask="j <= i", more="+ slope[h] * (j - i)"),
    "mqa heads see different keys": MQA.format(mask="j <= i + h", more=""),
}


def setting(spec: Spec, torch: Any) -> tuple[Setting, dict[str, Array]]:
    raw = random_inputs(spec, 0, {})
    tensors = {t.name: from_numpy(torch, raw[t.name], t.dtype, "cpu") for t in spec.inputs}
    return Setting(torch, spec, numbers(spec), tensors, "cpu"), raw


def check(spec: Spec, torch: Any, names: tuple[str, ...]) -> dict[str, str]:
    """The result of each peer: ``ok``, or the reason why it does not apply."""
    made, raw = setting(spec, torch)
    known = references(spec, raw, numbers(spec), stated(spec), 0, lambda: whole(made))
    out: dict[str, str] = {}
    for c in contenders(made, names):
        if isinstance(c, Absent):
            out[c.name] = c.reason
            continue
        assert c.result is not None
        verdict = judge(known, c.result(), is_peer=True)
        out[c.name] = "ok" if verdict.ok else verdict.detail
    return out


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch without its compiler, because the tests look at the call that is made."""
    module = pytest.importorskip("torch")
    monkeypatch.setattr(module, "compile", lambda f, **_: f)
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", SPECS, ids=IDS)
def test_shipped_specs(path: Path, torch: Any) -> None:
    found = check(small(path), torch, ("fa2", "flex", "cublas", "compile", "torch"))
    assert found.pop("compile") == "ok"
    assert found.pop("torch") in ("ok", "not applicable: it makes the same calls as cublas")
    assert (found["cublas"] == "ok") == (path.parent.name == "matmul" and path.stem not in ("bias_gelu", "swiglu"))
    attention = path.parent.name == "attention"
    assert (found["flex"] == "ok") == attention, found
    plain = attention and path.stem.split("_")[0] in ("causal", "global", "gqa")
    assert (found["fa2"] == "ok") == plain, found
    assert all(x == "ok" or x.startswith("not applicable: ") for x in found.values()), found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_other_layouts(text: str, torch: Any) -> None:
    found = check(load_text(text), torch, ("fa2", "flex", "torch"))
    assert found["flex"] == found["torch"] == "ok", found
    assert (found["fa2"] == "ok") == (text == TEXTS["mqa"]), found


def test_a_failing_library_is_absent_with_the_reason(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: Setting) -> Any:
        raise RuntimeError("No available kernel.\nAborting.")

    monkeypatch.setattr(library, "BUILDERS", {"fa2": breaks})
    made, _ = setting(load_text(TEXTS["mqa"]), torch)
    assert contenders(made, ("fa2",)) == [Absent("fa2", "failed: RuntimeError: No available kernel.")]


def test_a_library_that_is_not_installed_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Setting) -> Any:
        raise ModuleNotFoundError("No module named 'flash_attn_interface'")

    monkeypatch.setattr(library, "BUILDERS", {"fa3": missing})
    stub = SimpleNamespace(_dynamo=SimpleNamespace(reset=lambda: None))
    made = contenders(Setting(stub, load_text(TEXTS["mqa"]), {}, {}), ("fa3",))
    assert made == [Absent("fa3", "not installed: No module named 'flash_attn_interface'")]


def test_the_whole_in_pieces(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_LARGEST", 700)
    spec = small(next(p for p in SPECS if p.stem == "window_prefill"))
    made, raw = setting(spec, torch)
    arrays: Mapping[str, Array] = {t.name: from_storage(raw[t.name], t.dtype) for t in spec.inputs}
    found = whole(made)
    assert found is not None
    assert relative(np.asarray(found["O"], np.float64), run_spec(spec, arrays)["O"]) < 1e-6


def test_without_torch_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", missing)
    assert load_torch() == "not installed: No module named 'torch'"


@pytest.mark.filterwarnings("ignore")
def test_operands_that_a_spec_computes_first(torch: Any) -> None:
    sizes = {"B": 2, "Hq": 4, "Hkv": 2, "M": 24, "N": 24, "D": 16}
    spec = load_spec(ROOT / "specs" / "models" / "qk_norm.naut", dims=sizes)
    assert check(spec, torch, ("fa2", "flex")) == {"fa2": "ok", "flex": "ok"}
