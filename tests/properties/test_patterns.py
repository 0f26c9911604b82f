"""Every pattern in bridge/ and server/ takes time linear in the text, tested on its worst known input.

The patterns are found in the source, so that a new one without a row here fails. A row says how the pattern
is used and which part of the text grows: a repeated piece, or (prefix, piece, suffix). A pattern whose
repetitions are limited is tested on texts beyond the limit.
"""

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from openresponses_server.observation.recordings import captures
from tests.support import costs
from tests.support.costs import assert_proportional, seconds

ROOT = Path(__file__).parents[2]
FEW, MANY = 2_000, 16_000

ROWS: dict[str, tuple[Any, ...]] = {
    "bridge/openresponses_bridge/conformance/published.py:SLUG": ("fullmatch", "a", ("a:", "b", " "), ":"),
    "bridge/openresponses_bridge/decoder/prose.py:_IN_TITLE": ("sub", "[", "\\", "a"),
    "bridge/openresponses_bridge/decoder/prose.py:_IN_URL": ("sub", " ", "(", "a"),
    "bridge/openresponses_bridge/dialects/anthropic_messages/upstream/messages.py:_ILLEGAL": (
        "sub",
        "a",
        ".",
    ),
    "bridge/openresponses_bridge/dialects/bedrock_converse/upstream/content.py:_UNNAMEABLE": (
        "sub",
        "a",
        " ",
        ".",
    ),
    "bridge/openresponses_bridge/dialects/bedrock_converse/upstream/messages.py:_ILLEGAL": ("sub", "a", " "),
    "server/openresponses_server/upstreams/aws_signing.py:_REGION_IN_HOST": (
        "search",
        ".us-a",
        ("us", "-a", ""),
        ".",
    ),
    "bridge/openresponses_bridge/dialects/gemini/models.py:_NAME": (
        "search",
        "gemini-",
        "gemini-1",
        ("gemini-", "1", ""),
    ),
    "bridge/openresponses_bridge/dialects/gemini/types.py:_SNAKE": ("sub", "_", "_a", "a"),
    "bridge/openresponses_bridge/dialects/gemini/upstream/arguments.py:_STEP": (
        "match",
        (".", "a", ""),
        ("[", "1", "x"),
        ("['", "a", ""),
        ('["', "a", ""),
    ),
    "bridge/openresponses_bridge/dialects/base/fields.py:_HEAD": (
        "fullmatch",
        ("data:", ";", ","),
        ("data:", ";base64", ","),
        ("data:", ";a", ""),
        ("data:", "a", ""),
    ),
    "bridge/openresponses_bridge/dialects/base/refusals.py:_SPECIAL": ("finditer", "…", "{limit", "{field}"),
    "bridge/openresponses_bridge/dialects/base/items.py:_ENCODED": ("fullmatch", "A", ("", "a=", " ")),
    "bridge/openresponses_bridge/dialects/base/fields.py:_NOT_IN_A_NAME": ("sub", "a", " "),
    "bridge/openresponses_bridge/dialects/base/fields.py:_MEDIA_TYPE": (
        "fullmatch",
        "a",
        ("a", ";", ","),
        ("a;", "a", ","),
    ),
    "bridge/openresponses_bridge/dialects/base/fields.py:_SOUND": ("fullmatch", "a", ("a", "-", "!"), "."),
    "bridge/openresponses_bridge/dialects/chat_completions/upstream/tool_calls.py:_BEGINNING": (
        "match",
        " ",
        ("", "\n", "a"),
    ),
    "bridge/openresponses_bridge/calls/identity.py:_NOT_IN_A_NAME": ("split", "a", "<"),
    "bridge/openresponses_bridge/calls/json_text.py:_QUOTES": ("search", "a"),
    "bridge/openresponses_bridge/calls/streamed_arguments.py:_BEHIND": (
        "match",
        ("", "]", "a"),
        ("", " ", "a"),
        ("", "```", "a"),
    ),
    "bridge/openresponses_bridge/calls/streamed_arguments.py:_CUT_BEHIND": (
        "match",
        ("", "]", "a"),
        ("", " ", "a"),
        ("]", "`", "a"),
        ("<", "a", "<"),
    ),
    "bridge/openresponses_bridge/calls/streamed_arguments.py:_MAY_END": (
        "search",
        "a",
        "} ",
        ("}", " ", ","),
    ),
    "bridge/openresponses_bridge/calls/call_ids.py:_FORM": ("fullmatch", ("[", "a", "]{9"), ("[", "-", "")),
    "bridge/openresponses_bridge/dialects/base/think_tags.py:_SPACE": ("match", " ", "\n"),
    "bridge/openresponses_bridge/emitter/citing.py:_BEGINNING": ("search", "http", "https:/", "h"),
    "bridge/openresponses_bridge/emitter/citing.py:_END": ("search", "a", "."),
    "bridge/openresponses_bridge/dialects/responses/items.py:_NO_BEGINNING": ("match", " "),
    "bridge/openresponses_bridge/protocol/usage.py:DIGITS": ("fullmatch", "1"),
    "bridge/openresponses_bridge/sse.py:_WHOLE": (
        "fullmatch",
        ("{", " ", ""),
        ('{"', "}", ""),
        ('{"', "} ", "a"),
        ('{"', "a", ""),
    ),
    "bridge/openresponses_bridge/protocol/ids.py:_LEGAL": ("fullmatch", "a", ("", "a", "!")),
    "bridge/openresponses_bridge/protocol/ids.py:_UUID": ("fullmatch", "0", "0-", ("00000000-", "0000-", "")),
    "bridge/openresponses_bridge/dialects/codex/errors.py:_INCOMPLETE": (
        "search",
        "Incomplete response returned, reason: ",
        ("Incomplete response returned, reason: ", "a", ""),
    ),
    "server/openresponses_server/requests/client_traits.py:_SESSION": (
        "search",
        "session_",
        ("session_", "a", ""),
        ('session_id"', " ", ""),
    ),
    "bridge/openresponses_bridge/dialects/codex/types.py:_WORD": ("sub", "aA", "a", "A"),
    "bridge/openresponses_bridge/dialects/vscode/media.py:_MAGIC[0]": ("match", "\x89PNG"),
    "bridge/openresponses_bridge/dialects/vscode/media.py:_MAGIC[1]": ("match", "\xff\xd8"),
    "bridge/openresponses_bridge/dialects/vscode/media.py:_MAGIC[2]": ("match", "GIF8"),
    "bridge/openresponses_bridge/dialects/vscode/media.py:_MAGIC[3]": ("match", "RIFF"),
    "bridge/openresponses_bridge/dialects/vscode/media.py:_MAGIC[4]": ("match", "B"),
    "bridge/openresponses_bridge/dialects/vscode/media.py:_TEXTUAL": (
        "match",
        ("application/", "a+", ""),
        ("application/", "a", ""),
    ),
    "bridge/openresponses_bridge/dialects/vscode/media.py:_URL": ("match", "http"),
    "bridge/openresponses_bridge/dialects/vscode/media.py:_HEAD": (
        "fullmatch",
        ("data:", ";", "x"),
        ("data:", ";base64", "x"),
        ("data:", ";a", ""),
        ("data:", "a", ""),
    ),
    "bridge/openresponses_bridge/dialects/vscode/request.py:_LEGAL": ("fullmatch", "a"),
    "bridge/openresponses_bridge/emitter/arguments.py:_NOT_IN_A_TYPE": ("sub", "a", " "),
    "bridge/openresponses_bridge/emitter/arguments.py:EXTENSION": ("fullmatch", "a", ("a:", "b", " "), ":"),
    "bridge/openresponses_bridge/models/identity.py:_DATE": ("search", "-20", "-", "-2024-07", "1"),
    "bridge/openresponses_bridge/models/identity.py:_SERVING": (
        "sub",
        "-v1",
        ("-v", "1", ""),
        (":", "1", "x"),
        ":1",
    ),
    "bridge/openresponses_bridge/models/identity.py:_SIZE": ("match", "1", "1x", "1."),
    "bridge/openresponses_bridge/models/identity.py:_VERSION": ("match", "1", "1.", "1p", ("v", "1.1", "x")),
    "bridge/openresponses_bridge/models/identity.py:_GLUED": (
        "match",
        "a",
        ("aaa", "1", "x"),
        ("aaa", "1.", ""),
    ),
    "bridge/openresponses_bridge/models/identity.py:_SINGLE": ("match", "1"),
    "bridge/openresponses_bridge/seal.py:_KIND": ("fullmatch", "a"),
    "bridge/openresponses_bridge/seal.py:_ENVELOPE": ("match", ("orb", "1", ""), ("orb1.", "\n", "")),
    "bridge/openresponses_bridge/seal.py:_BODY": (
        "fullmatch",
        ("s.", "a", ""),
        ("s.a.", "a", "==="),
        ("s.a.", "=", ""),
    ),
    "bridge/openresponses_bridge/text.py:_HALF": ("search", "a", "\ud800"),
    "bridge/openresponses_bridge/text.py:_PAIR": ("sub", "a", "\ud800", "\udc00"),
    "bridge/openresponses_agent/tools/registry.py:_NAME": ("fullmatch", "a"),
    "bridge/openresponses_bridge/calls/identity.py:_ILLEGAL": ("sub", "a", "."),
    "bridge/openresponses_bridge/calls/json_input.py:_SPACE": ("match", " ", "a"),
    "bridge/openresponses_bridge/calls/json_input.py:_BETWEEN_MEMBERS": ("match", ", ", "a"),
    "bridge/openresponses_bridge/calls/json_input.py:_STRUCTURE": ("search", "a"),
    "bridge/openresponses_bridge/calls/json_input.py:_SPECIAL": ("search", "a"),
    "bridge/openresponses_bridge/calls/json_input.py:_ESCAPE": ("match", "\\", "a"),
    "bridge/openresponses_bridge/calls/json_input.py:_ESCAPE_BEGUN": ("fullmatch", "\\", ("\\u", "1", "")),
    "bridge/openresponses_bridge/calls/json_text.py:_TOKEN": (
        "match",
        " ",
        ('"', "a", ""),
        ('"', "\\n", ""),
        "1",
        ("1.", "1", "e"),
    ),
    "bridge/openresponses_bridge/calls/json_text.py:_CUT[0]": (
        "match",
        " ",
        ('"', "a", "\n"),
        ('"', "\\n", "\n"),
        ('"', "\\", ""),
    ),
    "bridge/openresponses_bridge/calls/json_text.py:_CUT[1]": (
        "match",
        " ",
        "1",
        ("1.", "1", "x"),
        ("-", "1", "x"),
    ),
    "bridge/openresponses_bridge/calls/json_text.py:_MARK": ("search", "a"),
    "bridge/openresponses_bridge/calls/identity.py:_LEADING_TOKENS": ("sub", "<|a|>", " ", ("<|", "a", "<")),
    "bridge/openresponses_bridge/calls/identity.py:_OF_THE_MODEL": ("sub", "tools", ("to=", "tools", "")),
    "bridge/openresponses_bridge/calls/identity.py:_CALL_NUMBER": ("sub", ":1", "1", (":", "1", "a")),
    "bridge/openresponses_bridge/calls/streamed_arguments.py:_BEFORE": (
        "match",
        "{}",
        " ",
        ("{", " ", ""),
        ("{}", " ", "x"),
        ("<|", "a", ""),
        ("[", "A", ""),
        ("", "[A]{ }", "x"),
    ),
    "bridge/openresponses_bridge/calls/streamed_arguments.py:_WAITING": (
        "match",
        "{}",
        " ",
        ("{", " ", ""),
        ("{}", " ", "x"),
        ("<|", "a", "<"),
        ("[", "A", "a"),
        ("", "[A]{ }", "x"),
    ),
    "bridge/openresponses_bridge/calls/streamed_arguments.py:_EMPTY": ("search", "{}", "[A]", ("{", " ", "")),
    "bridge/openresponses_bridge/calls/unwrap.py:FENCE[0]": (
        "match",
        " ",
        "`",
        ("```", "a", ""),
        ("```", " ", ""),
    ),
    "bridge/openresponses_bridge/calls/unwrap.py:HEREDOC[0]": (
        "match",
        " ",
        ("<<", " ", ""),
        ("<<'", "a", ""),
        ("applypatch", " ", ""),
    ),
    "bridge/openresponses_bridge/dialects/interactions/client/outbound.py:_EVENT_ID": (
        "fullmatch",
        "1",
        ("1.", "1", ""),
    ),
    "bridge/openresponses_bridge/dialects/interactions/client/steps.py:_GOOGLES": (
        "match",
        "https://",
        ("https://", "a", ".googleapis.com/"),
    ),
    "bridge/openresponses_bridge/dialects/interactions/client/steps.py:_VIDEO": (
        "match",
        "https://",
        ("https://youtube.com", "a", ""),
    ),
    "server/openresponses_server/upstreams/sessions.py:_NAME": ("fullmatch", "a", ("a", "-", " ")),
    "server/openresponses_server/upstreams/sessions.py:_VALUE": ("fullmatch", "a", ("a", " ", ""), "a "),
    "server/openresponses_cli/commands/commit.py:_COMMIT": ("fullmatch", "a", ("a", "a", "g")),
    "server/openresponses_cli/agents/tools/folder.py:_HEAD_SAYS": ("match", "r", "a", "ref"),
    "server/openresponses_cli/agents/tools/files.py:_RANGE": (
        "match",
        ("@@ -", "1", ""),
        ("@@ -1,", "1", " "),
        ("@@ -1 +", "1", "x"),
    ),
    "server/openresponses_cli/agents/tools/search.py:_Search[0]": (
        "match",
        "a",
        "b",
        "/",
        ("a", "bc", "x"),
        ("ab", "x.p", ""),
    ),
    "server/openresponses_cli/agents/tools/semantic.py:_HUMP": ("sub", "a", "A", "aA"),
    "server/openresponses_cli/agents/tools/semantic.py:_WORD": ("findall", "a", "_", "a "),
    "server/openresponses_cli/agents/task_context.py:_NAMED": (
        "findall",
        "#file:",
        (" ", '#file:"', ""),
        (" ", '#file:"a ', ""),
        ('#file:"', "a", "\n"),
    ),
    "server/openresponses_cli/agents/tools/usages.py:_WORDS": ("findall", "a", "!", "a "),
    "server/openresponses_server/observation/recordings/captures.py:_SSE_LINE": (
        "match",
        ("data", " ", "x"),
        "data",
    ),
    "server/openresponses_server/observation/recordings/captures.py:_FIELD": ("match", "data"),
    "server/openresponses_server/observation/recordings/captures.py:_STRINGS": (
        "sub",
        '"',
        ('"', "a", ""),
        '"a',
    ),
    "server/openresponses_cli/agents/coding/running.py:_VARIABLE": (
        "findall",
        "$",
        "${",
        ("${", "A", ""),
        "${A",
    ),
    "server/openresponses_cli/agents/coding/agents.py:_VERSION": ("search", "1", "1.", "1.1", "12345678."),
    "server/openresponses_server/settings/files.py:_VARIABLE": ("sub", "$", "${", "${A", ("${A:-", "a", "")),
    "server/openresponses_cli/commands/keys.py:_AGE": ("fullmatch", "1", "1d"),
    "server/openresponses_cli/commands/keys.py:_NUMBER": ("fullmatch", "1", ("1.", "1", ""), "1."),
    "server/openresponses_cli/commands/init.py:_NAME": ("fullmatch", "a", "_", "1"),
    "server/openresponses_server/settings/files.py:_HASH": ("fullmatch", ("sha256:", "a", "")),
    "bridge/openresponses_bridge/dialects/base/failures.py:_ERROR_STATUS": ("fullmatch", "4"),
    "bridge/openresponses_bridge/dialects/base/surface.py:_PARAMETER": ("split", "{", ("{", "a", ""), "{a}"),
    "server/openresponses_server/api/openapi/operations.py:_NOT_IN_A_NAME": ("sub", "a", "/"),
    "server/openresponses_server/store/logs/file.py:_NAME": ("fullmatch", "a", ("", "a", "!")),
    "server/openresponses_server/store/logs/file.py:_NETWORK": (
        "fullmatch",
        "smb",
        ("fuse.ceph", "a", "\n"),
        ("smb", "a", "!"),
    ),
    "bridge/openresponses_bridge/models/identity.py:_POINT": ("sub", "1", "1p", "p"),
    "bridge/openresponses_bridge/models/identity.py:_WEIGHTS": (
        "match",
        ("q1_", "a", ""),
        ("q1", "_", "!"),
        "8bit",
    ),
    "bridge/openresponses_bridge/dialects/anthropic_messages/client/surface.py:_CLAUDE_CODE": (
        "match",
        "claude-",
        "claude-code",
    ),
    "server/openresponses_server/requests/outgoing.py:_ENCRYPTED": (
        "search",
        '"',
        '"encrypted_content',
        '"signature',
    ),
    "server/openresponses_server/upstreams/catalog.py:_DUMPED_NAME": ("fullmatch", "a", ("a", "/", "!")),
    "server/openresponses_server/upstreams/key_command.py:_PRINTED": ("fullmatch", "a", ("", "a", " ")),
    "server/openresponses_server/upstreams/refusals.py:_LIMIT": (
        "fullmatch",
        "x-ratelimit-",
        ("x-ratelimit-reset", "-", "!"),
        ("anthropic-ratelimit-", "a-", "reset"),
        ("anthropic-ratelimit-", "-reset", "!"),
    ),
    "server/openresponses_server/upstreams/refusals.py:_PART": (
        "findall",
        "1",
        "1.",
        ("", "1.1", "m"),
        "1ms",
    ),
    "server/openresponses_server/upstreams/refusals.py:_DURATION": ("fullmatch", "1", "1m", ("1.", "1", "s")),
    "server/openresponses_server/upstreams/refusals.py:_SECONDS": ("fullmatch", "1", "1.", ("1.", "1", "s")),
    "server/openresponses_server/upstreams/refusals.py:_NAMES_MODEL": (
        "search",
        "mode",
        "deployment_",
        "model_",
    ),
    "server/openresponses_server/hosted/html.py:_BLOCKS": ("fullmatch", "h1", "div", "p"),
    "server/openresponses_server/hosted/html.py:_SILENT": ("fullmatch", "script", "form"),
    "server/openresponses_server/settings/hosts.py:_AUTHORITY": (
        "fullmatch",
        "a",
        ("[", "1:", ""),
        ("a:", "1", ""),
    ),
    "server/openresponses_server/observation/recordings/masking.py:_RATE_LIMITS": (
        "fullmatch",
        ("x-ratelimit-", "a", ""),
        ("x-ratelimit-", "a", "!"),
    ),
    "bridge/openresponses_bridge/protocol/secrets.py:_SECRET_NAME": (
        "search",
        "api_",
        "access",
        "auth",
        "refresh",
    ),
    "server/openresponses_server/observation/recordings/masking.py:_SECRET_HEADER": ("search", "ke", "toke"),
    "server/openresponses_server/observation/recordings/masking.py:_SECRET_PARAMETER": (
        "search",
        "ke",
        "toke",
        "secre",
    ),
    "server/openresponses_server/observation/recordings/writer.py:_NOT_IN_A_NAME": ("sub", "a", "/"),
    "server/openresponses_server/limits/requests.py:_STRINGS": ("sub", '"', ('"', "a", ""), '"a'),
    "server/openresponses_server/observation/trace_folder.py:_ID": ("fullmatch", "a"),
    "server/openresponses_server/api/middleware.py:_VALID_ID": ("fullmatch", "a"),
    "server/openresponses_server/api/origins.py:_ORIGIN": ("fullmatch", "a", ("a://", "a", "")),
    "server/openresponses_server/api/openapi/document.py:_CONVERTER": ("sub", ":", (":", "a", ""), ":a"),
    "bridge/openresponses_bridge/schemas/checking.py:_INDEX": ("fullmatch", "1"),
    "server/openresponses_server/store/listing.py:_MODEL": (
        "search",
        '"model":"',
        ('"model":"', "a", ""),
        ('"model":"', "\\a", ""),
    ),
    "server/openresponses_server/store/listing.py:_TEXT": (
        "search",
        '"text":"',
        ('"text":"', "a", ""),
        ('"text":"', "\\a", ""),
    ),
    "server/openresponses_server/store/listing.py:_UNFINISHED_ESCAPE": ("sub", "\\", "\\u00"),
    "server/openresponses_server/store/sql/failures.py:_SERVERS_WORDS": (
        "findall",
        "failed: ",
        ("failed: ", "a", ""),
        "failed: a:",
    ),
    "server/openresponses_server/store/sql/failures.py:_NETWORKS_WORDS": (
        "findall",
        "failed: ",
        "a",
        "\n",
    ),
    "server/openresponses_server/store/sql/failures.py:_REFUSALS": (
        "search",
        "does not ",
        "authentication ",
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_PIECE": (
        "findall",
        " ",
        "a ",
        ("a", " ", ""),
        "a",
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_WORDS_ASKED": (
        "search",
        "1",
        "1 ",
        ("1", " ", ""),
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_words": (
        "search",
        "1",
        "1 ",
        "long",
        "run out of ",
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_QUOTED": (
        "search",
        "“",
        '"',
        ("“", "a", ""),
        "`",
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_PLACE": (
        "search",
        "in",
        ("in", " ", ""),
        "in A",
        ("in A", " ", ""),
        "in ",
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_PATCH_TEXT": (
        "search",
        "*",
        "*** Begin Patch\n",
        ("*** Begin Patch\n", "*** End Patc", ""),
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_NAMES[0]": ("search", "patc"),
    "server/openresponses_server/upstreams/demo/behaviours.py:_NAMES[1]": ("search", "locatio"),
    "server/openresponses_server/upstreams/demo/behaviours.py:_NAMES[2]": ("search", "scrip"),
    "server/openresponses_server/upstreams/demo/behaviours.py:_NAMES[3]": ("search", "fil"),
    "server/openresponses_server/upstreams/demo/behaviours.py:_NAMES[4]": ("search", "lin"),
    "server/openresponses_server/upstreams/demo/behaviours.py:_NAMES[5]": (
        "search",
        "http://",
        "http",
        ("http://", "a", ""),
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_NAMES[6]": ("search", "expressio"),
    "server/openresponses_server/upstreams/demo/behaviours.py:_WORD": ("findall", "a", "1"),
    "server/openresponses_server/upstreams/demo/behaviours.py:_ASKS_FOR_A_TOOL": (
        "search",
        "functio",
        "call",
        "use",
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_CAMEL": ("sub", "aA", "a", "A"),
    "server/openresponses_server/api/forwarding.py:_DISPOSITION": (
        "fullmatch",
        ("attachment; filename=", "a", "/"),
        ("inline; filename=", " ", "/"),
    ),
    "server/openresponses_server/api/forwarding.py:_LENGTH": ("fullmatch", "1", ("1", "1", "x")),
    "server/openresponses_server/api/forwarding.py:_TYPE": (
        "fullmatch",
        ("a/b", "; a=b", "\n"),
        ("a/b; ", "a", "\n"),
        ("a/b; a=", "a", "\n"),
        ("", "a", "\n"),
    ),
    "server/openresponses_server/http/multipart.py:_HEADER": (
        "fullmatch",
        ("a:", " ", "\n"),
        ("a:", "a", "\n"),
        ("", "a", "\n"),
    ),
    "server/openresponses_server/http/multipart.py:_PARAMETER": (
        "match",
        (";", " ", "!"),
        (";", "a", "!"),
        (';a="', "a", ""),
        (";a=", "a", "\n"),
    ),
    "server/openresponses_server/http/multipart.py:_TOKEN": ("fullmatch", "a", ("a", "a", "!")),
    "server/openresponses_server/http/multipart.py:_TYPE": (
        "fullmatch",
        ("multipart/form-data", " ", "!"),
        ("multipart/form-data;", " ", "!"),
        ('multipart/form-data;boundary="', "a", "!"),
    ),
    "server/openresponses_server/requests/forwarding.py:_COUNTING": (
        "match",
        ("application/", "a+", "x"),
        ("application/", "a", ""),
        ("application/a", ".", "+json"),
    ),
    "server/openresponses_server/requests/forwarding.py:_DURATION": (
        "match",
        " ",
        ("{", " ", ""),
        ("{", '"a":1,', ""),
        ("{", '"a":"b",', "}"),
        ('{"', "a", ""),
        ('{"a":"', "\\\\", ""),
        ('{"a":', "1", "]"),
        ('{"a":1', " ", "]"),
        ('{"duration"', " ", "x"),
        ('{"duration":', "1", ","),
    ),
    "server/openresponses_server/requests/forwarding.py:_IMAGE": (
        "finditer",
        '"url"',
        ('"type"', " ", ""),
        ('"type":', " ", '"'),
        ('"type":"image_', "a", ""),
        '"type":"image_a.partial_image"',
    ),
    "server/openresponses_server/requests/forwarding.py:_USAGE": (
        "findall",
        '"usage"',
        ('"usage"', " ", "x"),
        ('"usage":', " ", "x"),
    ),
    "server/openresponses_server/http/client/proxies.py:_ENTRY": (
        "fullmatch",
        "a",
        "[",
        ("[", "a", ""),
        ("[", "a", "]:x"),
        ("a:", "1", ""),
        ":",
    ),
    "server/openresponses_server/http/client/proxies.py:_STATUS_LINE": (
        "match",
        "HTTP/1.1 ",
        ("HTTP/1.1 2", "0", ""),
    ),
    "server/openresponses_server/upstreams/profiles/__init__.py:_NAME": ("fullmatch", "a", ("", "a", "!")),
    "server/openresponses_server/api/inspector/__init__.py:is_page[0]": (
        "fullmatch",
        ("/inspector", "/", ""),
        ("/inspector/", "a", "\n"),
    ),
    "server/openresponses_server/upstreams/refusals.py:_THOUSANDS": ("sub", "1,", "111"),
    "server/openresponses_server/upstreams/refusals.py:_NUMBER": ("findall", "1", ".1"),
    "server/openresponses_server/upstreams/refusals.py:_WINDOW": (
        "search",
        "context length ",
        ("", "!", "1"),
    ),
    "server/openresponses_server/upstreams/refusals.py:_GIVEN": ("search", "1 ", ("", "!", "in the ")),
    "server/openresponses_server/upstreams/refusals.py:_SUM": ("search", "1 + ", ("", "!", "> 1")),
    "server/openresponses_server/upstreams/refusals.py:_ASKED": ("search", '"max_tokens":1', ("", "!", "1")),
    "bridge/openresponses_bridge/dialects/gemini/client/contents.py:_GOOGLES": (
        "match",
        ("https://", "a", ".googleapis.com"),
        "gs:/",
    ),
    "bridge/openresponses_bridge/dialects/gemini/client/contents.py:_VIDEO": ("match", "https://www."),
    "bridge/openresponses_bridge/dialects/gemini/client/fields.py:_INTEGER": ("fullmatch", "1"),
    "bridge/openresponses_bridge/wire.py:_KNOWN_CLIENTS": (
        "search",
        "ai-sdk/open",
        "ai-sdk/openai",
        "codex ",
        "a",
    ),
    "bridge/openresponses_bridge/wire.py:_CODEX": ("match", "code"),
    "bridge/openresponses_bridge/calls/coercion.py:_NUMBER": (
        "fullmatch",
        "1",
        ("1.", "1", "x"),
        ("1e", "1", ""),
        "1.",
    ),
    "bridge/openresponses_bridge/protocol/codec.py:_UNTYPED": (
        "search",
        '"type"',
        ('"type"', " ", ""),
        ('"type":', " ", ""),
        '"type": ',
    ),
    "bridge/openresponses_bridge/text.py:_UNSEEN": ("sub", "a", "\ufe0f", "\U0001f600\ufe0f", "\u200d"),
    "server/openresponses_cli/agents/tools/changes.py:_DOCUMENT": (
        "fullmatch",
        ("notes", "-", ""),
        ("notes ", "a", ".md."),
        ("notes", " ", "."),
    ),
    "server/openresponses_cli/agents/tools/changes.py:_TABLE": (
        "fullmatch",
        "a",
        ".csv",
        ("a", "b", ".csv."),
    ),
    "server/openresponses_server/api/spellings.py:_DEPLOYMENT": (
        "fullmatch",
        "/openai/deployments/",
        ("/openai/deployments/", "a", ""),
        ("/openai/deployments/a/", "/", ""),
    ),
    "server/openresponses_server/api/spellings.py:_GEMINI_CALL": (
        "fullmatch",
        ("/models/", "a", ""),
        ("/models/a:", "a", ""),
        ("/models/", ":", ""),
    ),
    "server/openresponses_server/api/spellings.py:_SLASHES": ("sub", "/", "/a", "//a"),
    "server/openresponses_server/hosted/html.py:_NAME": ("match", "a", "-", "/", "a-"),
    "server/openresponses_server/http/client/connection.py:_IPV4_FORMS": (
        "fullmatch",
        "0",
        "0.",
        ("", "0", "!"),
        ("0.0.0.", "0", "."),
    ),
    "server/openresponses_server/observation/recordings/captures.py:_LOOKS[0]": (
        "match",
        " ",
        "<",
        (" ", "\n", "<"),
        "curl: ",
    ),
    "server/openresponses_server/observation/recordings/unpacking.py:_CLOCK": (
        "match",
        "1",
        ("1:11:11.", "1", ""),
        ("1:11:11.", "1", " A"),
    ),
    "server/openresponses_server/observation/recordings/unpacking.py:_HAR": (
        "match",
        " ",
        ("{", " ", ""),
        ('{"log"', " ", ""),
    ),
    "server/openresponses_server/observation/recordings/unpacking.py:_METER": (
        "sub",
        "\r",
        " ",
        ("\r", "0", ""),
        "\r" + "0" * 59,
        "\r" + "0" * 61,
    ),
    "server/openresponses_server/observation/recordings/unpacking.py:_OF_CURL": (
        "match",
        " ",
        ("{ [", "1", " "),
        ("  ", " ", "+"),
    ),
    "server/openresponses_server/processes/__init__.py:_FIRST": (
        "match",
        " ",
        ("{", " ", ""),
        ('{"jsonrpc":"2.0",', " ", ""),
        ('{"id":', "1", ""),
        ('{"id":"', "a", ""),
        ('{"id":1', " ", ""),
    ),
    "server/openresponses_server/processes/__init__.py:_LAST": (
        "search",
        '"id"',
        '"id": ',
        ('"id":', "1", ""),
        '"id":"a',
        ('"id":1', " ", ""),
        ('"id":1,', " ", ""),
        ('"id":1}', " ", "x"),
        '"id":1} ',
    ),
    "server/openresponses_server/processes/__init__.py:_OF_REQUEST": (
        "match",
        " ",
        ("{", " ", ""),
        ('{"id":1,', " ", ""),
        ('{"id":"', "a", ""),
        ("{", '"id":1,', ""),
    ),
    "server/openresponses_server/requests/refused_fields.py:_STEP": ("findall", "a", ".", "a.", "["),
    "server/openresponses_server/upstreams/codex/process.py:_THREAD": (
        "findall",
        '"threadId"',
        ('"threadId"', " ", ""),
        ('"threadId":"', "a", ""),
        '"threadId":"a',
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_AGENT": (
        "search",
        "a",
        "sub",
        "subagent",
        "agents_",
    ),
    "server/openresponses_server/upstreams/demo/behaviours.py:_ASKED": ("fullmatch", "user", "user-", "task"),
    "server/openresponses_server/upstreams/demo/behaviours.py:_CONTEXT": ("search", "a", "A", "context"),
    "server/openresponses_server/upstreams/demo/behaviours.py:_TAG": (
        "finditer",
        "<",
        "<a",
        ("<", "a", ""),
        ("<a", " ", ""),
        "<a ",
        "</a.",
    ),
}


USES: dict[str, Callable[[Any, Any], object]] = {
    "sub": lambda pattern, text: pattern.sub(text[:0], text),
    "finditer": lambda pattern, text: list(pattern.finditer(text)),  # which is searched while it is read
}
METHODS = ("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")
TAKES_A_PATTERN = {f"re.{method}" for method in METHODS}


class Found(NamedTuple):
    """A pattern in the source: its place, and its arguments as they are written."""

    key: str
    module: str
    call: ast.Call


def is_of_re(node: ast.AST) -> bool:
    """Whether this is a call of a function of `re` that takes a pattern."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in TAKES_A_PATTERN


def patterns() -> Iterator[Found]:
    for path in [*sorted((ROOT / "bridge").rglob("*.py")), *sorted((ROOT / "server").rglob("*.py"))]:
        source = path.read_text()
        if not re.search(r"\bre\.|\bfrom re\b", source):  # each worker parses the files again
            continue
        where = path.relative_to(ROOT)
        module = ".".join(where.with_suffix("").parts)
        for statement in ast.parse(source).body:
            assert not (isinstance(statement, ast.ImportFrom) and statement.module == "re"), where
            calls = [node for node in ast.walk(statement) if is_of_re(node)]
            calls.sort(key=lambda call: (call.lineno, call.col_offset))  # type: ignore[attr-defined]
            for index, call in enumerate(calls):
                name = name_of(statement)
                alone = isinstance(statement, ast.FunctionDef) or getattr(statement, "value", None) is call
                assert isinstance(call, ast.Call)
                yield Found(f"{where}:{name}" + ("" if alone else f"[{index}]"), module, call)


def name_of(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0])
    if isinstance(statement, ast.AnnAssign):
        return ast.unparse(statement.target)
    return str(getattr(statement, "name", statement.lineno))


def compiled(found: Found) -> Any:
    """The pattern, evaluated in its module; variables of the function around it have sample values."""
    module = importlib.import_module(found.module)
    names = vars(module) | {"pattern": r"long|\d+ words|run out of tokens", "include": "**a*b*/?[c-d]*x.py"}
    names["begins"] = b"|".join(each.pattern for each, _ in captures._LOOKS)
    return eval(compile(ast.Expression(found.call), "<pattern>", "eval"), names)


# patterns of somebody else, which run in a process that is killed when they take too long
# (tests/cli/agents/test_sample_tools.py::test_a_pattern_that_backtracks_is_stopped)
ELSEWHERE = {"server/openresponses_cli/agents/tools/search.py:matches"}
# those of a table, whose widths are bounded
# (tests/bridge/dialects/base/test_refusals.py::test_every_pattern_stands_for_a_bounded_number_of_characters)
ELSEWHERE |= {"bridge/openresponses_bridge/dialects/base/refusals.py:_pattern"}
# literals, of which one is searched
ELSEWHERE |= {
    "bridge/openresponses_bridge/dialects/base/think_tags.py:_known",
    "bridge/openresponses_bridge/dialects/chat_completions/upstream/text_calls.py:TextCalls[0]",
}
# the paths of the clients' APIs, with one parameter at most
# (tests/bridge/dialects/test_surfaces.py::test_a_path_has_one_parameter_at_most)
ELSEWHERE |= {"bridge/openresponses_bridge/dialects/base/surface.py:SurfacePath[0]"}
FOUND = {each.key: each for each in patterns() if each.key not in ELSEWHERE}


def test_every_pattern_has_a_row_and_every_row_a_pattern() -> None:
    assert set(FOUND) ^ set(ROWS) == set()


def test_pattern_without_a_row_and_one_that_backtracks_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "ROUNDS", 3)  # it would not pass in more either
    (call,) = [node for node in ast.walk(ast.parse("x = re.compile(r'(a+)+b')")) if is_of_re(node)]
    assert isinstance(call, ast.Call)
    slow = re.compile(r"a*a*b")
    with pytest.raises(AssertionError):
        assert_proportional(lambda size: seconds(lambda: slow.match("a" * size)), FEW, MANY)


@pytest.mark.parametrize("key", sorted(set(FOUND) & set(ROWS)))
def test_pattern_takes_time_linear_in_its_worst_input(key: str) -> None:
    pattern = compiled(FOUND[key])
    how, *inputs = ROWS[key]
    use = USES.get(how, lambda pattern, text: getattr(pattern, how)(text))
    for each in inputs:
        prefix, piece, suffix = each if isinstance(each, tuple) else ("", each, "")

        def grown(size: int, prefix: str = prefix, piece: str = piece, suffix: str = suffix) -> str | bytes:
            text = prefix + piece * (size // len(piece)) + suffix
            return text.encode("latin-1") if isinstance(pattern.pattern, bytes) else text

        texts = {size: grown(size) for size in (FEW, MANY)}
        assert_proportional(lambda size: seconds(lambda: use(pattern, texts[size])), FEW, MANY)  # noqa: B023
