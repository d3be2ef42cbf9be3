"""What outsiders and the release rest on: workflows that call what there is, hooks that are those of `make lint`."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))

_CHECK_RELEASE = importlib.util.spec_from_file_location("check_release", ROOT / "tools" / "check_release.py")
assert _CHECK_RELEASE is not None
assert _CHECK_RELEASE.loader is not None
check_release = importlib.util.module_from_spec(_CHECK_RELEASE)
_CHECK_RELEASE.loader.exec_module(check_release)

CMAKE = "project(ciranda VERSION 0.2.0 DESCRIPTION)"


def read(path: str | Path) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def commands(workflow: Path) -> list[str]:
    """The shell's lines of a workflow."""
    steps = [step for job in read(workflow)["jobs"].values() for step in job.get("steps", ())]
    return [line for step in steps for line in step.get("run", "").splitlines()]


def recipe(target: str) -> str:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.M)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("stamp", "folder"), [(".nvrtc", "dist"), (".nvrtc-for-tests", "build/wheels"), (None, "build/wheels")]
)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_only_wheels_with_all_kernels_are_put_where_releases_lie(
    stamp: str | None, folder: str, machine: str, tmp_path: Path
) -> None:
    if stamp is not None:
        (tmp_path / stamp).touch()
    make = ["make", "--dry-run", "wheel-as-built", f"VENV={tmp_path}", f"ARCH={machine}"]
    planned = subprocess.run(make, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    folders = set(re.findall(r"(\S+)/ciranda-\*_", planned)) | set(re.findall(r"--wheel-dir (\S+) \./compat", planned))
    assert folders == {folder}


def test_the_jobs_of_a_change_are_the_stages_of_ci() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    stages = set(re.findall(r"^(?:stage|finish) ([\w-]+)", ci, re.M))
    matrix = read(".github/workflows/checks.yml")["jobs"]["stage"]["strategy"]["matrix"]["stage"]
    assert len(stages) > 5
    left_out = {"built-for-tests", "guard", "test-aarch64-quick"}  # parts of others; needs a known machine
    added = {"test-aarch64"}  # all of the quick one, and what takes an emulator minutes
    assert set(matrix) == stages - left_out | added


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_make_what_there_is(workflow: Path) -> None:
    made = [name for line in commands(workflow) for name in re.findall(r"(?:^|&& )make (?:--\S+ )*([a-z][\w-]*)", line)]
    assert set(made) <= TARGETS
    programs = [name for line in commands(workflow) for name in re.findall(r"(?:python3? |^)(\S+\.(?:py|sh))", line)]
    assert [name for name in programs if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_given_no_more_than_they_need(workflow: Path) -> None:
    assert read(workflow)["permissions"] == {"contents": "read"}


def test_hooks_are_the_commands_of_lint() -> None:
    lint = recipe("lint-python") + recipe("lint-cpp")
    hooks = read(".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert "make lint" in [hook["entry"] for hook in hooks]
    for entry in (hook["entry"] for hook in hooks if hook["entry"] != "make lint"):
        assert entry.replace(".venv/bin", "$(BIN)") in lint, entry


def test_owned_paths_are_there() -> None:
    lines = (ROOT / ".github" / "CODEOWNERS").read_text(encoding="utf-8").splitlines()
    paths = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert paths[0] == "*"
    assert [path for path in paths[1:] if not (ROOT / path.lstrip("/")).exists()] == []


def test_a_release_is_the_version_with_a_date() -> None:
    changelog = "# Changelog\n\n## 0.2.0, 2026-12-01\n\nNews.\n\n### C\n\n- x\n\n## 0.1.0, 2026-11-01\n\nOld.\n"
    assert check_release.notes("v0.2.0", CMAKE, changelog) == "News.\n\n### C\n\n- x\n"


@pytest.mark.parametrize(
    ("tag", "heading", "complaint"),
    [
        ("v0.3.0", "## 0.2.0, 2026-12-01", "v0.2.0 fits"),
        ("0.2.0", "## 0.2.0, 2026-12-01", "v0.2.0 fits"),
        ("v0.2.0", "## 0.2.0 (unreleased)", "write ## 0.2.0, YYYY-MM-DD"),
        ("v0.2.0", "## 0.1.0, 2026-11-01", "must be: ## 0.2.0"),
    ],
)
def test_what_cannot_be_released_is_told(tag: str, heading: str, complaint: str) -> None:
    with pytest.raises(check_release.CannotReleaseError, match=re.escape(complaint)):
        check_release.notes(tag, CMAKE, f"# Changelog\n\n{heading}\n\nNews.\n")


def test_the_changelog_begins_with_the_version_that_is_next() -> None:
    version = re.search(r"ciranda VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert version is not None
    assert heading is not None
    assert re.fullmatch(rf"{re.escape(version[1])}( \(unreleased\)|, \d{{4}}-\d{{2}}-\d{{2}})", heading[1])


def test_the_image_is_made_of_what_make_makes_and_runs_ranks_that_are_not_root() -> None:
    dockerfile = (ROOT / "packaging" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    tested = re.search(r"^TORCH \?= (\S+)$", makefile, re.M)
    assert tested is not None
    assert re.findall(r"torch==\S+", dockerfile) == [tested[1]]
    made = {"ciranda-0.1.0-cp310-abi3-manylinux_2_28_x86_64.whl", "ciranda_horovod-0.1.0-py3-none-any.whl"}
    patterns = re.findall(r"/dist/(\S+)", dockerfile.replace('"$(uname --machine)"', "x86_64"))
    assert len(patterns) == len(made)
    assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in made)
    users = re.findall(r"^USER (\S+)", dockerfile, re.M)
    assert users == re.findall(r"useradd .*--uid (\d+)", dockerfile)


def test_containers_build_by_switches_that_there_are_for_every_python_of_the_wheel() -> None:
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    containers = project["tool"]["cibuildwheel"]
    tried = read(".github/workflows/packages.yml")["jobs"]["try"]["strategy"]["matrix"]["python"]
    minors = ",".join(version.partition(".")[2] for version in tried)
    assert containers["build"] == f"cp3{{{minors}}}-manylinux_*"
    switches = {name.removeprefix("cmake.define.") for name in containers["config-settings"]}
    options = (ROOT / "cmake" / "CirandaOptions.cmake").read_text(encoding="utf-8")
    declared = set(re.findall(r"\((CIRANDA_\w+)", options))
    assert {name for name in switches if name.startswith("CIRANDA_")} <= declared
    assert len(switches) > 2
    programs = re.findall(r"\{project\}/(\S+)", " ".join(containers["test-command"]))
    assert programs
    assert all((ROOT / program).exists() for program in programs)


def test_the_conda_recipe_has_the_version_and_the_requirements_of_the_wheel() -> None:
    recipe = read("packaging/conda/recipe.yaml")
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [f"python{project['project']['requires-python']}", *project["project"]["dependencies"]]
    assert [each.replace(" ", "") for each in recipe["requirements"]["run"]] == wanted
    host = {each.replace(" ", "") for each in recipe["requirements"]["host"]}
    assert host >= set(project["build-system"]["requires"])
    assert project["tool"]["scikit-build"]["wheel"]["py-api"] == "cp310"
    assert "python-abi33.10.*" in host
    version = re.search(r"ciranda VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert version is not None
    assert recipe["context"]["version"] == version[1]
    assert recipe["about"]["summary"] == project["project"]["description"]


@pytest.mark.parametrize("library", ["driver", "nccl"])
def test_nothing_is_asked_of_libraries_of_gpus_that_the_engine_does_not_call(library: str) -> None:
    """A library that lacks a function is refused, whoever calls it."""
    folder = ROOT / "cpp" / "backend" / "cuda"
    asked = set(re.findall(r"\(\*((?:cu|nccl)[A-Z]\w+)\)", (folder / f"{library}_api.hpp").read_text(encoding="utf-8")))
    assert len(asked) > 10
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.??*")) if path.is_file())
    called = set(re.findall(r"\b(\w+)\(", sources)) | set(re.findall(r"DriverFunctions::(\w+)", sources))
    assert asked - called == set()
