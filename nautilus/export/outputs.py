"""The files of an output, from the results of a compilation for each architecture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nautilus.driver import Result
from nautilus.export.forms import TEXTS, UNTIL
from nautilus.passes.dumps import dump_header
from nautilus.passes.loading import load
from nautilus.passes.manager import steps
from nautilus.passes.pipelines import STAGES

if TYPE_CHECKING:
    from nautilus.runtime.nvrtc import Compiled


def outputs(
    made: Sequence[tuple[Result, Compiled | None]], form: str, host_compiler: str = "", part: bool = False
) -> dict[str, bytes]:
    """The files: the output under the name ``""``, and what is written beside it, by its suffix.

    ``part``: of one spec, for a file with several.

    Raises ToolchainError where a compiler is missing or fails.
    """
    if form in TEXTS:
        return {"": _text(made[0][0], form)}
    from nautilus.export.built import built  # seldom needed, and a compilation to text is quick

    return built(made, form, host_compiler, part)


def _text(result: Result, form: str) -> bytes:
    """The output in ``form``; ``json`` is the schedule for ``--schedule``."""
    if form == "cu":
        return result.cuda.encode()
    if form == "json":
        schedule = result.context.schedule
        return (schedule.to_json() if schedule is not None else "null\n").encode()
    if form == "ptx":
        from nautilus.runtime.nvrtc import build

        return build(result.cuda_module, result.context.arch, form).data
    stage = next(s for s in STAGES if s.name == UNTIL[form])
    text: str = load(stage.format)(result.modules[stage.name])
    return (dump_header(stage, steps(stage)[-1].name, result.context) + text).encode()
