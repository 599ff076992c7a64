"""The house's floors: who may import whom, read from the source with `ast`.

flows → tasks → {storage, sandbox, serving}; never back, never sideways between the three lowest.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "flows": {"flows", "tasks", "storage", "sandbox", "serving"},
    "tasks": {"tasks", "storage", "sandbox", "serving"},
    "storage": {"storage"},
    "sandbox": {"sandbox"},
    "serving": {"serving"},
}
HEAVY = {"torch", "transformers", "peft", "skyrl", "tinker", "vllm", "jax"}
# Loaded only in child processes of their own, so free to import what they run on.
CHILD_PROCESSES = ("serving/engine/", "serving/engine_main.py", "serving/api_main.py")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
NOT_FOR_THE_COMMAND_LINE = HEAVY | {"prefect", "duckdb", "pyarrow", "docker", "scipy", "matplotlib"}
SOURCES = sorted(path.relative_to(ROOT) for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))
IN_THE_MAIN_PROCESS = [path for path in SOURCES if not path.as_posix().startswith(CHILD_PROCESSES)]


def imports(tree: ast.AST, *, at_import_time: bool = False) -> Iterator[str]:
    """The top-level names that a module imports.

    With `at_import_time` only those that importing it loads: none in functions or for type checkers.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import, line {node.lineno}: name the package"
            yield (node.module or "").partition(".")[0]
        elif at_import_time and (isinstance(node, FUNCTIONS) or guards_types(node)):
            continue
        else:
            yield from imports(node, at_import_time=at_import_time)


def guards_types(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def parse(source: Path) -> ast.Module:
    return ast.parse((ROOT / source).read_text(encoding="utf-8"), str(source))


def test_the_scan_sees_every_package() -> None:
    assert {source.parts[0] for source in SOURCES} == set(MAY_IMPORT)


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_a_module_imports_only_from_its_own_floor_and_those_below(source: Path) -> None:
    ours = set(imports(parse(source))) & set(MAY_IMPORT)

    assert ours <= MAY_IMPORT[source.parts[0]]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_only_flows_and_the_task_wrappers_know_prefect(source: Path) -> None:
    may = source.parts[0] == "flows" or (source.parts[0] == "tasks" and source.name == "task.py")

    assert may or "prefect" not in set(imports(parse(source)))


@pytest.mark.parametrize("source", IN_THE_MAIN_PROCESS, ids=str)
def test_heavy_packages_are_imported_only_inside_the_functions_that_use_them(source: Path) -> None:
    assert not set(imports(parse(source), at_import_time=True)) & HEAVY


@pytest.mark.parametrize("package", sorted({source.parent for source in SOURCES}), ids=str)
def test_every_package_has_an_init_with_its_charter(package: Path) -> None:
    assert ast.get_docstring(parse(package / "__init__.py"))


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_no_module_is_named_after_a_package_or_is_a_drawer_for_odds_and_ends(source: Path) -> None:
    # Prefect may put a flow file's folder first on the path: flows/evaluate.py would shadow `evaluate`.
    in_flows = {*MAY_IMPORT, "datasets", "evaluate", "prefect", "queue", "token", "typing"}

    assert source.stem not in {"utils", "helpers", "common"}
    assert source.parent != Path("flows") or source.stem not in in_flows


def test_the_command_line_loads_nothing_heavy() -> None:
    program = f"import flows.cli, sys; print(*({NOT_FOR_THE_COMMAND_LINE!r} & set(sys.modules)))"

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
