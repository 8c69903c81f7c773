"""The rows of an evaluation: one line of JSON for each measurement; the last line of a case counts.

A row has the key and the sizes of its case, what the compiler says (``predicted_us``, ``limit_us``, ``kernels``), our
time and verdict, and each peer with its time and either a ratio or the reason why there is none.  ``failure`` stands in
a row without a time of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nautilus.bench.contenders import OURS
from nautilus.bench.count import flops, total_bytes
from nautilus.bench.rows import Row, read_rows
from nautilus.cost.model import estimate
from nautilus.driver import Result
from nautilus.evaluation.cases import Case
from nautilus.frontend.spec import Spec
from nautilus.targets.rates import machine


def read(file: Path) -> dict[str, Row]:
    """The rows of ``file`` by key, the last one of each."""
    return {row["key"]: row for row in read_rows(file) if "key" in row}


def started(case: Case, arch: str) -> Row:
    """The part of a row that the case gives."""
    return {
        "key": case.key, "group": case.group, "batch": case.batch, "length": case.length, "spec": case.spec,
        "dims": dict(case.dims), "arch": arch,
    }  # fmt: skip


def predicted(result: Result) -> Row:
    """The part of a row that the compiler gives."""
    module, arch, spec = result.modules["ma-tile"], result.context.arch, result.modules["spec"]
    return {
        "kernels": len(module.kernels),
        "predicted_us": estimate(module, arch).seconds * 1e6,
        "limit_us": limit(spec, arch) * 1e6,
        "flops": flops(spec, {}),
    }


def limit(spec: Spec, arch: str) -> float:
    """Seconds that the operations take at the rate of the matrix units, or the bytes at that of memory, if longer.

    The rates are those of ``arch`` in ``targets``; where an input has floats of 8 bits, that of such operands, which is
    twice the rate of 16 bits: no kernel takes less time.
    """
    m = machine(arch)
    rate = m.multiprocessors * m.clock * m.tensor_half * (2.0 if any(t.dtype.is_float8 for t in spec.inputs) else 1.0)
    return max(flops(spec, {}) / rate, total_bytes(spec, {}) / m.dram_read)


def measured(report: Mapping[str, Any]) -> Row:
    """The part of a row that a benchmark gives, from its JSON data."""
    entries = {c["name"]: c for c in report["contenders"] if not c["ceiling"]}
    ours = entries.pop(OURS)
    cool, check = ours["cool"], ours["check"]
    return {
        "ok": report["ok"],
        "us": cool["us"] if cool else None,
        "spread": cool["spread"] if cool else None,
        "tflops": cool["tflops"] if cool else None,
        "error": check["error"] if check else None,
        "detail": check["detail"] if check else "",
        "peers": {
            n: {
                "us": c["cool"]["us"] if c["cool"] else None,
                "ratio": c["ratio_cool"],
                "refused": c["refused_cool"],
            }
            for n, c in entries.items()
        },
        "absent": {a["name"]: a["reason"] for a in report["absent"]},
        "ceilings": {c["name"]: c["cool"] for c in report["contenders"] if c["ceiling"]},
        "device": report["device"],
        "torch": report["torch"],
        "compared_with": report["compared_with"],
    }


def finished(row: Row) -> bool:
    """Whether a row needs no further measurement: no failure, and no ratio refused for disturbed times."""
    return "failure" not in row and not any("spread" in (p["refused"] or "") for p in row["peers"].values())
