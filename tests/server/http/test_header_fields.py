"""Header fields as every layer reads them."""

from starlette.datastructures import Headers

from openresponses_server.http.headers import HeaderFields, fields_of


def test_fields_as_starlette_has_them() -> None:
    fields = HeaderFields([(b"a", b"1"), (b"b", b"\xe9"), (b"a", b"2")])
    assert dict(fields) == {"a": "1", "b": "é"} == dict(Headers(raw=fields._raw))
    assert fields.getlist("a") == ["1", "2"]
    assert fields.getlist("b") == ["é"]
    assert fields.getlist("c") == []
    assert HeaderFields([(b"b", b"1")]).getlist("b") == ["1"]


def test_they_are_read_once() -> None:
    scope = {"headers": [(b"a", b"1")]}
    assert fields_of(scope) is fields_of(scope)
