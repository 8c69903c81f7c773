"""The product of :mod:`.products`, its variants, and the compilations of all candidates, made once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautilus.driver import Request, Result, compile_file, compile_variant
from nautilus.passes.compilation import Variants
from nautilus.passes.selection.with_variants import with_variants
from tests.passes.selection.products import PRODUCT, Compile, compiled_once, request


@pytest.fixture(scope="package")
def product() -> tuple[Request, Result]:
    made = replace(request(PRODUCT), variants=6)  # few rows alone have several plans
    return made, compile_file(made)


@pytest.fixture(scope="package")
def compiled() -> Compile:
    """``compile_variant``, whose results and refusals the tests share."""
    return compiled_once(compile_variant)


@pytest.fixture(scope="package")
def accepted(product: tuple[Request, Result], compiled: Compile) -> Result:
    """The product with its variants, of which ptxas refuses none."""
    made = with_variants(*product, compiled, lambda made: ())
    assert made is not None and made.variants is not None
    return made


@pytest.fixture(scope="package")
def found(accepted: Result) -> Variants:
    assert accepted.variants is not None
    return accepted.variants
