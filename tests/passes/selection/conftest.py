"""The product of :mod:`.products` and its variants, compiled once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautilus.driver import Request, Result, compile_file, compile_variant
from nautilus.passes.compilation import Variants
from nautilus.passes.selection.variants import find
from tests.passes.selection.products import PRODUCT, request


@pytest.fixture(scope="package")
def product() -> tuple[Request, Result]:
    made = replace(request(PRODUCT), variants=6)  # few rows alone have several plans
    return made, compile_file(made)


@pytest.fixture(scope="package")
def found(product: tuple[Request, Result]) -> Variants:
    made = find(*product, compile_variant)
    assert made is not None
    return made
