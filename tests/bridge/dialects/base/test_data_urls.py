"""Data URLs of clients and models: read and made, at a cost that their length alone does not decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.dialects.base import data_of, data_url, invalid
from openresponses_bridge.dialects.vscode.media import part_of_url
from openresponses_bridge.errors import InvalidRequestError
from tests.support.costs import assert_at_most, seconds

SIZE = 4_000_000
HEADS = {"parameters": ";" * SIZE, "named": ";a" * (SIZE // 2), "a media type": "a" * SIZE}


def read(url: str) -> Any:
    try:
        return data_of(url, "url")
    except InvalidRequestError as error:
        return error.param


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("data:image/png;base64,AAAA", ("image/png", "AAAA")),
        ("data:image/JPG;charset=x;base64,AAAA", ("image/jpeg", "AAAA")),
        ("data:;base64,AA,A", ("", "AA,A")),
        ("data:image/png;base64,", "url"),
        ("data:image/png,AAAA", "url"),
        ("data:image/png;base64", "url"),
        ("https://a.example/,", "url"),
    ],
)
def test_what_a_data_url_says(url: str, found: Any) -> None:
    assert read(url) == found


@pytest.mark.parametrize(
    ("media", "data", "wrong"),
    [("image/png", "", "data"), ("image png", "AAAA", "media"), ("a,b", "AAAA", "media")],
)
def test_what_no_data_url_can_have_is_refused_by_its_place(media: str, data: str, wrong: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        data_url(media, data, "media", "data")
    assert refused.value.param == wrong


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("work", [read, lambda url: part_of_url(url, "")], ids=["a request", "vscode"])
def test_s10_a_long_head_costs_no_more_than_long_data(head: str, work: Callable[[str], Any]) -> None:
    long, usual = f"data:{HEADS[head]}", f"data:image/png;base64,{'A' * SIZE}"
    assert work(long) in ("url", None)
    assert_at_most(3, lambda: seconds(lambda: work(long)), lambda: seconds(lambda: work(usual)))


@pytest.mark.parametrize("head", HEADS)
def test_s10_a_long_media_type_is_refused_at_once(head: str) -> None:
    def refused() -> None:
        with pytest.raises(InvalidRequestError):
            data_url(HEADS[head], "AAAA", "media", "data")

    assert_at_most(3, lambda: seconds(refused), lambda: seconds(lambda: str(invalid("media", "x" * SIZE))))
