"""The report of a finished compilation."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nautilus.core.errors import InputError
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.cost.model import estimate
from nautilus.cost.roofline import roofline
from nautilus.cuda.text.statements import Statements
from nautilus.ma_tile.interp.state.machine import InterpError
from nautilus.passes.compilation import Result
from nautilus.passes.pipelines import CUDA, MA_TILE, SPEC
from nautilus.remarks.remark import Remark
from nautilus.remarks.remarks import Watch
from nautilus.report.history import History
from nautilus.report.links import linked
from nautilus.report.page import page
from nautilus.report.timeline.picture import picture
from nautilus.report.timeline.run import timeline
from nautilus.report.timeline.slices import Timeline
from nautilus.report.timeline.trace import trace
from nautilus.report.tuning import stored, tuning

_SLICES = 6000  # slices of all timelines of a report


@dataclass(frozen=True, slots=True)
class NoTimeline:
    """Kernel ``kernel`` has no timeline, for the reason ``reason``."""

    kernel: str
    reason: str


def report(result: Result, history: History, watch: Watch, found: Sequence[Remark]) -> str:
    """The HTML text. Raises InputError for a compilation of a dump, or one that ended before CUDA C++."""
    whole = watch.whole
    if {SPEC.name, CUDA.name} - result.modules.keys() or whole is None:
        raise InputError("a report needs a spec (.naut) that is compiled to CUDA C++")
    module = result.modules[MA_TILE.name]
    predicted = estimate(module, result.context.arch)
    title = f"{result.modules[SPEC.name].name} for {result.context.arch}"
    roof = roofline(whole, predicted, result.context.arch)
    texts = linked(result.modules)
    marks = Statements.of(result.modules[SPEC.name])
    number = {d.name: n for n, d in enumerate(marks.all)}

    def owner(span: Span) -> int:
        at = marks.at(span)
        return -1 if at is None else number[at.name]

    pictures = [
        picture(t, owner) if isinstance(t, Timeline) else f"<p>{t.kernel} has no timeline: {escape(t.reason)}</p>"
        for t in timelines(result)
    ]
    measured = tuning(stored(result.modules[SPEC.name], result.context))
    said = [r.diagnostic() for r in found]
    return page(title, texts, history.changes, module, predicted, roof, said, pictures, measured)


def timelines(result: Result) -> list[Timeline | NoTimeline]:
    """The timeline of a block of each kernel, in the order of the launches."""
    module, arch = result.modules[MA_TILE.name], result.context.arch
    out: list[Timeline | NoTimeline] = []
    for kernel, predicted in zip(module.kernels, estimate(module, arch).kernels, strict=True):
        try:
            out.append(timeline(module, kernel, predicted, arch, max(500, _SLICES // len(module.kernels))))
        except InterpError as error:
            out.append(NoTimeline(kernel.name, str(error)))
    return out


def trace_of(result: Result) -> str:
    """The timelines as a trace. Raises InputError for a compilation without kernels."""
    if MA_TILE.name not in result.modules:
        raise InputError("a trace needs a compilation to kernels")
    found = timelines(result)
    module, missing = result.modules[MA_TILE.name], [t.kernel for t in found if isinstance(t, NoTimeline)]
    about = {"module": module.name, "arch": result.context.arch, "times": "predicted", "without": missing}
    return trace([t for t in found if isinstance(t, Timeline)], about)
