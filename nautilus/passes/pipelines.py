"""The road as data: every stage, how it is reached, and its passes in order.

A stage owns a text form (suffix, printer, parser) so that a compilation can stop at it, and start
from a dump of it.  Change a pipeline here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PassSpec:
    """A pass by its registry name, with options that override the context's."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    """One level of the road. Code is named as ``"module:attribute"`` and imported when it runs.

    ``lower`` takes the module of the stage above; ``verify`` raises VerifyError; ``format`` and
    ``parse(text, name)`` are the text form.  ``plans``: pass to function; before that pass (its first
    run) ``function(module, schedule)`` adds to the schedule what nobody chose.  ``header(context, module,
    spec)``: the leading comment that ``lower`` takes.  ``plain_is_final``: a file
    without a dump's header is taken to be behind all passes, because they would not do for a finished module.
    """

    name: str
    suffix: str
    lower: str = ""
    passes: tuple[PassSpec, ...] = ()
    verify: str = ""
    format: str = ""
    parse: str = ""
    plans: tuple[tuple[str, str], ...] = ()
    header: str = ""
    plain_is_final: bool = False

    @property
    def step_names(self) -> tuple[str, ...]:
        """A name for every pass, in order; the second run of ``cse`` is ``cse-2``."""
        plain = [p.name for p in self.passes]
        again = [plain[:i].count(name) for i, name in enumerate(plain)]
        return tuple(f"{name}-{n + 1}" if n else name for name, n in zip(plain, again, strict=True))


def _passes(*names: str) -> tuple[PassSpec, ...]:
    return tuple(PassSpec(n) for n in names)


SPEC = Stage(
    "spec",
    ".naut",
    lower="nautilus.frontend.semantics.check:load_spec",
    format="nautilus.frontend.printer:format_spec",
)
SCALAR = Stage(
    "scalar",
    ".scalar",
    lower="nautilus.scalar.lowering:lower",
    passes=_passes(
        *("simplify", "inline", "simplify", "factor", "simplify", "narrow", "dead"),
        *("pack", "split-k-update", "fuse", "split", "reorder", "rolling-update", "partition"),
    ),
    verify="nautilus.scalar.verify:verify",
    format="nautilus.scalar.text:format_program",
    parse="nautilus.scalar.text:parse_program",
    plans=(
        ("inline", "nautilus.scalar.passes.inline:plan_inline"),
        ("pack", "nautilus.planner.cuts:plan_packs"),
        ("split-k-update", "nautilus.planner.cuts:plan_splits"),
        ("fuse", "nautilus.planner.kernels:plan_kernels"),
    ),
)
VR_TILE = Stage(
    "vr-tile",
    ".vr",
    lower="nautilus.vr_tile.lowering.lower:lower",
    passes=_passes(
        *("simplify-masks", "hardware-math", "exp-to-exp2", "div-to-rcp", "fold-scale", "hoist", "cse"),
        *("sink-masks", "contract", "lazy-rescale", "dce"),
    ),
    verify="nautilus.vr_tile.verify:verify",
    format="nautilus.vr_tile.text:format",
    parse="nautilus.vr_tile.text:parse",
)
MA_TILE = Stage(
    "ma-tile",
    ".ma",
    lower="nautilus.ma_tile.lowering.lower:lower",
    passes=_passes(
        *("defer-reductions", "pipeline-copies", "double-buffer-fragments", "prefetch-fragments"),
        *("register-operands", "chunk-epilogue", "tma-stores", "pipeline-mma", "specialise-warps"),
        *("zero-accumulators", "async-mma", "multicast-loads", "persistent-grid", "ping-pong", "sink-indices"),
        *("dead-fragments", "allocate-shared", "synchronize", "tma-loads", "await-copies", "combine-in-block"),
        *("combine-in-cluster", "dependent-launch"),
    ),
    verify="nautilus.ma_tile.verify.module:verify",
    format="nautilus.ma_tile.text.printer:format",
    parse="nautilus.ma_tile.text.printer:parse",
    plain_is_final=True,
)
CUDA = Stage(
    "cuda",
    ".cu",
    lower="nautilus.cuda.emit:emit_module",
    format="nautilus.driver:as_text",
    header="nautilus.header:header",
)

STAGES: tuple[Stage, ...] = (SPEC, SCALAR, VR_TILE, MA_TILE, CUDA)
STAGE_NAMES: tuple[str, ...] = tuple(s.name for s in STAGES)


def stage(name: str) -> Stage:
    """The stage called ``name``. Raises KeyError."""
    for s in STAGES:
        if s.name == name:
            return s
    raise KeyError(name)


def listing() -> str:
    """The stages and their passes in order, one stage a line."""
    lines = []
    for s in STAGES:
        names = ", ".join(p.name for p in s.passes)
        lines.append(f"{s.name} ({s.suffix})" + (f": {names}" if names else ""))
    return "\n".join(lines) + "\n"
