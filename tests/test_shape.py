"""The shape of the code: import direction, size ratchet, start-up cost, operator names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "nautilus"
MAX_FILE, MAX_FUNCTION = 500, 60

#: The road; a level may import those before it. Only X/lower.py and tests of it need the level above.
LEVELS = ["core", "frontend", "scalar", "tile", "memory", "cuda"]

#: "file" or "file:function" -> lines allowed. Shrink it, never grow it without a reason beside it.
EXCEPTIONS: dict[str, int] = {}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "nautilus":
                yield from (f"nautilus.{a.name}" for a in node.names)


def wrong_imports(name: str, text: str) -> list[str]:
    """Imports of ``name`` (a path inside the package) that go against the road."""
    level = name.split("/")[0]
    if level not in LEVELS:
        return []
    allowed = {"core", *LEVELS[: LEVELS.index(level) + 1]}
    bad = []
    for module in imports(ast.parse(text)):
        parts = module.split(".")
        if parts[0] == "nautilus" and len(parts) > 1 and parts[1] not in allowed:
            bad.append(f"{name} imports {module}")
    return bad


def too_large(name: str, text: str) -> list[str]:
    """Files and functions of ``name`` beyond the limits."""
    found = []
    lines = len(text.splitlines())
    if lines > EXCEPTIONS.get(name, MAX_FILE):
        found.append(f"{name} has {lines} lines")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > EXCEPTIONS.get(f"{name}:{node.name}", MAX_FUNCTION):
                found.append(f"{name}:{node.name} has {length} lines")
    return found


def test_import_direction() -> None:
    assert [b for p in sources() for b in wrong_imports(name_of(p), p.read_text())] == []


def test_sizes() -> None:
    assert [b for p in sources() for b in too_large(name_of(p), p.read_text())] == []


def test_no_operator_names_below_the_specs() -> None:
    """General rules, no special cases: identifiers and strings name no operator."""
    pattern = re.compile(r"attention|softmax|matmul|flash|layer_?norm|rms_?norm", re.IGNORECASE)
    found = []
    for path in sources():
        if name_of(path).startswith(("frontend/", "bench/peers/")):  # the libraries that bench calls have names
            continue
        tree = ast.parse(path.read_text())
        docs = {id(d) for n in ast.walk(tree) if (d := _docstring(n)) is not None}
        for node in ast.walk(tree):
            text = _word(node)
            if text and id(node) not in docs and pattern.search(text):
                found.append(f"{name_of(path)}:{getattr(node, 'lineno', 0)}: {text[:60]!r}")
    assert found == []


def _docstring(node: ast.AST) -> ast.AST | None:
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        return body[0].value
    return None


def _word(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str() as text) | ast.Name(id=text):
            return text
        case ast.Attribute(value=ast.Name(id="np")):
            return ""  # numpy's own names
        case ast.Attribute(attr=text) | ast.FunctionDef(name=text) | ast.ClassDef(name=text):
            return text
    return ""


def test_the_guards_fail_on_planted_offences() -> None:
    assert wrong_imports("scalar/x.py", "from nautilus.vr_tile import ops")
    assert wrong_imports("core/x.py", "import nautilus.frontend.spec")
    assert not wrong_imports("tile/lower.py", "from nautilus.scalar import ops")
    assert too_large("core/x.py", "\n" * 501)
    assert too_large("core/x.py", "def f():\n" + "    pass\n" * 60)


LIGHT = [["--help"], ["--version"], ["compile", "--help"], ["--print-passes"]]


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_start_up_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom nautilus.cli.main import main\n"
        f"assert main({arguments!r}) == 0\n"
        "heavy = {'numpy', 'lark', 'cuda', 'sympy', 'optuna', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_no_mention_of_this_machine() -> None:
    pattern = re.compile(r"/work/|/root/|\bissue #?\d")
    names = [*sources(), *(ROOT / "grammar").glob("*"), ROOT / "README.md", ROOT / "Makefile"]
    assert [str(p) for p in names if p.is_file() and pattern.search(p.read_text())] == []
