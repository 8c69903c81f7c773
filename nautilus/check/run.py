"""The entry point of the command line to :mod:`nautilus.check.check`."""

from __future__ import annotations

from nautilus.check.check import check_spec
from nautilus.check.report import Report
from nautilus.driver import Request


def check(request: Request, *, seed: int = 0, device: str = "auto", full_size: bool = False) -> Report:
    """Check one compilation; see :func:`nautilus.check.check.check_spec`."""
    return check_spec(request, seed=seed, device=device, full_size=full_size)
