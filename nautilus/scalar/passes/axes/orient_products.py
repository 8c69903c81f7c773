"""``orient-products``: the second factor of a matrix product has the last axis of the result.

``sum[k](B[k, j] * A[i, k])`` is ``sum[k](A[i, k] * B[k, j])``: the columns of an accumulator are then contiguous in the
result, so that a thread stores several of them at once, whichever factor a spec writes first.  Floating-point
multiplication is commutative, so every bit stays the same.

A product that reads another reduction keeps its order: rows of the inner product are rows of the outer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Expr, Op
from nautilus.core.expr.products import matrix_product
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, kernel_of


@dataclass(frozen=True, slots=True)
class OrientProducts(CertifyingPass[Program]):
    """Exchange the factors of every matrix product whose first one has the last axis of the result."""

    name = "orient-products"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with its factors in order, and a certificate for each product that changed."""
        defs = find_defs(program)
        made = {name: value for name, d in defs.items() if (value := exchanged(d, defs)) is not None}
        if not made:
            return program, ()
        proof = "multiplication is commutative"
        certificates = [
            Certificate("orient-products", name, defs[name].value, value, (), (), (), proof, defs[name].span)
            for name, value in made.items()
        ]
        kernels = (
            kernel_of(replace(defs[k.name], value=made[k.name])) if k.name in made else k for k in program.kernels
        )
        return replace(program, kernels=tuple(kernels)), tuple(certificates)


def exchanged(d: Def, defs: Mapping[str, Def]) -> Expr | None:
    """The element of ``d`` with its factors exchanged; None where they stay."""
    value, product = d.value, matrix_product(d.value, [a.name for a in d.par])
    if d.op != "sum" or product is None or not (isinstance(value, Op) and value.dtype.is_float):
        return None
    turned = d.par[-1].name in product.rows and any(x.name in product.shared for x in d.red)
    chained = any(defs[ld.buffer].is_reduction for ld in d.reads() if ld.buffer in defs)
    return replace(value, args=value.args[::-1]) if turned and not chained else None
