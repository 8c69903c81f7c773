"""What ptxas reports of the kernels of a compilation and of its variants, each of which it assembles once.

Most kernels of the general variant are those of the compilation without variants, which ptxas has assembled, and
variants have kernels in common.  Kernels that are not in doubt (:mod:`.assembly`) are not assembled, nor are those
without wgmma instructions of the variants for unaligned tensors and for non-cooperative launches: they are kept with
spilled registers (:mod:`.with_variants`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import TypeAlias

from nautilus.core.errors import AssemblerError, ScheduleError, UnsupportedError
from nautilus.core.records import dataclass
from nautilus.cuda.module import CudaModule
from nautilus.cuda.names import kernel_symbols
from nautilus.cuda.variants import lower_kernels
from nautilus.ma_tile.analysis.consumers import uses_wgmma
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.passes.attempts import Lower, Resources, note_spills
from nautilus.passes.compilation import Request, Result
from nautilus.passes.loading import load
from nautilus.passes.pipelines import CUDA, MA_TILE, SPEC
from nautilus.passes.selection.assembly import doubtful, text_of

Check: TypeAlias = Callable[[CudaModule, str], "tuple[str, Sequence[Resources]]"]


@dataclass(frozen=True, slots=True)
class _Known:
    """The resources of a kernel that ptxas has assembled under another symbol."""

    kernel: str
    registers: int
    spill_stores: int


@dataclass
class KernelResources:
    """The resources of kernels that ptxas has assembled, whatever their symbols are, and those that it refused."""

    found: list[tuple[MemKernel, Resources]] = field(default_factory=list)
    refused: list[MemKernel] = field(default_factory=list)

    def add(self, module: MemModule, resources: Iterable[Resources]) -> None:
        """Remember what ptxas said of kernels of ``module``."""
        kernels = {symbol: k for k in module.kernels for symbol in _symbols(module, k)}
        self.found += [(kernels[r.kernel], r) for r in resources if r.kernel in kernels]

    def of(self, kernel: MemKernel) -> Resources | None:
        """The resources of an equal kernel; None where ptxas has assembled none."""
        return next((r for k, r in self.found if k is kernel or k == kernel), None)

    def note_refused(self, modules: Iterable[MemModule], error: ScheduleError) -> None:
        """Remember the kernel of ``modules`` that ``error`` names."""
        self.refused += [k for m in modules for k in m.kernels if f"{m.name}.{k.name}" == error.kernel]

    def refuse_known(self, module: MemModule, kernels: Iterable[MemKernel]) -> None:
        """Raise AssemblerError for one of ``kernels`` of ``module`` that equals a kernel which ptxas refused."""
        for k in kernels:
            if k in self.refused:
                raise AssemblerError("ptxas refused an equal kernel", kernel=f"{module.name}.{k.name}")


class Checked:
    """What ptxas reports of the kernels in doubt of the last attempt of ``request``, and of its variants.

    ``check`` names what runs ptxas, which is loaded where it is needed, as few compilations to text do.
    ``to_ma_tile``: a result with the modules down to MA-tile IR; None where no lowering leads there.
    """

    def __init__(self, request: Request, check: str, to_ma_tile: Lower) -> None:
        self.request, self._check, self.to_ma_tile = request, check, to_ma_tile
        self.known = KernelResources()

    def check(self, module: CudaModule, arch: str) -> tuple[str, tuple[Resources, ...]]:
        """What ptxas reports of ``module``, and why it was not asked."""
        found: tuple[str, tuple[Resources, ...]] = load(self._check)(module, arch)
        return found

    def accept(self, result: Result) -> None:
        """Raise ScheduleError for a kernel that ptxas makes slow.

        A result whose text follows may have a kernel without one: the lowering to text then says where it fails.
        """
        request = self.request
        emitted = request.is_spec or request.until == CUDA.name
        whole = self.to_ma_tile(result, request.until) if emitted else None
        kernels = () if whole is None else doubtful(whole.modules[MA_TILE.name], whole.context.arch)
        if whole is None or not kernels:
            return
        module = whole.modules[MA_TILE.name]
        try:
            text = text_of(module, kernels, whole.modules.get(SPEC.name))
        except UnsupportedError:
            if request.until == CUDA.name and CUDA.name not in result.modules:
                return
            raise
        try:
            reason, found = self.check(text, whole.context.arch)
            self.known.add(module, found)
            result.unchecked = reason if any(map(uses_wgmma, kernels)) else ""
            note_spills(request, result, text, found)
        except ScheduleError as error:
            if not request.gives_kernels:
                raise
            result.ptxas_failure = str(error)

    def assemble(self, made: Result) -> list[Resources]:
        """The resources of the kernels in doubt of all variants of ``made``."""
        return variant_resources(made, self.known, self.check)


def variant_resources(made: Result, known: KernelResources, check: Check) -> list[Resources]:
    """The resources of the kernels of ``made``'s variants, as far as they are in doubt, under their symbols.

    ``known``: those of kernels that were assembled before, to which this adds; ``check``: runs ptxas.  Raises
    ScheduleError where ptxas serialises wgmma instructions.
    """
    assert made.variants is not None
    arch, sized = made.context.arch, len(made.variants.sized)
    asked = [(v.module, doubtful(v.module, arch, n < sized)) for n, v in enumerate(made.variants.all)]
    todo = [(m, tuple(k for k in kernels if known.of(k) is None)) for m, kernels in asked]
    for m, kernels in todo:
        known.refuse_known(m, kernels)
    if parts := [(m, kernels) for m, kernels in todo if kernels]:
        try:
            resources = check(lower_kernels(parts, made.modules.get(SPEC.name)), arch)[1]
        except ScheduleError as error:
            known.note_refused((m for m, _ in parts), error)
            raise
        for m, _ in parts:
            known.add(m, resources)
    return [r for m, kernels in asked for k in kernels for r in _renamed(m, k, known)]


def _renamed(module: MemModule, kernel: MemKernel, known: KernelResources) -> Iterator[Resources]:
    found = known.of(kernel)
    if found is not None:
        yield from (_Known(symbol, found.registers, found.spill_stores) for symbol in _symbols(module, kernel))


def _symbols(module: MemModule, kernel: MemKernel) -> list[str]:
    """The symbol of ``kernel`` in ``module``."""
    return [symbol for symbol, name in kernel_symbols(module).items() if name == kernel.name]
