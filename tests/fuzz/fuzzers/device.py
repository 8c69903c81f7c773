"""The fuzzer of kernels: a spec runs on the GPU of this machine, and its results are compared with the Spec in float64.

Each case takes the next one of the generators of specs.  Half of the cases are compiled as if their tensors were large.
Without a GPU there is no such fuzzer.  On a machine with several GPUs each process uses one of them.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

from nautilus.core.errors import ToolchainError
from nautilus.driver import Request, build_cubin
from nautilus.runtime.device import default_arch, open_device
from nautilus.runtime.execute import run_cuda
from tests.endtoend.support import Compilation, disagreements
from tests.fuzz.case import Fuzzer, Verdict
from tests.fuzz.fuzzers.levels import any_spec, inputs, or_verdict, precision, verdict
from tests.fuzz.minimise import smaller_spec
from tests.fuzz.specs import GENERATORS
from tests.fuzz.thresholds import lowered


def attempt(text: str, seed: int) -> Verdict:
    """The verdict on the kernels of a spec on the GPU."""
    request = Request(Path("given.naut"), default_arch(), text=text, precision=precision(seed))
    with lowered() if seed // len(GENERATORS) % 2 else nullcontext():
        built = or_verdict(lambda: build_cubin(request))
        if isinstance(built, Verdict):
            return built
        made = Compilation(built[0], ())
        given = inputs(made, seed)
        try:
            got = run_cuda(made.result, given.arrays, {**given.scalars, **given.sizes}, built[1])
        except ToolchainError as error:
            return Verdict("wrong", "fault", str(error)[:600])
    return verdict(made, given.kind, disagreements(made, given, [("device", got)]))


def fuzzers() -> tuple[Fuzzer, ...]:
    _choose_gpu()
    try:
        open_device()
    except ToolchainError:
        return ()
    return (Fuzzer("device", any_spec, attempt, smaller_spec),)


def _choose_gpu() -> None:
    """Make one GPU visible to this process, unless the user or an earlier call has chosen."""
    gpus = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    if len(gpus) > 1:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", gpus[os.getpid() % len(gpus)].removeprefix("nvidia"))
