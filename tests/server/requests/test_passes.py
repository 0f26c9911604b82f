"""The passes of `prepare` one by one: each sets what the ones after it read."""

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.requests.admission import check_fields, load_history, reserve
from openresponses_server.requests.client_traits import read_headers
from openresponses_server.requests.composition import compose
from openresponses_server.requests.outgoing import choose_upstream, translate
from openresponses_server.requests.prepare import PASSES, Pass, prepare
from openresponses_server.requests.prepared import PreparedRequest
from openresponses_server.requests.service import Service
from openresponses_server.settings import Settings

pytestmark = pytest.mark.anyio
PLAIN = b'{"model": "demo", "input": "Hi", "store": false}'


@pytest.fixture
def service() -> Service:
    return compose(Settings(store="memory://"))


def asked(body: bytes = PLAIN, **headers: str) -> PreparedRequest:
    return PreparedRequest(decode_request(body), headers, "req_1")


async def test_a_pass_is_run_alone(service: Service) -> None:
    request = asked(authorization="Bearer secret")
    read_headers(request, service)
    assert request.client.key == "secret"
    choose_upstream(request, service)
    assert request.target.model == "demo"
    await load_history(request, service)
    assert (list(request.history), len(request.own), request.compacts) == ([], 1, False)


async def test_what_no_pass_has_set_is_not_readable(service: Service) -> None:
    with pytest.raises(AttributeError, match="continuation"):
        reserve(asked(), service)


async def test_all_passes_prepare_a_request(service: Service) -> None:
    request = await prepare(asked(), service)
    assert b'"Hi"' in request.translated.outgoing.body
    assert service.available.budget.bytes == len(request.translated.outgoing.body)
    assert request.answer_headers == {}
    steps = [each.step for each in PASSES]
    assert steps.index(check_fields) < steps.index(load_history) < steps.index(translate)


async def test_a_pass_of_a_field_is_for_requests_that_have_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    noted = Pass(lambda request, _service: seen.append(request.id), "metadata")
    monkeypatch.setattr("openresponses_server.requests.prepare.PASSES", (*PASSES, noted))
    await prepare(asked(), service)
    assert seen == []
    await prepare(asked(PLAIN[:-1] + b', "metadata": {"a": "b"}}'), service)
    assert seen == ["req_1"]


def test_the_fields_of_passes_are_those_of_requests() -> None:
    named = {each.field for each in PASSES if each.field}
    assert named <= set(CreateResponse.__struct_fields__)
    assert all(getattr(decode_request(PLAIN), each) is None for each in named)


async def test_a_refused_request_takes_no_memory(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while its error is handled, which refers to it."""

    def refuse(_request: PreparedRequest, _service: Service) -> None:
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, "no")

    monkeypatch.setattr("openresponses_server.requests.prepare.PASSES", (*PASSES, Pass(refuse)))
    request = asked()
    with pytest.raises(InvalidRequestError, match="no"):
        await prepare(request, service)
    assert request.reservation is not None
    assert service.available.budget.bytes == 0
