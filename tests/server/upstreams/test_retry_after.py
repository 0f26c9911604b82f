"""`retry-after`: valid times are kept, and any other value is harmless."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from openresponses_server.upstreams.refusals import LONGEST, passed_on, seconds_of


@pytest.mark.parametrize(
    ("header", "seconds", "passed"),
    [
        ("0", 0.0, "0"),
        (" 7 ", 7.0, "7"),
        ("86400", 86400.0, "86400"),
        ("9" * 9, LONGEST, str(LONGEST)),
        ("9" * 400, LONGEST, str(LONGEST)),
        ("9" * 6000, LONGEST, str(LONGEST)),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0, "Wed, 21 Oct 2015 07:28:00 GMT"),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST, str(LONGEST)),
    ],
)
def test_seconds_and_dates(header: str, seconds: float, passed: str) -> None:
    assert seconds_of(header) == seconds
    assert passed_on(header) == passed


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "soon",
        "-1",
        "1.5",
        "1e400",
        "inf",
        "NaN",
        "\u0661\u0662",  # digits, and no ASCII
        "\uff11",
        "ü",
        "\udc80",
        "5\r\nset-cookie: a=b",
        "5\x00",
        "sk-secret",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2024 00:00:00 +9999999999999999999",
        "Mon, 99 Jan 2024 99:99:99 GMT",
        "Mon, 01 Jan 0001 00:00:00 +2359",
        "x" * 100_000,
        "1 " * 50_000,
    ],
)
def test_anything_else_says_nothing(header: str | None) -> None:
    assert seconds_of(header) is None or passed_on(header) is not None
    sent = passed_on(header)
    assert sent is None or (sent.isascii() and sent.isprintable())


def test_a_date_says_how_long() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    wait = seconds_of(date)
    assert wait is not None
    assert 95 < wait <= 100
    assert passed_on(date) == date
