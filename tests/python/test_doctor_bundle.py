"""What a report of a bug begins with: `ciranda --version --verbose`, and the file of `ciranda doctor --bundle`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import ciranda
from ciranda._hidden import shown
from ciranda.doctor import Finding, bundle, settings, versions, versions_here, write_bundle

FINDINGS = [Finding("thing", "ok", "found"), Finding("other", "warn", "[red]not markup[/red]", "do this")]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ciranda.launch.cli", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip


def test_the_version_alone_is_one_line() -> None:
    for arguments in (["--version"], ["-v"], ["--version", "run"]):
        done = command(*arguments)
        assert (done.returncode, done.stdout) == (0, f"ciranda {ciranda.__version__}\n")


@pytest.mark.parametrize("arguments", [("--version", "--verbose"), ("--verbose", "-v")])
def test_the_verbose_version_has_a_line_for_each_part(arguments: tuple[str, ...]) -> None:
    done = command(*arguments, CIRANDA_SIMD="baseline")
    assert done.returncode == 0, done.stderr
    lines = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert list(lines) == list(versions_here())
    found = {name: text.strip() for name, text in lines.items()}
    assert found["ciranda"] == ciranda.__version__
    assert "GCC: " in found["compiler"] or "clang " in found["compiler"]
    assert found["vector instructions"].endswith("; CIRANDA_SIMD=baseline")
    assert found["libc"].startswith("glibc 2.")


def test_verbose_without_version_says_what_to_write() -> None:
    done = command("--verbose")
    assert done.returncode == 2
    assert "ciranda --version --verbose" in done.stderr
    assert done.stdout == ""


def test_an_engine_that_does_not_load_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_ENGINE", "raise SystemExit('boo')")
    found = versions_here()
    assert found["ciranda"] == "the engine does not load: boo"
    assert found["Python"]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_the_clone_with_a_mark_if_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "ciranda"
    package.mkdir(parents=True)
    monkeypatch.setattr(versions, "_package", lambda: package)
    module = package / "__init__.py"
    module.write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "cpp").mkdir()
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert versions.commit() == head
    module.write_text("x = 2\n", encoding="utf-8")
    assert versions.commit() == f"{head} with changes"


def test_the_commit_of_an_installation_is_not_that_of_a_clone_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet")
    monkeypatch.setattr(versions, "_package", lambda: tmp_path / ".venv" / "site-packages" / "ciranda")
    files = {"commit": "abc with changes\n"}

    class Installed:
        def read_text(self, name: str) -> str | None:
            return files.get(name)

    monkeypatch.setattr(metadata, "distribution", lambda _name: Installed())
    assert versions.commit() == "abc with changes"
    del files["commit"]
    assert versions.commit() is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CIRANDA_SECRET_FILE", "/tmp/x"),
        ("CIRANDA_MY_TOKEN", "x"),
        ("HOROVOD_password", "x"),
        ("CIRANDA_JOB", "0123456789abcdef0123456789ABCDEF"),
        ("CIRANDA_TIMELINE", "s3://me:pass@host/x"),
    ],
)
def test_secrets_are_hidden(name: str, value: str) -> None:
    assert shown(name, value) == "(hidden)"
    assert bundle.variables({name: value}) == {name: "(hidden)"}


def test_the_finding_on_settings_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRANDA_MY_TOKEN", "hush")
    monkeypatch.setenv("CIRANDA_NUM_LANES", "2")
    findings = list(settings.settings())
    assert "hush" not in str(findings)
    assert findings[-1].found == "CIRANDA_MY_TOKEN=(hidden), CIRANDA_NUM_LANES=2"


def test_only_what_concerns_a_job_is_in_the_bundle() -> None:
    given = {"CIRANDA_NUM_LANES": "2", "HOME": "/home/me", "OMP_NUM_THREADS": "4", "AWS_THING": "x"}
    assert bundle.variables(given) == {"CIRANDA_NUM_LANES": "2", "OMP_NUM_THREADS": "4"}


def test_the_bundle_has_what_was_found() -> None:
    file = io.BytesIO()
    write_bundle(file, FINDINGS)
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {name.rpartition("/")[0] for name in contents} == {"ciranda-doctor"}
    assert "[red]not markup[/red]" in contents["ciranda-doctor/doctor.txt"]
    assert len(json.loads(contents["ciranda-doctor/doctor.json"])["findings"]) == 2
    assert json.loads(contents["ciranda-doctor/versions.json"])["ciranda"] == ciranda.__version__
    assert "numpy==" in contents["ciranda-doctor/packages.txt"]
    assert "ciranda-doctor/variables.json" in contents


def test_the_command_writes_the_bundle_beside_its_report(tmp_path: Path) -> None:
    path = tmp_path / "report.zip"
    done = command("doctor", "--json", "--bundle", str(path), CIRANDA_MY_TOKEN="hush")
    assert json.loads(done.stdout)["findings"]
    assert f"written to {path}" in done.stderr
    with zipfile.ZipFile(path) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist()]
    assert json.loads(archive_text(path, "doctor.json")) == json.loads(done.stdout)
    assert not any("hush" in text for text in texts)


def archive_text(path: Path, name: str) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read(f"ciranda-doctor/{name}").decode()


def test_a_bundle_that_cannot_be_written_is_told_before_the_checks(tmp_path: Path) -> None:
    done = command("doctor", "--bundle", str(tmp_path / "missing" / "report.zip"))
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr
    assert done.stdout == ""
