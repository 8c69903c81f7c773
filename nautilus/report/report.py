"""The report of a finished compilation."""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.errors import InputError
from nautilus.cost.model import estimate
from nautilus.cost.roofline import roofline
from nautilus.passes.compilation import Result
from nautilus.passes.pipelines import CUDA, MA_TILE, SPEC
from nautilus.remarks.remark import Remark
from nautilus.remarks.remarks import Watch
from nautilus.report.history import History
from nautilus.report.links import linked
from nautilus.report.page import page


def report(result: Result, history: History, watch: Watch, found: Sequence[Remark]) -> str:
    """The HTML text. Raises InputError for a compilation of a dump, or one that ended before CUDA C++."""
    planned = watch.planned
    if {SPEC.name, CUDA.name} - result.modules.keys() or planned is None:
        raise InputError("a report needs a spec (.naut) that is compiled to CUDA C++")
    module = result.modules[MA_TILE.name]
    predicted = estimate(module, result.context.arch)
    title = f"{result.modules[SPEC.name].name} for {result.context.arch}"
    roof = roofline(planned, predicted, result.context.arch)
    texts = linked(result.modules)
    return page(title, texts, history.changes, module, predicted, roof, [r.diagnostic() for r in found])
