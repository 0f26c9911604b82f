"""Forms whose model is found as they arrive: whole, byte by byte, and as an attacker writes them."""

import random

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_server.http.multipart import MultipartScanner, boundary_of, content_type_of, model_part

MODEL = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n'
NUMBER = MODEL.replace(b'"model"', b'"n"')
FILE = (
    b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n'
    b"content-type: audio/wav\r\n\r\n%b\r\n"
)
END = b"--b--\r\n"


def scanned(body: bytes, size: int | None = None) -> MultipartScanner:
    """What a scanner has found, after it returned the body unchanged."""
    scanner, output = MultipartScanner("b"), b""
    step = size or len(body) or 1
    for start in range(0, len(body), step):
        output += scanner.feed(body[start : start + step])
    assert output + scanner.close() == body
    return scanner


@pytest.mark.parametrize("size", [None, 1, 2, 7])
def test_model_is_found_wherever_it_is(size: int | None) -> None:
    content = b"\r\n--a\r\n-\r\n--" + bytes(range(256)) + b"\r\n--"
    for body in (MODEL % b"m 1" + FILE % content + END, FILE % content + MODEL % b"m 1" + END[:-2]):
        scanner = scanned(body, size)
        start, end = scanner.model_at
        assert scanner.model == "m 1"
        assert body[start:end] == b"m 1"


@pytest.mark.parametrize("size", [None, 1, 2, 7])
def test_every_number_is_found_wherever_it_is(size: int | None) -> None:
    body = NUMBER % b"3" + FILE % b"x" + MODEL % b"m" + (NUMBER % b" 4").replace(b'"n"', b"N") + END
    scanner = scanned(body, size)
    assert scanner.numbers == [b"3", b" 4"]
    assert scanner.model == "m"
    start, end = scanner.model_at
    assert body[start:end] == b"m"
    assert scanned(FILE.replace(b'"file"', b'"n"') % b"3" + END, size).numbers == []


def test_an_endless_number_is_not_kept() -> None:
    scanner = MultipartScanner("b")
    scanner.feed(NUMBER.partition(b"%b")[0])
    for _ in range(32 + len(b"\r\n--b") - 1):  # the last of these may belong to the delimiter
        scanner.feed(b"0")
    with pytest.raises(InvalidRequestError, match="n has more than 32 bytes"):
        scanner.feed(b"0")


@pytest.mark.parametrize("size", [None, 1, 2, 7])
def test_what_is_kept_may_be_as_long_as_its_limit_however_it_arrives(size: int | None) -> None:
    scanner = scanned(MODEL % (b"m" * 4096) + NUMBER % (b"0" * 32) + END, size)
    assert scanner.model == "m" * 4096
    assert scanner.numbers == [b"0" * 32]


def test_form_without_model_gets_one() -> None:
    assert scanned(FILE % b"x" + END).model is None
    assert scanned(model_part("b", "late") + FILE % b"x" + END).model == "late"


def test_file_goes_on_before_it_has_arrived() -> None:
    scanner = MultipartScanner("b")
    begun = MODEL % b"m" + FILE % (b"x" * 10_000)
    assert len(begun) - len(scanner.feed(begun)) < 10


DISPOSITION = b"Content-Disposition: form-data; "


def part(head: bytes) -> bytes:
    return b"--b\r\n" + head + b"\r\n\r\nm\r\n"


HOSTILE = {
    "two models": MODEL % b"cheap" + FILE % b"x" + MODEL % b"dear" + END,
    "another case": MODEL % b"cheap" + (MODEL % b"dear").replace(b'"model"', b'"Model"') + END,
    "a model that is a file": part(DISPOSITION + b'name="model"; filename="x"') + END,
    "two names": part(DISPOSITION + b'name="a"; name="model"') + END,
    "an extended name": part(DISPOSITION + b"name*=utf-8''model") + END,
    "an escaped quote": part(DISPOSITION + b'name="a"; filename="\\"; name="model"') + END,
    "a folded header": part(DISPOSITION + b'\r\n name="model"') + END,
    "two dispositions": part(DISPOSITION + b'name="a"\r\n' + DISPOSITION + b'name="a"') + END,
    "no disposition": part(b"content-type: a/b") + END,
    "another disposition": part(b'Content-Disposition: attachment; name="a"') + END,
    "an encoded part": part(DISPOSITION + b'name="a"\r\nContent-Transfer-Encoding: base64') + END,
    "a line end within a header": part(DISPOSITION + b'name="a\nb"') + END,
    "a delimiter behind a bare LF": FILE % (b"x\n" + MODEL % b"dear") + END,
    "a delimiter within a line": FILE % (b"x" + MODEL % b"dear") + END,
    "a longer delimiter": FILE % b"x\r\n--bc" + END,
    "a preamble": b"hello\r\n" + MODEL % b"m" + END,
    "an epilogue": MODEL % b"m" + END + MODEL % b"dear" + END,
    "no end": MODEL % b"m" + FILE % b"x",
    "no parts": END,
    "nothing": b"",
    "a thousand fields": b"".join(part(DISPOSITION + b'name="%d"' % at) for at in range(1000)) + END,
    "long headers": part(b"a: " + b"x" * 9000) + END,
    "many headers": part(b"".join(b"a%d: x\r\n" % at for at in range(40)) + DISPOSITION + b'name="a"') + END,
    "a long model": MODEL % (b"m" * 5000) + END,
    "a long number": MODEL % b"m" + NUMBER % (b"0" * 33) + END,
    "a model with a line end": MODEL % b"m\r\nx" + END,
    "a model that is not text": MODEL % b"\xff" + END,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("size", [None, 5])
def test_what_readers_disagree_about_is_refused(body: bytes, size: int | None) -> None:
    with pytest.raises(InvalidRequestError):
        scanned(body, size)


def test_any_bytes_pass_or_are_refused_in_any_pieces() -> None:
    pick = random.Random(7)
    words = [b"--b", b"\r\n", b"--", DISPOSITION, b'name="model"', b"\r\n\r\n", b"x", b'"', MODEL % b"m", END]
    for _ in range(3000):
        body = b"".join(pick.choices(words, k=pick.randrange(1, 9)))
        outcomes = []
        for size in (None, 1, 3):
            try:
                outcomes.append(scanned(body, size).model)
            except InvalidRequestError as error:
                outcomes.append(error.code)
        assert outcomes[0] == outcomes[1] == outcomes[2], body


@pytest.mark.parametrize(
    ("given", "boundary"),
    [
        ("multipart/form-data; boundary=----abc123", "----abc123"),
        ('Multipart/Form-Data;boundary="a:b"', "a:b"),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary=" + "a" * 71, None),
        ("multipart/form-data; boundary=a; boundary=b", None),
        ("multipart/form-data; boundary=a; charset=x", None),
        ('multipart/form-data; boundary="a', None),
        ("multipart/form-data; boundary=a\r\nx: y", None),
    ],
)
def test_boundary(given: str, boundary: str | None) -> None:
    if boundary is None:
        with pytest.raises(InvalidRequestError):
            boundary_of(given)
    else:
        assert boundary_of(given) == boundary
        assert boundary_of(content_type_of(boundary)) == boundary
