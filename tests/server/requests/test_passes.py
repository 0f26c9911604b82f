"""The passes of `prepare`: each takes what the one before it returns, and what it returns is complete."""

from collections.abc import Awaitable
from inspect import iscoroutinefunction
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.limits.memory import Reservation
from openresponses_server.requests.admission import load_history
from openresponses_server.requests.client_traits import read_headers
from openresponses_server.requests.composition import compose
from openresponses_server.requests.outgoing import attempt_at, find_upstream, translate
from openresponses_server.requests.prepare import PASSES, Pass, prepare
from openresponses_server.requests.prepared import Addressed, Placed, Received, Translated
from openresponses_server.requests.service import Service
from openresponses_server.settings import Settings
from openresponses_server.store.history import Continued, Conversation

pytestmark = pytest.mark.anyio
PLAIN = b'{"model": "demo", "input": "Hi", "store": false}'


@pytest.fixture
def service() -> Service:
    return compose(Settings(store="memory://"))


def asked(body: bytes = PLAIN, **headers: str) -> Received:
    return Received(decode_request(body), headers, "req_1")


async def test_a_pass_is_run_alone(service: Service) -> None:
    received = read_headers(asked(authorization="Bearer secret"), service)
    assert received.client.key == "secret"
    addressed = find_upstream(received, service)
    assert addressed.target.model == "demo"
    placed = await load_history(addressed, service)
    assert (list(placed.history), len(placed.own), placed.compacts) == ([], 1, False)


def test_each_pass_takes_what_the_one_before_it_returns() -> None:
    """So a pass reads nothing that no pass has found yet: the type checker holds each to the struct it
    takes."""
    current: Any = Received
    for step, _, is_awaited in PASSES:
        hints = get_type_hints(step)
        taken = next(iter(hints.values()))
        assert issubclass(current, taken), step.__name__
        current = hints["return"]
        assert get_origin(current) is not Awaitable, get_args(current)
        assert is_awaited is iscoroutinefunction(step)
    assert current is Translated


def test_no_pass_forgets_what_the_one_before_it_has_found() -> None:
    for smaller, larger in ((Received, Addressed), (Addressed, Placed), (Placed, Translated)):
        assert set(smaller.__struct_fields__) < set(larger.__struct_fields__)
        assert larger.__struct_config__.frozen


async def test_all_passes_prepare_a_request(service: Service) -> None:
    received = asked()
    request = await prepare(received, service)
    assert b'"Hi"' in request.form.outgoing.body
    assert service.available.budget.bytes == len(request.form.outgoing.body)
    assert request.answer_headers == {}
    assert (request.body, request.id) == (received.body, received.id)


async def test_an_attempt_is_made_of_what_was_placed_again(service: Service) -> None:
    """Another upstream, and one that has refused a part of it, get what the request is with that."""
    request = await prepare(asked(PLAIN[:-1] + b', "max_output_tokens": 16}'), service)
    first = await attempt_at(request, request.target)
    assert first.request.body is request.form.outgoing.body
    other = request.target._replace(
        model="slow",
        candidate=request.target.candidate._replace(route=request.target.candidate.route._replace(key=1)),
    )
    second = await attempt_at(request, other)
    assert b'"slow"' in second.request.body
    placed = {name: getattr(request, name) for name in Placed.__struct_fields__}
    again = await translate(Placed(**placed | {"target": other}), service)
    assert again.form.outgoing.body == second.request.body
    assert request.target.model == "demo"


async def test_a_pass_is_for_requests_that_have_what_it_needs(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def note(request: Translated, _service: Service) -> Translated:
        seen.append(request.id)
        return request

    noted = Pass(note, lambda request: request.body.metadata, False)
    monkeypatch.setattr("openresponses_server.requests.prepare.PASSES", (*PASSES, noted))
    await prepare(asked(), service)
    assert seen == []
    await prepare(asked(PLAIN[:-1] + b', "metadata": {"a": "b"}}'), service)
    assert seen == ["req_1"]


async def test_what_a_pass_needs_is_known_when_its_turn_comes(service: Service) -> None:
    request: Any = asked()
    for step, needs, is_awaited in PASSES:
        if needs is None or needs(request):
            request = await step(request, service) if is_awaited else step(request, service)
    request.reservation.release()


@pytest.mark.parametrize("after", ["load_history", "report_losses"])
async def test_a_refused_request_takes_no_memory(
    service: Service, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """Not even while its error is handled, which refers to it."""
    requests: list[Placed] = []

    def refuse(request: Placed, _service: Service) -> Placed:
        request.reservation.grow(10)
        requests.append(request)
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, "no")

    at = next(index for index, each in enumerate(PASSES) if each.step.__name__ == after) + 1
    passes = (*PASSES[:at], Pass(refuse, None, False), *PASSES[at:])
    monkeypatch.setattr("openresponses_server.requests.prepare.PASSES", passes)
    with pytest.raises(InvalidRequestError, match="no"):
        await prepare(asked(), service)
    assert len(requests) == 1
    assert service.available.budget.bytes == 0


async def test_a_request_that_is_refused_for_its_history_takes_no_memory(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(_store: object, body: CreateResponse, owner: str, *_: object, accepted: bool) -> Continued:
        reservation = Reservation(service.available.budget, owner)
        reservation.grow(10)
        reservations.append(reservation)
        return Continued(body, Conversation(), reservation)

    def refuse(*_: object) -> None:
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, "too many items")

    reservations: list[object] = []  # else it would be released when nothing refers to it any more
    monkeypatch.setattr("openresponses_server.requests.admission.continued", read)
    monkeypatch.setattr("openresponses_server.requests.admission.check_conversation", refuse)
    with pytest.raises(InvalidRequestError, match="too many items"):
        await prepare(asked(), service)
    assert len(reservations) == 1
    assert service.available.budget.bytes == 0
