"""The entry point of the command line to :mod:`nautilus.check.check`."""

from __future__ import annotations

from dataclasses import replace

from nautilus.check.check import check_spec
from nautilus.check.report import Report
from nautilus.driver import Request, compile_checked
from nautilus.passes.selection.variants import GENERAL, UNALIGNED


def check(request: Request, *, seed: int = 0, device: str = "auto", full_size: bool = False) -> Report:
    """Check one compilation, and every variant of it; see :func:`nautilus.check.check.check_spec`."""
    one = replace(request, variants=1)
    report = check_spec(one, seed=seed, device=device, full_size=full_size)
    found = compile_checked(replace(request, keep_runtime=True)).variants if request.variants > 1 else None
    for v in found.all if found is not None else ():
        if v.name != GENERAL:
            own = replace(one, schedule=v.schedule, assumed=v.assumed)
            changed = replace(one, unaligned=True) if v.name == UNALIGNED else own
            checked = check_spec(changed, seed=seed, device=device, full_size=full_size)
            report.outcomes += (replace(o, subject=f"{o.subject} of variant {v.name}") for o in checked.outcomes)
    return report
