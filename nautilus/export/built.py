"""The files of outputs that are more than a text of the compiler: headers, libraries, manifests and their callers."""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.driver import Result
from nautilus.export.forms import LIBRARIES, MANIFEST
from nautilus.export.frameworks.jax_module import headers as jax_headers
from nautilus.export.frameworks.jax_module import jax_module, jax_text
from nautilus.export.frameworks.torch_module import BESIDE, torch_module
from nautilus.export.frameworks.tvm_ffi import headers as tvm_headers
from nautilus.export.frameworks.tvm_ffi import tvm_ffi_text
from nautilus.export.header_file import contract, header_file
from nautilus.export.host_compiler import compile_library
from nautilus.export.library import Part, library_plan_bytes, library_text
from nautilus.export.manifest import manifest_text
from nautilus.runtime.nvrtc import Compiled


def built(made: Sequence[tuple[Result, Compiled | None]], form: str, host_compiler: str) -> dict[str, bytes]:
    """The files: the output under the name ``""``, and what is written beside it, by its suffix.

    Raises ToolchainError where a compiler is missing or fails.
    """
    result, cubin = made[0]
    parts = [Part(r.context.arch, r.choice, c.data if c is not None else b"") for r, c in made]
    said = contract(result.cuda_module, parts[0].module)
    if form == "h":
        choices = [p.choice for p in parts]
        size = max(library_plan_bytes(choices), *(c.plan_bytes for c in choices))
        return {"": header_file(result.cuda_module, parts[0].module, size).encode()}
    assert cubin is not None
    if form in LIBRARIES:
        return {"": compile_library(library_text(parts, "\n".join(said)), form, host_compiler)}
    if form == "tvm-ffi":
        options = tvm_headers().options
        return {"": compile_library(tvm_ffi_text(parts, "\n".join(said)), "so", host_compiler, options)}
    if form == "jax":
        options = jax_headers()
        library = compile_library(jax_text(parts, "\n".join(said)), "so", host_compiler, options)
        return {"": jax_module(parts, said).encode(), BESIDE: library}
    if form == "torch":
        return {"": torch_module(parts, said).encode(), BESIDE: built(made, "so", host_compiler)[""]}
    about = manifest_text(result.choice, cubin.data).encode()
    return {"": cubin.data, MANIFEST: about} if form == "cubin" else {"": about}
