"""The sealing key: configured, or made once and kept for the user alone."""

from pathlib import Path

import pytest

from openresponses_bridge.seal import SealError
from openresponses_server.settings import Settings, SettingsError
from openresponses_server.settings.data_folder import ServerSealer, configured_key, kept_key


def test_the_made_key_is_kept_for_the_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    sealed = ServerSealer(folder=folder).seal(b"x", "kind")
    assert ServerSealer(folder=folder).open(sealed).payload == b"x"
    assert (folder / "sealing.key").stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in folder.iterdir()] == ["sealing.key"]
    with pytest.raises(SealError):
        ServerSealer(folder=tmp_path / "other").open(sealed)


def test_no_key_is_made_before_it_is_needed(tmp_path: Path) -> None:
    ServerSealer(folder=tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("text", ["00" * 32, "A" * 43 + "=", " " + "ff" * 32 + "\n"])
def test_a_configured_key(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SEALING", text)
    assert len(configured_key("SEALING")) == 32
    assert ServerSealer("SEALING").open(ServerSealer("SEALING").seal(b"x", "kind")).payload == b"x"


@pytest.mark.parametrize("text", ["", "short", "00" * 31, "not base64 !"])
def test_a_wrong_key_names_its_variable_and_is_not_shown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    from openresponses_server.api.app import create_app

    monkeypatch.setenv("SEALING", text)
    with pytest.raises(SettingsError, match="SEALING") as wrong:
        create_app(Settings(sealing_key_env="SEALING"))
    assert not text or text not in str(wrong.value)


def test_a_file_that_holds_no_key(tmp_path: Path) -> None:
    (tmp_path / "sealing.key").write_bytes(b"abc")
    with pytest.raises(SettingsError, match="has 3 bytes and not 32"):
        kept_key(tmp_path)


def test_where_nothing_can_be_kept_the_key_lasts_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sealer = ServerSealer(folder=tmp_path / "file")
    assert sealer.open(sealer.seal(b"x", "kind")).payload == b"x"
