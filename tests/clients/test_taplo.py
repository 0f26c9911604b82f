"""A configuration in an editor: Taplo, on which Even Better TOML is based, validates it by its schema."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main
from tests.support.configurations import PROFILES, configurations

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]
Lint = Callable[..., tuple[int, str]]


@pytest.fixture
def lint(npm: Any, tmp_path: Path) -> Lint:
    """Write files with the schema of their kind in the first line, and lint all of them; returns the exit
    code and the output."""
    program = npm("@taplo/cli") / "taplo"
    for kind in ("config", "profile", "models"):
        printed = CliRunner().invoke(main, ["config", "schema", kind]).stdout
        (tmp_path / f"{kind}.schema.json").write_text(printed, "utf-8")

    def read(files: dict[str, str], kind: str = "config") -> tuple[int, str]:
        for name, text in files.items():
            (tmp_path / f"{name}.toml").write_text(f"#:schema {kind}.schema.json\n{text}", "utf-8")
        command = [str(program), "lint", "--colors", "never", *(f"{name}.toml" for name in files)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    return read


def test_it_accepts_the_examples(lint: Lint) -> None:
    examples = {f"example{number}": text for number, (_, text) in enumerate(configurations())}
    assert lint(examples)[0] == 0, lint(examples)[1]


def test_it_accepts_the_profiles_and_models_that_ship(lint: Lint) -> None:
    profiles = {path.stem: path.read_text("utf-8") for path in PROFILES.glob("*.toml")}
    assert len(profiles) > 30
    assert lint(profiles, "profile")[0] == 0
    assert lint({"models": (PROFILES.parent / "models.toml").read_text("utf-8")}, "models")[0] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 8080", "'prot' was unexpected"),
        ("[limits]\ndepht = 9", "'depht' was unexpected"),
        ('retention = "3 days"', '"3 days" is not valid'),
        ("port = 99999", "99999 is greater than the maximum of 65535"),
        ('[[upstreams]]\nurl = "http://x"\noptions = { alternatng = true }', "'alternatng' was unexpected"),
    ],
)
def test_it_names_what_is_wrong(lint: Lint, text: str, said: str) -> None:
    code, output = lint({"bridge": text})
    assert code == 1
    assert said in output


def test_it_reads_what_init_writes(npm: Any, tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    assert CliRunner().invoke(main, ["init", str(file), "--upstream", "ollama"]).exit_code == 0
    command = [str(npm("@taplo/cli") / "taplo"), "lint", str(file)]
    assert (
        subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False).returncode == 0
    )
    file.write_text(file.read_text().replace("profile", "profle"))
    assert (
        subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False).returncode == 1
    )
