"""Long sessions that go from one upstream to the next: no upstream refuses what the others have left in the
history."""

import pytest

from tests.support.session_clients import CLIENTS, SessionClient
from tests.support.strict_sessions import MODELS, ORDER, Plan, planned, strict_server

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(("client", "plans"), CLIENTS)
def test_no_upstream_refuses_what_others_have_left(client: type[SessionClient], plans: list[Plan]) -> None:
    with strict_server(planned(plans), store="memory://") as strict:
        session = client(strict.base)
        for turn, name in enumerate(ORDER, 1):
            assert session.turn(turn, MODELS[name]) == f"Turn {turn} is done.", (turn, strict.refused)
        strict.all_answered()
