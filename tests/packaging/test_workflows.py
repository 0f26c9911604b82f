"""The workflows in .github run only targets of the Makefile, with no more rights than they need. `make
workflows` also runs the linters."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.shared import REPOSITORY
from tests.support.workflows import steps, workflows

PAGE = (REPOSITORY / "docs" / "releasing.md").read_text()
TARGETS = {
    name
    for names in re.findall(r"^([a-z][\w -]*):(?!=)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    for name in names.split()
}
WRITES = {
    ("release.yml", "attest"): {"attestations", "id-token"},
    ("release.yml", "index"): {"id-token"},
    ("release.yml", "image"): {"attestations", "id-token", "packages"},
    ("release.yml", "site"): {"contents"},
    ("release.yml", "page"): {"contents"},
    ("site.yml", "site"): {"contents"},
}
COMMANDS = sorted({step.fields["run"] for step in steps() if "run" in step.fields})
USED = sorted({step.fields["uses"] for step in steps() if "uses" in step.fields})


def program(name: str) -> str:
    """Return the path of a program of this environment, which `make workflows` installs."""
    return str(Path(sys.executable).with_name(name))


def jobs() -> list[tuple[str, str, dict[str, Any]]]:
    return [(name, job, fields) for name, each in workflows().items() for job, fields in each["jobs"].items()]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_step_is_a_target_that_can_be_run_here(command: str) -> None:
    program, *words = shlex.split(command)
    names = [word for word in words if "=" not in word]
    assert program == "make"
    assert names
    assert set(names) <= TARGETS
    assert "${{" not in command  # values are passed in variables, which the shell does not split into words
    tried = subprocess.run(
        ["make", "--dry-run", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert tried.returncode == 0, tried.stderr


def test_rights_are_none_but_those_of_each_job() -> None:
    assert all(each["permissions"] == {} for each in workflows().values())
    for name, job, fields in jobs():
        writes = {right for right, level in fields["permissions"].items() if level == "write"}
        assert writes == WRITES.get((name, job), set()), (name, job)
        assert set(fields["permissions"].values()) <= {"read", "write"}
        assert fields["timeout-minutes"] <= 120


def test_nothing_of_a_pull_request_runs_with_rights() -> None:
    for name, each in workflows().items():
        triggers = set(each[True])  # `on`
        assert triggers <= {"push", "pull_request", "schedule", "workflow_dispatch"}
        if "pull_request" in triggers:
            assert not any(name == one for one, _ in WRITES), name


@pytest.mark.parametrize("used", USED)
def test_each_action_is_pinned_and_listed_with_how_its_hash_was_verified(used: str) -> None:
    action, commit = used.split("@")
    assert re.fullmatch(r"[0-9a-f]{40}", commit)
    assert re.search(rf"^\| `{re.escape(action)}` \| v[\d.]+ \| `{commit}` \| \w", PAGE, re.MULTILINE)
    for path in (REPOSITORY / ".github/workflows").iterdir():
        for version in re.findall(rf"uses: {re.escape(used)} # (\S+)", path.read_text()):
            assert f"| `{action}` | {version} |" in PAGE


def test_no_action_is_listed_that_is_not_used() -> None:
    listed = re.findall(r"^\| `([\w./-]+)` \| v[\d.]+ \| `([0-9a-f]{40})` \|", PAGE, re.MULTILINE)
    assert [f"{action}@{commit}" for action, commit in listed] == USED


def test_every_python_that_is_claimed_is_tried() -> None:
    claimed = re.findall(
        r"Programming Language :: Python :: (3\.\d+)", (REPOSITORY / "server/pyproject.toml").read_text()
    )
    assert workflows()["check.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"] == claimed


@pytest.mark.deploy
def test_actionlint() -> None:
    done = subprocess.run(
        [program("actionlint")], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.deploy
def test_zizmor() -> None:
    command = [program("zizmor"), "--offline", "--no-progress", "--quiet", "--format=plain", "."]
    done = subprocess.run(command, cwd=REPOSITORY / ".github", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deploy
@pytest.mark.parametrize(
    ("linter", "change"),
    [
        ("actionlint", ("make check\n", "make check ${{ matrix.none }}\n")),
        ("zizmor", ("make check\n", "make check ARGS=${{ github.event.pull_request.title }}\n")),
    ],
)
def test_the_linters_see_a_mistake(tmp_path: Path, linter: str, change: tuple[str, str]) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    text = (REPOSITORY / ".github/workflows/check.yml").read_text()
    assert change[0] in text
    (folder / "check.yml").write_text(text.replace(*change))
    options = ["--offline", "--quiet", str(folder)] if linter == "zizmor" else [str(folder / "check.yml")]
    done = subprocess.run([program(linter), *options], capture_output=True, text=True, check=False)
    assert done.returncode != 0


def test_dependabot_looks_at_what_is_pinned() -> None:
    config = yaml.safe_load((REPOSITORY / ".github/dependabot.yml").read_text())
    assert {each["package-ecosystem"] for each in config["updates"]} == {"github-actions", "pip", "docker"}
    for each in config["updates"]:
        for folder in each.get("directories", [each.get("directory")]):
            assert (REPOSITORY / folder.lstrip("/")).is_dir()


def test_hooks_of_pre_commit_are_what_check_runs() -> None:
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())
    makefile = (REPOSITORY / "Makefile").read_text().partition("\ncheck: ")[2].partition("\n\n")[0]
    for repository in config["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert hook["language"] == "system"
            assert f"$(BIN)/{hook['entry'].removeprefix('.venv/bin/')}" in makefile
