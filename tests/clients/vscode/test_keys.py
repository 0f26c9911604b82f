"""The extension in a real VS Code: a key is sent only to the server for which it was entered."""

from tests.clients.vscode.results import Attacked


def test_without_a_key_there_are_no_models_and_with_it_there_are(keyed: Attacked) -> None:
    assert keyed.results["without"] == []
    assert "demo" in keyed.results["with_key"]
    assert keyed.results["chat"] == "You said: Hello"


def test_another_address_does_not_get_the_key(keyed: Attacked) -> None:
    assert keyed.results["moved"] == "Once upon "
    assert [each.key for each in keyed.hostile.asked][:2] == [None, None]
    assert {each.key for each in keyed.hostile.asked} == {None, "Bearer second"}


def test_the_key_is_there_again_at_its_own_address_until_it_is_removed(keyed: Attacked) -> None:
    assert keyed.results["back"] == "You said: Hello again"
    assert keyed.results["removed"] == []


def test_a_redirect_does_not_get_the_key(keyed: Attacked) -> None:
    assert keyed.results["redirected"]["code"] == "invalid_answer"
    assert keyed.stranger.asked == []


def test_settings_of_a_folder_and_of_a_remote_machine_lead_nowhere(keyed: Attacked) -> None:
    assert "workspaceValue" not in keyed.results["workspace"]
    assert keyed.results["machine"] == "Once upon "
    assert keyed.stranger.asked == []


def test_a_wrong_key_is_no_permissions(keyed: Attacked) -> None:
    error = keyed.results["refused"]
    assert (error["isLanguageModelError"], error["code"]) == (True, "NoPermissions")


def test_what_there_is_to_manage(keyed: Attacked) -> None:
    for entry in ("Set Server Address", "Set API Key", "Remove API Key", "Refresh Models", "Show Log"):
        assert entry in keyed.results["page"]
    assert "swordfish" not in keyed.results["page"]
