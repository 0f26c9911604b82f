"""Long sessions that go from one upstream to the next: no upstream refuses what the others have left in the
history."""

import pytest

from tests.support.session_clients import CLIENTS, SessionClient
from tests.support.strict_sessions import MODELS, ORDER, Plan, planned, strict_server
from tests.support.strict_upstreams import PROVIDERS


@pytest.mark.parametrize(("client", "plans"), CLIENTS)
def test_no_upstream_refuses_what_others_have_left(client: type[SessionClient], plans: list[Plan]) -> None:
    with strict_server(planned(plans), store="memory://") as strict:
        session = client(strict.base)
        for turn, name in enumerate(ORDER, 1):
            assert session.turn(turn, MODELS[name]) == f"Turn {turn} is done.", (turn, strict.refused)
        strict.all_answered()


SIGNED = {
    "openai": "could not be verified",
    "anthropic": "Invalid `signature` in `thinking` block",
    "gemini": "Corrupted thought signature.",
    "interactions": "Corrupted thought signature.",
}


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize(("client", "plans"), CLIENTS)
def test_p36_another_account_is_asked_again_without_what_it_cant_read(
    client: type[SessionClient], plans: list[Plan], name: str
) -> None:
    with strict_server(planned(plans), store="memory://") as strict:
        session = client(strict.base)
        session.turn(1, MODELS[name])
        strict.upstreams[name].provider = PROVIDERS[name]()
        assert session.turn(11, MODELS[name]) == "Turn 11 is done."
        ((_, refused), *_) = strict.refused
    assert SIGNED[name] in refused
