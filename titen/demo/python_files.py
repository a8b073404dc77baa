"""Work on Python files: syntax, imports, docstrings, comments, sizes, names of migrations."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .work import Outcome, Report, counted, each

MEASUREMENTS_KEPT = 50
GENERATED_NAME = re.compile(r"auto_\d{8}_\d{4}|_and_more$|^\d{4}_(alter|delete|remove|rename)_")


def _modules(folder: Path) -> list[Path]:
    """The Python files below a folder, by their names relative to it."""
    return [path.relative_to(folder) for path in sorted(folder.rglob("*.py"))]


def _packages(checkout: Path) -> list[Path]:
    return [path.parent for path in sorted(checkout.glob("*/__init__.py"))]


def lint(folder: Path, report: Report) -> Outcome:
    """Parse every module; find unused imports, bare excepts and mutable defaults."""
    modules = _modules(folder)
    findings = [
        f"{path}:{line}: {problem}"
        for path in each(modules, report)
        for line, problem in _unexcused((folder / path).read_text(), path)
    ]
    what = counted(len(findings), "finding") if findings else "nothing to complain about"
    return Outcome(
        f"{folder.name}: {counted(len(modules), 'module')}, {what}.",
        {"modules": len(modules), "findings": findings[:200]},
    )


def _unexcused(source: str, path: Path) -> Iterator[tuple[int, str]]:
    """The problems in lines that don't say `noqa`."""
    lines = source.splitlines()
    return ((line, problem) for line, problem in _problems(source, path) if "noqa" not in lines[line - 1])


def _problems(source: str, path: Path) -> Iterator[tuple[int, str]]:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        yield error.lineno or 1, f"syntax error: {error.msg}"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "bare except"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if isinstance(default, ast.List | ast.Dict | ast.Set):
                    yield default.lineno, "mutable default"
    if path.name != "__init__.py":  # which imports in order to export
        yield from _unused_imports(tree)


def _unused_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    # Names in quoted annotations and in __all__.
    quoted = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200
        for name in re.findall(r"\w+", node.value)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = (alias.asname or alias.name).partition(".")[0]
                if name not in used | quoted and alias.asname != alias.name and name != "annotations":
                    yield node.lineno, f"unused import {name}"


def docstrings(checkout: Path, report: Report) -> Outcome:
    """Count the functions that don't say what they do, per package."""
    packages: dict[str, dict[str, int]] = {}
    for name in each([path.name for path in _packages(checkout)], report):
        functions = [
            node
            for path in _modules(checkout / name)
            for node in ast.walk(ast.parse((checkout / name / path).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        silent = [node for node in functions if ast.get_docstring(node) is None]
        packages[name] = {"functions": len(functions), "without_docstring": len(silent)}
    functions_found = sum(package["functions"] for package in packages.values())
    without = sum(package["without_docstring"] for package in packages.values())
    return Outcome(f"{without:,} of {counted(functions_found, 'function')} have no docstring.", packages)


def todos(checkout: Path, report: Report) -> Outcome:
    """Collect the comments that promise something: TODO, FIXME, XXX."""
    found: list[str] = []
    modules = [
        path.relative_to(checkout) for package in _packages(checkout) for path in package.rglob("*.py")
    ]
    for module in each(sorted(modules), report):
        source = io.StringIO((checkout / module).read_text())
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.COMMENT and re.search(r"\b(TODO|FIXME|XXX)\b", token.string):
                found.append(f"{module}:{token.start[0]}: {token.string.lstrip('# ')}")
    where = counted(len(modules), "module")
    return Outcome(f"{counted(len(found), 'TODO')} in {where}.", {"todos": found[:200]})


def migration_names(checkout: Path, report: Report) -> Outcome:
    """Find migrations that still have the name that `makemigrations` gave them."""
    migrations = [path.relative_to(checkout) for path in sorted(checkout.glob("*/migrations/[0-9]*.py"))]
    generated = [str(path) for path in each(migrations, report) if GENERATED_NAME.search(path.stem)]
    if generated:
        summary = f"{len(generated)} of {counted(len(migrations), 'migration')} should be named by hand."
    else:
        summary = f"{counted(len(migrations), 'migration')}, named by hand."
    return Outcome(summary, {"migrations": [str(path) for path in migrations], "generated": generated})


def line_counts(checkout: Path, history: Path, report: Report) -> Outcome:
    """Measure the lines of each package, and how they grew since the last measurement.

    Raises ValueError when the history can't be read; it is set aside, so that the next attempt can begin
    a new one.
    """
    now = {
        name: sum(
            len((checkout / name / path).read_text().splitlines()) for path in _modules(checkout / name)
        )
        for name in each([path.name for path in _packages(checkout)], report)
    }
    report(95, f"comparing with {history.name}")
    before = _history(history)
    last = before[-1] if before else {}
    growth = {name: lines - last[name] for name, lines in now.items() if name in last}
    draft = history.with_suffix(".new")
    draft.write_text(json.dumps([*before, now][-MEASUREMENTS_KEPT:]))
    draft.replace(history)
    since = f", {sum(growth.values()):+,} since the last measurement" if growth else ""
    return Outcome(f"{sum(now.values()):,} lines of Python{since}.", {"lines": now, "growth": growth})


def _history(path: Path) -> list[dict[str, Any]]:
    try:
        history: list[dict[str, Any]] = json.loads(path.read_text())
    except FileNotFoundError:
        return []
    except json.JSONDecodeError as error:
        aside = path.replace(path.with_suffix(".damaged"))
        raise ValueError(
            f"{path.name} is damaged: {error}. I have set it aside as {aside.name}; the next attempt begins anew."
        ) from error
    return history
