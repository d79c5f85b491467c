"""Rules of the repository that neither ruff, mypy nor import-linter can state, as functions from source to findings.

Each rule takes parsed source and returns findings as text, `[]` = the rule holds. `tests/architecture` applies them
to the repository, and to small bad examples that must be found. Run as a program, prints the lengths of functions.
"""

import ast
import re
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "clearway"

PURE_PACKAGES = ("model", "engine", "policies", "forecast", "kernel")
"""Packages in which time, randomness, files and output are data that is passed in."""

BELOW_DRIVERS = (*PURE_PACKAGES, "ports", "wire")
"""Packages that must not know whether they run against a real cluster or a simulated one."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IMPURE_MODULES = _words(
    "asyncio datetime io logging multiprocessing os pathlib random secrets shutil signal socket subprocess sys "
    "tempfile threading time uuid"
)
UNSAFE_MODULES = _words("dill marshal pickle shelve")
"""They run whatever code the file they read asks for."""

IMPURE_BUILTINS = _words("breakpoint input open print")
UNSAFE_BUILTINS = _words("eval exec __import__")
ORDERLESS_BUILTINS = _words("hash id")
"""Their values differ from process to process, so that decisions must not depend on them."""

IMPURE_CALLS = _words("numpy.fromfile numpy.genfromtxt numpy.load numpy.loadtxt numpy.memmap numpy.save numpy.savetxt")
UNSAFE_CALLS = _words("os.system os.popen yaml.unsafe_load yaml.full_load yaml.unsafe_load_all yaml.full_load_all")
SEEDED = _words("numpy.random.Generator numpy.random.SeedSequence numpy.random.PCG64 numpy.random.default_rng")


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: its path for messages, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module


def parse_source(text: str, path: str = "example.py") -> Source:
    """`text` as a Source."""
    return Source(path, text, ast.parse(text))


def read_sources(folder: Path) -> list[Source]:
    """All Python files below `folder`, in order of path."""
    return [
        parse_source(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
        for path in sorted(folder.rglob("*.py"))
    ]


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name → what it stands for, e.g. `np` → `numpy`, `now` → `datetime.datetime.now`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """The full dotted name of `node`, "" when it is not one."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def _imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    names = _imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, _dotted(node.func, names)


def _find_modules(source: Source, banned: frozenset[str]) -> list[str]:
    return [
        f"{source.path}:{line}: imports {module}"
        for line, module in _imported_modules(source.tree)
        if module.split(".")[0] in banned
    ]


def find_impure(source: Source) -> list[str]:
    """Clocks, files, output, process state and unseeded randomness: nothing of this may be in a pure package."""
    inside_hash = {
        id(call)
        for function in ast.walk(source.tree)
        if isinstance(function, ast.FunctionDef) and function.name == "__hash__"
        for call in ast.walk(function)
    }
    banned = IMPURE_BUILTINS | IMPURE_CALLS
    found = _find_modules(source, IMPURE_MODULES)
    for call, name in _calls(source.tree):
        orderless = name in ORDERLESS_BUILTINS and id(call) not in inside_hash
        if name in banned or orderless:
            found.append(f"{source.path}:{call.lineno}: calls {name}")
    return found + find_unseeded(source) + find_set_iteration(source)


def find_unseeded(source: Source) -> list[str]:
    """Random numbers from numpy's global state, or from a generator without a seed."""
    return [
        f"{source.path}:{call.lineno}: calls {name}{'' if name not in SEEDED else ' without a seed'}"
        for call, name in _calls(source.tree)
        if (name.startswith("numpy.random.") and name not in SEEDED)
        or (name == "numpy.random.default_rng" and not call.args and not call.keywords)
    ]


def find_set_iteration(source: Source) -> list[str]:
    """Loops directly over a set: their order is not defined."""
    loops = [node.iter for node in ast.walk(source.tree) if isinstance(node, ast.For | ast.comprehension)]
    return [
        f"{source.path}:{loop.lineno}: iterates over a set"
        for loop in loops
        if isinstance(loop, ast.Set | ast.SetComp)
        or (isinstance(loop, ast.Call) and _dotted(loop.func, {}) in {"set", "frozenset"})
    ]


def find_unsafe(source: Source) -> list[str]:
    """Ways in which input could become code; banned everywhere."""
    found = _find_modules(source, UNSAFE_MODULES)
    for call, name in _calls(source.tree):
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        shell = keywords.get("shell")
        loader = _dotted(keywords["Loader"], {}) if "Loader" in keywords else ""
        if name in UNSAFE_BUILTINS | UNSAFE_CALLS:
            found.append(f"{source.path}:{call.lineno}: calls {name}")
        elif name in {"yaml.load", "yaml.load_all"} and "Safe" not in loader:
            found.append(f"{source.path}:{call.lineno}: calls {name} without a safe loader")
        elif shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
            found.append(f"{source.path}:{call.lineno}: calls {name} with shell=")
    return found


def find_driver_words(source: Source) -> list[str]:
    """The words `sim` and `live`, alone or as part of a name in snake or camel case."""
    pattern = re.compile(r"(?<![A-Za-z])(?:sim|live|SIM|LIVE)(?![A-Za-z])|(?:Sim|Live)(?![a-z])")
    return [
        f"{source.path}:{number}: says {match.group()!r}"
        for number, line in enumerate(source.text.splitlines(), start=1)
        for match in pattern.finditer(line)
    ]


def find_loose_dataclasses(source: Source) -> list[str]:
    """Dataclasses that are not both frozen and slotted."""
    names = _imported_names(source.tree)
    found = []
    for node in ast.walk(source.tree):
        for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            call = decorator if isinstance(decorator, ast.Call) else None
            if _dotted(call.func if call else decorator, names) != "dataclasses.dataclass":
                continue
            given = {keyword.arg for keyword in call.keywords if _is_true(keyword.value)} if call else set()
            if not given >= {"frozen", "slots"}:
                found.append(f"{source.path}:{node.lineno}: {node.name} is not frozen and slotted")
    return found


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def documented_by_protocols(sources: Iterable[Source]) -> frozenset[str]:
    """Names of methods and properties that a Protocol explains: implementations need no second text."""
    names: set[str] = set()
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and any(_dotted(base, {}).endswith("Protocol") for base in node.bases):
                text = ast.get_docstring(node) or ""
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                names.update(part.name for part in methods if ast.get_docstring(part) or part.name in text)
    return frozenset(names)


def find_undocumented(source: Source, elsewhere: frozenset[str] = frozenset()) -> list[str]:
    """Public modules, classes, functions and methods without a docstring; `elsewhere`: method names explained there."""
    found = [f"{source.path}:1: no module docstring"] if source.tree.body and not ast.get_docstring(source.tree) else []
    for node in source.tree.body:
        members = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else []
        for part in (node, *members):
            if not isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or part.name.startswith("_"):
                continue
            if not ast.get_docstring(part) and not (part is not node and part.name in elsewhere):
                found.append(f"{source.path}:{part.lineno}: {part.name} has no docstring")
    return found


@dataclass(frozen=True, slots=True)
class FunctionLength:
    """A function and its number of lines, decorators left out, docstring included."""

    where: str
    name: str
    lines: int


def measure_functions(sources: Iterable[Source]) -> list[FunctionLength]:
    """All functions and methods, the longest first."""
    lengths = [
        FunctionLength(f"{source.path}:{node.lineno}", node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(lengths, key=lambda length: (-length.lines, length.where))


def describe_functions(lengths: list[FunctionLength]) -> str:
    """One line: how many functions there are and how long they are."""
    lines = [length.lines for length in lengths]
    median, ninetieth = statistics.median(lines), statistics.quantiles(lines, n=10, method="inclusive")[-1]
    return f"{len(lines)} functions: median {median:g} lines, 90th percentile {ninetieth:g}, longest {max(lines)}"


if __name__ == "__main__":
    print(describe_functions(measure_functions(read_sources(PACKAGE))))
