"""The commit in `--version`: of a build's stamp, of what pip wrote, of the checkout; nothing is started."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openresponses_cli.commands import commit
from openresponses_cli.commands.commit import commit_of

ONE, TWO = "1" * 40, "2" * 40
MODULE = Path("server/openresponses_cli/commands/commit.py")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of our form without a commit, from which the module is run."""
    (tmp_path / MODULE).parent.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(commit, "__file__", str(tmp_path / MODULE))
    return tmp_path


def found(stamp: Path = Path("none")) -> str | None:
    return commit_of("a-distribution-that-is-not-installed", stamp)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_stamp_comes_first(checkout: Path) -> None:
    write(checkout / ".git/HEAD", ONE)
    write(checkout / "stamp", f"{TWO}\n")
    assert found(checkout / "stamp") == TWO
    write(checkout / "stamp", "main\n")
    assert found(checkout / "stamp") == ONE


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({".git/HEAD": f"{ONE}\n"}, ONE),
        ({".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{ONE}\n"}, ONE),
        (
            {
                ".git/HEAD": "ref: refs/heads/main\n",
                ".git/packed-refs": f"# pack-refs\n{TWO} refs/heads/other\n{ONE} refs/heads/main\n",
            },
            ONE,
        ),
        ({".git/HEAD": "ref: refs/heads/main\n"}, None),
        ({".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": "ref: refs/heads/main"}, None),
        ({".git/HEAD": f"{ONE} and more"}, None),
        ({".git/HEAD": "\0" * 100}, None),
        ({}, None),
    ],
)
def test_what_head_leads_to(checkout: Path, files: dict[str, str], expected: str | None) -> None:
    for name, text in files.items():
        write(checkout / name, text)
    assert found() == expected


def test_a_worktree_of_a_repository(checkout: Path) -> None:
    (checkout / ".git").rmdir()
    write(checkout / ".git", "gitdir: repository/worktrees/this\n")
    write(checkout / "repository/worktrees/this/HEAD", "ref: refs/heads/main\n")
    write(checkout / "repository/worktrees/this/commondir", "../..\n")
    write(checkout / "repository/packed-refs", f"{ONE} refs/heads/main\n")
    assert found() == ONE


def test_what_is_installed_within_another_repository_is_not_of_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / ".git/HEAD", ONE)
    installed = tmp_path / ".venv/lib/site-packages/openresponses_cli/commands/commit.py"
    write(installed, "")
    monkeypatch.setattr(commit, "__file__", str(installed))
    assert found() is None


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({"url": "u", "vcs_info": {"vcs": "git", "commit_id": ONE}}, ONE),
        ({"url": "u", "dir_info": {"editable": True}}, None),
        ({"vcs_info": {"commit_id": "--upload-pack=x"}}, None),
        ([], None),
    ],
)
def test_what_pip_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: object, expected: str | None
) -> None:
    write(tmp_path / "made-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: made\nVersion: 1\n")
    write(tmp_path / "made-1.dist-info/direct_url.json", json.dumps(origin))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(commit, "__file__", str(tmp_path / "commit.py"))
    assert commit_of("made", tmp_path / "none") == expected


def test_the_command_says_the_commit_of_this_checkout(tmp_path: Path) -> None:
    root = Path(commit.__file__).resolve().parents[3]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    if head.returncode:
        pytest.skip("this is no repository of git")
    code = (
        "import sys, subprocess\n"
        "from openresponses_cli.commands.cli import main\n"
        "assert 'openresponses_cli.commands.commit' not in sys.modules  # the start pays nothing\n"
        "subprocess.Popen = None  # and no program is started\n"
        "main(['--version'])\n"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout.endswith(f" ({head.stdout[:12]})\n")
