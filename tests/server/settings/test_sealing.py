"""The sealing key: configured, or made once and kept for the user alone."""

from pathlib import Path

import pytest

from openresponses_bridge.seal import SealError
from openresponses_server.settings import Settings, SettingsError
from openresponses_server.settings.data_folder import ServerSealer, configured_keys, kept_keys


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
    (key,) = configured_keys("SEALING")
    assert len(key) == 32
    assert ServerSealer("SEALING").open(ServerSealer("SEALING").seal(b"x", "kind")).payload == b"x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "SEALING is not set"),
        ("short", "key 1 of 1 in .* SEALING"),
        ("00" * 31, "key 1 of 1 "),
        ("not base64 !", "key 1 of 1 "),
        ("00" * 32 + ",", "key 2 of 2 in .* SEALING"),
        ("00" * 32 + ",short," + "00" * 32, "key 2 of 3 "),
    ],
)
def test_a_wrong_key_is_named_by_its_place_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    from openresponses_server.api.app import create_app

    monkeypatch.setenv("SEALING", text)
    with pytest.raises(SettingsError, match=said) as wrong:
        create_app(Settings(sealing_key_env="SEALING"))
    assert not any(each and each in str(wrong.value) for each in text.split(","))


@pytest.mark.parametrize("data", [b"", b"abc", bytes(33)])
def test_a_file_that_holds_no_key(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "sealing.key").write_bytes(data)
    with pytest.raises(SettingsError, match=f"no keys of 32 bytes: it has {len(data)} bytes"):
        kept_keys(tmp_path)


def sealers(monkeypatch: pytest.MonkeyPatch, within: Path, *keys: bytes) -> list[ServerSealer]:
    """With these keys from the environment, and from a data folder."""
    folder = within / str(len(list(within.iterdir())))
    folder.mkdir()
    monkeypatch.setenv("SEALING", ", ".join(key.hex() for key in keys))
    (folder / "sealing.key").write_bytes(b"".join(keys))
    return [ServerSealer("SEALING"), ServerSealer(folder=folder)]


@pytest.mark.parametrize("given", [0, 1], ids=["environment", "data folder"])
def test_keys_are_rotated_without_losing_what_was_sealed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: int
) -> None:
    old, new = b"o" * 32, b"n" * 32
    before = sealers(monkeypatch, tmp_path, old)[given]
    both = sealers(monkeypatch, tmp_path, old, new)[given]
    after = sealers(monkeypatch, tmp_path, new, old)[given]
    last = sealers(monkeypatch, tmp_path, new)[given]
    for owner in ("", "alice"):
        first = before.bound(owner).seal(b"1", "kind")
        assert after.bound(owner).open(first).payload == b"1"
        second = after.bound(owner).seal(b"2", "kind")
        assert both.bound(owner).open(second).payload == b"2", "a worker that seals with the old one still"
        assert last.bound(owner).open(second).payload == b"2"
        with pytest.raises(SealError):
            last.bound(owner).open(first)
        with pytest.raises(SealError):
            after.bound("eve").open(first)
    assert after.derived_keys("x") == [*last.derived_keys("x"), *before.derived_keys("x")]


def test_where_nothing_can_be_kept_the_key_lasts_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sealer = ServerSealer(folder=tmp_path / "file")
    assert sealer.open(sealer.seal(b"x", "kind")).payload == b"x"
