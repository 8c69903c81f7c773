"""``scale-products``: gives products of 8-bit floats with scales for groups of terms the form ``(a * b) * scale``.

The planner then gives the reduction loop steps that lie within a group, and VR-tile IR multiplies the sum of a step by
the scale (``scalar.analysis.contractions.scales``).  ``narrow`` leaves such a product alone, because its operands are
tensors as they are.  Over the reals, multiplication is commutative and associative.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Expr, free_vars
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.scales import scaled_product
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, kernel_of


@dataclass(frozen=True, slots=True)
class ScaleProducts(CertifyingPass[Program]):
    """Separate the scales of every such product from its tensors."""

    name = "scale-products"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with products in that form, and a certificate for each one that changed."""
        defs = find_defs(program)
        made = {name: value for name, d in defs.items() if (value := _separated(d)) is not None}
        if not made:
            return program, ()
        certificates = (
            Certificate(self.name, name, defs[name].value, value, (), (), (), _PROOF, defs[name].span)
            for name, value in made.items()
        )
        kernels = (
            kernel_of(replace(defs[k.name], value=made[k.name])) if k.name in made else k for k in program.kernels
        )
        return replace(program, kernels=tuple(kernels)), tuple(certificates)


_PROOF = "multiplication is commutative and associative"


def _separated(d: Def) -> Expr | None:
    """The element of ``d`` in that form, the tensor with the last axis of the result second; None where it has it."""
    found = scaled_product(d)
    if found is None:
        return None
    last, (a, b) = d.par[-1].name, found.product.args
    if last in free_vars(a) and last not in free_vars(b):
        found = replace(found, product=replace(found.product, args=(b, a)))
    return None if found.element == d.value else found.element
