"""The jobs of the demo's agents: each does what it says, in a small checkout."""

import json
import subprocess
from pathlib import Path

import pytest

from titen.demo import deployment, documents, publishing, python_files, static_files
from titen.demo.places import CHECKOUT
from titen.demo.work import each

from .servers import Server


class Said(list[tuple[int, str]]):
    """A report that remembers."""

    def __call__(self, percent: int, status: str) -> None:
        self.append((percent, status))


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout with something to find in it."""
    files = {
        "shop/__init__.py": "from .prices import total\n",
        "shop/prices.py": "import os\nimport sys, re  # noqa\n\n\ndef total(x=[]):\n"
        '    """Sum."""\n    # TODO: round\n    return sys\n',
        "shop/broken.py": "def total(:\n",
        "shop/migrations/0001_initial.py": "",
        "shop/migrations/0002_alter_price.py": "",
        "shop/migrations/0003_prices_in_cents.py": "",
        "static/site.css": "a {}",
        "static/vendor/lib.js": "lib()",
    }
    for name, text in files.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "checkout"


def test_progress_goes_up_and_counts_what_was_done_before(said: Said) -> None:
    assert list(each(["c", "d"], said, done=2)) == ["c", "d"]
    assert said == [(50, "3 of 4: c"), (75, "4 of 4: d")]


def test_lint_finds_what_is_wrong(checkout: Path, said: Said) -> None:
    outcome = python_files.lint(checkout / "shop", said)
    assert outcome.result["findings"] == [
        "broken.py:1: syntax error: invalid syntax",
        "prices.py:5: mutable default",
        "prices.py:1: unused import os",
    ]
    assert outcome.summary == "shop: 6 modules, 3 findings."
    assert len(said) == 6


def test_the_other_looks_at_python(checkout: Path, said: Said, tmp_path: Path) -> None:
    (checkout / "shop" / "broken.py").write_text("def silent(): ...\n")
    assert python_files.docstrings(checkout, said).result == {
        "shop": {"functions": 2, "without_docstring": 1}
    }
    assert python_files.todos(checkout, said).result == {"todos": ["shop/prices.py:7: TODO: round"]}
    names = python_files.migration_names(checkout, said)
    assert names.result["generated"] == ["shop/migrations/0002_alter_price.py"]


def test_a_note_is_written_anew_and_leaves_the_other_sections_alone(said: Said, tmp_path: Path) -> None:
    document = tmp_path / "notes.md"
    for section, lines in (("shop", ["old"]), ("till", ["one", "two"]), ("shop", ["new"])):
        outcome = documents.note(document, section, lines, said)
    assert document.read_text() == "# notes\n\n## shop\n\n- new\n\n## till\n\n- one\n- two\n\n"
    assert outcome.summary == "1 note in the section shop of notes.md."
    assert said[-1] == (100, "saving the section shop")


def test_line_counts_fail_once_on_a_damaged_history_and_then_grow(
    checkout: Path, said: Said, tmp_path: Path
) -> None:
    history = tmp_path / "lines.json"
    history.write_text('[{"shop": 1')
    with pytest.raises(ValueError, match=r"lines\.json is damaged: .* set it aside as lines\.damaged"):
        python_files.line_counts(checkout, history, said)
    assert python_files.line_counts(checkout, history, said).result == {"lines": {"shop": 10}, "growth": {}}
    (checkout / "shop" / "new.py").write_text("a = 1\nb = 2\n")
    assert python_files.line_counts(checkout, history, said).result["growth"] == {"shop": 2}
    assert [entry["shop"] for entry in json.loads(history.read_text())] == [10, 12]


def test_a_manifest_is_what_sha256sum_checks(checkout: Path, said: Said, tmp_path: Path) -> None:
    manifest = tmp_path / "static.sha256"
    outcome = static_files.checksum(checkout / "static", manifest, said)
    assert outcome.result == {"files": 2, "bytes": 9, "taken_over": 0}
    subprocess.run(["sha256sum", "--check", "--quiet", manifest], cwd=checkout / "static", check=True)


def test_a_manifest_that_was_cut_off_is_finished(checkout: Path, said: Said, tmp_path: Path) -> None:
    manifest = tmp_path / "static.sha256"
    static_files.checksum(checkout / "static", manifest, said)
    whole = manifest.read_text()
    partial = manifest.with_suffix(".partial")
    partial.write_text(whole[:-10])  # the second line lacks its end
    said.clear()
    outcome = static_files.checksum(checkout / "static", manifest, said, go_on=True)
    assert outcome.result["taken_over"] == 1
    assert said == [(50, "2 of 2: vendor/lib.js")]
    assert manifest.read_text() == whole
    assert not partial.exists()


def test_vendored_files_are_compared(checkout: Path, said: Said) -> None:
    static = checkout / "static"
    assert "no SHA256SUMS" in static_files.check_vendored(static, said).summary
    sums = f"{static_files.sha256(static / 'vendor/lib.js')}  lib.js\n"
    (static / "vendor" / "SHA256SUMS").write_text(sums)
    assert static_files.check_vendored(static, said).summary == "1 vendored file, as published."
    (static / "vendor" / "lib.js").write_text("evil()")
    assert static_files.check_vendored(static, said).result["differing"] == ["vendor/lib.js"]


def test_the_vendored_files_of_this_checkout_are_as_published(said: Said) -> None:
    assert static_files.check_vendored(CHECKOUT / "static", said).result["differing"] == []


def test_scratch_is_filled_described_and_removed(checkout: Path, said: Said, tmp_path: Path) -> None:
    scratch, outside = tmp_path / "scratch", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    outcome = static_files.copy([checkout / "shop"], scratch, said)
    assert outcome.result["files"] == 6
    assert (scratch / "shop" / "prices.py").read_text() == (checkout / "shop" / "prices.py").read_text()
    (scratch / "link").symlink_to(outside)
    assert deployment.describe(scratch).startswith("7 files of ")
    deployment.remove(scratch, said)
    assert deployment.confirm_gone(scratch, said).result == {"exists": False}
    assert (outside / "kept").exists()
    assert deployment.remove(scratch, said).result == {"files": 0}


def test_a_file_is_published_and_found_again_even_if_nobody_said_so(said: Said, tmp_path: Path) -> None:
    file, site = tmp_path / "notes.md", tmp_path / "site"
    file.write_text("one")
    assert not publishing.holds(site, file)
    assert publishing.publish(file, site, said).summary == "notes.md is on site."
    assert publishing.holds(site, file)
    file.write_text("two")
    assert not publishing.holds(site, file)
    with pytest.raises(publishing.HungUp, match="site hung up"):
        publishing.publish(file, site, said, hangs=True)
    assert publishing.holds(site, file)


def test_labels_are_added_line_by_line(tmp_path: Path) -> None:
    for text in ("stays", "stays still"):
        deployment.label(tmp_path / "labels", "shop", text)
    assert (tmp_path / "labels").read_text() == "shop: stays\nshop: stays still\n"


def test_a_build_is_switched_in_one_step(said: Said, tmp_path: Path) -> None:
    deployment.prepare_service(tmp_path, [41, 42])
    assert deployment.switch_build(tmp_path, 41, said).result == {"from": 42, "to": 41}
    deployment.prepare_service(tmp_path, [41, 42])
    assert deployment.current_build(tmp_path) == 41
    with pytest.raises(FileNotFoundError, match="no build 7"):
        deployment.switch_build(tmp_path, 7, said)


def test_documents_are_written(web: Server, said: Said, tmp_path: Path) -> None:
    outcome = documents.openapi(f"{web.url}/api/openapi.json", tmp_path / "openapi.json", said)
    assert outcome.result["nameless"] == []
    assert outcome.result["operations"] > 20
    report = documents.write_report(
        "Numbers",
        [{"title": "Lint", "summary": "Clean.", "result": {"findings": []}}],
        tmp_path / "r.md",
        said,
    )
    assert report.summary == "“Numbers” has 1 chapter."
    assert (tmp_path / "r.md").read_text().startswith("# Numbers\n\n## Lint\n\nClean.\n")


def test_a_changelog_needs_git_and_a_log(said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "changelog.md"
    assert "git has no log" in documents.changelog(tmp_path, target, said).summary
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    commit = ["git", *who, "commit", "--quiet", "--allow-empty", "--message", "Titles\tare kept"]
    subprocess.run(commit, cwd=tmp_path, check=True)
    assert documents.changelog(tmp_path, target, said).result == {"commits": 1, "days": 1}
    assert target.read_text().endswith("\n\n- Titles\tare kept\n\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no git on this machine" in documents.changelog(tmp_path, target, said).summary
