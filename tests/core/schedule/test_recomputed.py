"""Names of the kernels that compute a few tiles of another one again."""

from __future__ import annotations

from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.schedule.recomputed import recomputed, recomputing


def test_a_kernel_that_the_schedule_lacks_is_that_of_the_tiles() -> None:
    planned = Schedule(kernels=(KernelPlan("O", ("O",), ()), KernelPlan("L_masked", ("L_masked",), ())))
    assert recomputed(recomputing("O"), planned) == "O"
    assert recomputed("L_masked", planned) == "L_masked", "a kernel of its own"
    assert recomputed("P_masked", planned) == "P_masked", "there is no kernel P"
    assert recomputed("O_masked", None) == "O_masked"
