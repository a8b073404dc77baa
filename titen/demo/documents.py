"""Work on documents: the API's description, a changelog, a report."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from .work import Outcome, Report, counted, each

METHODS = {"get", "post", "put", "patch", "delete"}
COMMITS = 200


def openapi(address: str, target: Path, report: Report) -> Outcome:
    """Fetch the OpenAPI document, check that every operation has a name of its own, and keep it."""
    report(0, f"fetching {address}")
    answer = httpx.get(address, timeout=30).raise_for_status()
    document: dict[str, Any] = answer.json()
    names: list[str] = []
    nameless: list[str] = []
    for path in each(list(document["paths"]), report):
        for method in METHODS & document["paths"][path].keys():
            name = document["paths"][path][method].get("operationId", "")
            (names if name and name not in names else nameless).append(name or f"{method} {path}")
    target.write_bytes(answer.content)
    return Outcome(
        f"OpenAPI {document['openapi']}: {counted(len(names), 'operation')} on "
        f"{counted(len(document['paths']), 'path')}, {len(nameless) or 'none'} without a name of its own.",
        {"operations": len(names), "paths": len(document["paths"]), "nameless": nameless},
        [{"file": target.name, "bytes": len(answer.content)}],
    )


def changelog(checkout: Path, target: Path, report: Report) -> Outcome:
    """Draft a changelog from the commits' first lines, newest day first."""
    report(0, "reading git log")
    try:
        log = subprocess.run(
            ["git", "log", f"-{COMMITS}", "--no-merges", "--date=short", "--format=%ad%x09%s"],
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
    except FileNotFoundError:
        return Outcome("There is no git on this machine, so no log to read.", {"commits": 0})
    except subprocess.CalledProcessError as error:
        return Outcome(f"git has no log of this checkout: {error.stderr.strip()}", {"commits": 0})
    days: dict[str, list[str]] = {}
    for line in each(log.splitlines(), report):
        day, _, subject = line.partition("\t")
        days.setdefault(day, []).append(subject)
    target.write_text(
        "".join(f"## {day}\n\n" + "".join(f"- {subject}\n" for subject in days[day]) + "\n" for day in days)
    )
    commits = sum(map(len, days.values()))
    return Outcome(
        f"{counted(commits, 'commit')} on {counted(len(days), 'day')}.",
        {"commits": commits, "days": len(days)},
        [{"file": target.name}],
    )


def note(document: Path, section: str, lines: Sequence[str], report: Report) -> Outcome:
    """Write one section of a document anew; the others stay as they are."""
    text = document.read_text() if document.exists() else f"# {document.stem}\n\n"
    head, *rest = re.split(r"^## ", text, flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: part for part in rest}
    points = "".join(f"- {line}\n" for line in each(lines, report))
    report(100, f"saving the section {section}")
    sections[section] = f"{section}\n\n{points}\n"
    draft = document.with_suffix(".new")
    draft.write_text(head + "".join(f"## {part}" for part in sections.values()))
    draft.replace(document)
    return Outcome(
        f"{counted(len(lines), 'note')} in the section {section} of {document.name}.",
        {"section": section, "notes": len(lines)},
        [{"file": document.name}],
    )


def write_report(
    title: str, dependencies: Sequence[Mapping[str, Any]], target: Path, report: Report
) -> Outcome:
    """Put the results of other tasks under one title."""
    found = {dependency["title"]: dependency for dependency in dependencies}
    parts = [f"# {title}\n"]
    for name in each(list(found), report):
        figures = json.dumps(found[name]["result"], indent=2, ensure_ascii=False)
        parts.append(f"## {name}\n\n{found[name]['summary']}\n\n```json\n{figures}\n```\n")
    target.write_text("\n".join(parts))
    return Outcome(
        f"“{title}” has {counted(len(found), 'chapter')}.", {"title": title}, [{"file": target.name}]
    )
