"""The hierarchy of errors: who is at fault, and the status with which to answer."""

import pytest

from openresponses_bridge import errors
from openresponses_bridge.errors import (
    BridgeError,
    InvalidRequestError,
    LocalError,
    RemoteError,
    StreamStateError,
    ToolError,
    WireError,
)


def test_an_error_says_what_and_where_and_holds_the_facts() -> None:
    error = BridgeError("bridge.some.code", "what happened", param="input[0]", index=3)
    assert str(error) == "bridge.some.code: what happened"
    assert (error.code, error.message, error.param, error.context) == (
        "bridge.some.code", "what happened", "input[0]", {"index": 3},
    )  # fmt: skip
    assert BridgeError("c", "m").param is None


@pytest.mark.parametrize(
    ("cls", "fault", "status", "kind"),
    [
        (LocalError, BridgeError, 500, "server_error"),
        (StreamStateError, LocalError, 500, "server_error"),
        (ToolError, LocalError, 500, "server_error"),
        (RemoteError, BridgeError, 400, "invalid_request_error"),
        (InvalidRequestError, RemoteError, 400, "invalid_request_error"),
        (WireError, RemoteError, 502, "server_error"),
    ],
)
def test_e9_each_kind_of_error_has_its_place(
    cls: type[BridgeError], fault: type, status: int, kind: str
) -> None:
    error = cls("code", "message")
    assert isinstance(error, fault)
    assert (error.http_status, error.error_type) == (status, kind)


def test_e9_codes_are_stable_and_no_two_are_the_same() -> None:
    assert StreamStateError.OUTPUT_BEFORE_START == "bridge.stream.output_before_start"
    assert StreamStateError.DELTA_AFTER_TERMINAL == "bridge.stream.delta_after_terminal"
    assert StreamStateError.INVALID_TRANSITION == "bridge.stream.invalid_transition"
    assert StreamStateError.INCOMPLETE_TOOL_CALL == "bridge.stream.incomplete_tool_call"
    codes = [
        value
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, BridgeError)
        for name, value in vars(cls).items()
        if name.isupper()
    ]
    assert len(codes) == len(set(codes)) > 8
