"""Requests of ours → the Messages API: images and files."""

from base64 import b64encode

import pytest

from tests.support.anthropic_requests import (
    PNG,
    out,
    refused,
    user,
    words,
)

# ── images and files ─────────────────────────────────────────────────────────────────────────────────
PDF = {"type": "base64", "media_type": "application/pdf", "data": PNG}


def block_of(part):
    body, lost = out([user(words("x"), part)])
    return body["messages"][0]["content"][1:], lost


def image(url, **fields):
    return {"type": "input_image", "image_url": url, **fields}


def test_images_by_address_and_by_data():
    assert block_of(image("https://a/b.png"))[0] == [
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}
    ]
    source = {"type": "base64", "media_type": "image/jpeg", "data": PNG}
    assert block_of(image(f"data:image/jpg;charset=x;base64,{PNG}", detail="original")) == (
        [{"type": "image", "source": source}],
        [],
    )


@pytest.mark.parametrize(
    ("part", "lost"),
    [
        (image(f"data:image/bmp;base64,{PNG}"), "content.input_image.image/bmp"),
        ({"type": "input_image", "file_id": "file_1"}, "content.input_image.file_id"),
        ({"type": "input_file", "file_id": "file_1"}, "content.input_file.file_id"),
        (
            {"type": "input_file", "file_data": f"data:application/zip;base64,{PNG}"},
            "content.input_file.application/zip",
        ),
        ({"type": "input_video", "video_url": "https://a"}, "content.input_video"),
        ({"type": "input_audio", "data": ""}, "content.input_audio"),
    ],
)
def test_what_anthropic_can_not_see_is_a_loss(part, lost):
    assert block_of(part) == ([], [lost])


def test_a_wish_for_detail_is_a_loss():
    assert block_of(image("https://a", detail="high"))[1] == ["content.input_image.detail"]


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ({"file_url": "https://a/b.pdf"}, {"type": "url", "url": "https://a/b.pdf"}),
        ({"file_data": PNG, "filename": "a.PDF"}, PDF),
        ({"file_data": f"data:application/pdf;base64,{PNG}"}, PDF),
        (
            {"file_data": b64encode("hé".encode()).decode(), "filename": "a.txt"},
            {"type": "text", "media_type": "text/plain", "data": "hé"},
        ),
    ],
)  # fmt: skip
def test_files_are_documents(part, source):
    (block,), lost = block_of({"type": "input_file", **part})
    assert (block["type"], block["source"], block.get("title")) == ("document", source, part.get("filename"))
    assert lost == []


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (image("data:image/png,plain"), "image_url"),
        (image("data:image/png;base64,"), "image_url"),
        ({"type": "input_file", "file_data": "data:nothing"}, "file_data"),
        ({"type": "input_file", "file_data": "ä", "filename": "a.txt"}, "file_data"),
    ],
)
def test_malformed_data_is_refused_with_its_place(part, field):
    assert refused([user(words("x"), part)]) == (
        "invalid_value",
        f"input[0].content[1].{field}",
    )
