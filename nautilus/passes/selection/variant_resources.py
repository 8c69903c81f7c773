"""What ptxas reports of the kernels of variants, each of which it assembles once.

The kernels of the general variant are those of the compilation without variants, which ptxas has assembled.  Kernels
without wgmma instructions that need few registers are not assembled, nor are those for unaligned tensors without wgmma
instructions: they are kept with spilled registers (:mod:`.variants`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nautilus.core.records import dataclass
from nautilus.cost.registers import may_spill
from nautilus.cuda.module import CudaModule
from nautilus.cuda.names import kernel_symbols
from nautilus.cuda.variants import lower_kernels
from nautilus.ma_tile.analysis.consumers import uses_wgmma
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.passes.attempts import Resources
from nautilus.passes.compilation import Result
from nautilus.targets.limits import limits


@dataclass(frozen=True, slots=True)
class _Known:
    """The resources of a kernel that ptxas has assembled under another symbol."""

    kernel: str
    registers: int
    spill_stores: int


def variant_resources(
    made: Result, whole: MemModule, known: Sequence[Resources],
    check: Callable[[CudaModule, str], tuple[str, Sequence[Resources]]],
) -> list[Resources]:  # fmt: skip
    """The resources of the kernels of ``made``'s variants, as far as they are in doubt, under their symbols.

    ``whole``: the module without variants; ``known``: the resources of its kernels; ``check``: runs ptxas.  Raises
    ScheduleError where ptxas serialises wgmma instructions.
    """
    assert made.variants is not None
    arch, unaligned = made.context.arch, made.variants.unaligned
    same = [v.module for v in made.variants.all if v.module.kernels == whole.kernels]
    others = [v for v in made.variants.all if v.module.kernels != whole.kernels]
    doubtful = [
        v.module
        for v in others
        if any(map(uses_wgmma, v.module.kernels)) or (v is not unaligned and may_spill(v.module, limits(arch)))
    ]
    found: list[Resources] = [*check(lower_kernels(doubtful), arch)[1]] if doubtful else []
    names = kernel_symbols(whole)
    for module in same:
        symbols = {kernel: symbol for symbol, kernel in kernel_symbols(module).items()}
        found += [_Known(symbols[names[r.kernel]], r.registers, r.spill_stores) for r in known]
    return found
