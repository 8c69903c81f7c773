"""The files of outputs that are more than a text of the compiler: headers, libraries, manifests and their callers."""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.cuda.variants import variants_plan_bytes
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
    if form in LIBRARIES:
        comment = "\n".join(contract(result.cuda_module, result.modules["ma-tile"]))
        return {"": compile_library(library_text(_parts(made), comment), form, host_compiler)}
    if form == "tvm-ffi":
        options = tvm_headers().options
        text = tvm_ffi_text(_parts(made), "\n".join(contract(result.cuda_module, result.modules["ma-tile"])))
        return {"": compile_library(text, "so", host_compiler, options)}
    if form == "jax":
        said = contract(result.cuda_module, result.modules["ma-tile"])
        options = jax_headers()
        library = compile_library(jax_text(_parts(made), "\n".join(said)), "so", host_compiler, options)
        return {"": jax_module(result.modules["ma-tile"], said).encode(), BESIDE: library}
    if form == "torch":
        module = result.modules["ma-tile"]
        text = torch_module(module, contract(result.cuda_module, module))
        return {"": text.encode(), BESIDE: built(made, "so", host_compiler)[""]}
    if form == "h":
        modules = [r.modules["ma-tile"] for r, _ in made]
        size = max(library_plan_bytes(modules), *(variants_plan_bytes(r.printed) for r, _ in made))
        return {"": header_file(result.cuda_module, modules[0], size).encode()}
    assert cubin is not None
    about = manifest_text(result.modules["ma-tile"], cubin.data).encode()
    return {"": cubin.data, MANIFEST: about} if form == "cubin" else {"": about}


def _parts(made: Sequence[tuple[Result, Compiled | None]]) -> list[Part]:
    return [Part(r.context.arch, r.modules["ma-tile"], c.data) for r, c in made if c is not None]
