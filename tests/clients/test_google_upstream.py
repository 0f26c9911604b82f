"""Google's own clients, unmodified, over a Gemini upstream: the features that they use, and an answer that is
cut."""

import json
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.processes import run_agent
from tests.support.serving import serving
from tests.support.upstream import CUT, JSON, Received, Script, ScriptedUpstream, Step

genai = pytest.importorskip("google.genai")
types = pytest.importorskip("google.genai.types")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]
Json = dict[str, Any]
MODEL = "gemini-3-pro"
RATINGS = [{"category": "HARM_CATEGORY_HATE_SPEECH", "probability": "LOW"}]
COUNTS = {"promptTokenCount": 3, "candidatesTokenCount": 1, "trafficType": "ON_DEMAND"}
PIECE: Json = {"content": {"parts": [{"text": "Hel"}]}, "safetyRatings": RATINGS}
CLIENTS = ("genai", "google")
SOUND = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0"


@pytest.fixture
def google(upstream: ScriptedUpstream) -> Iterator[str]:
    reached = UpstreamSettings(name="g", url=upstream.url, dialect="gemini", models=["gemini-*"])
    with serving(Settings(store="memory://", upstreams=[reached])) as base:
        yield base


@pytest.fixture
def client(google: str) -> Any:
    options = types.HttpOptions(base_url=google)
    return genai.Client(api_key="none", http_options=options)


def frame(said: Json) -> Step:
    return f"data: {json.dumps(said)}\n\n".encode()


def run(node: Path, base: str, client: str) -> Any:
    shutil.copy(Path(__file__).parent / "js" / "google.mjs", node / "google.mjs")
    command = ["node", "google.mjs", base, client]
    done = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("client", CLIENTS)
def test_what_google_says_besides_is_read_on_node(
    node: Path, google: str, upstream: ScriptedUpstream, client: str
) -> None:
    end = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": COUNTS}
    upstream.scripts[MODEL] = Script([frame({"candidates": [PIECE]}), frame(end)])
    output = run(node, google, client)
    assert (output["text"], output["ratings"]) == ("Hel", RATINGS)
    assert client == "google" or output["traffic"] == "ON_DEMAND"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("end", ["cut", "error"])
def test_an_answer_that_failed_is_not_taken_for_a_whole_one(
    node: Path, google: str, upstream: ScriptedUpstream, client: str, end: str
) -> None:
    error = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "It closed the connection."}}
    piece = {"candidates": [PIECE], "usageMetadata": COUNTS}
    upstream.scripts[MODEL] = Script([frame(piece), CUT if end == "cut" else frame(error)])
    output = run(node, google, client)
    assert output["text"] == "Hel"
    assert "closed the connection" in output["failed"]
    assert client == "google" or output["usage"] == COUNTS["promptTokenCount"]


def test_code_and_pages_that_google_ran_itself(client: Any, upstream: ScriptedUpstream) -> None:
    code = {"executableCode": {"id": "e", "language": "PYTHON", "code": "print(7)"}}
    result = {"codeExecutionResult": {"id": "e", "outcome": "OUTCOME_OK", "output": "7\n"}}
    page = {"retrievedUrl": "https://a.example", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}
    signed = [{**code, "thoughtSignature": "c2ln"}, result, {"text": "Seven."}]
    candidate = {
        "content": {"role": "model", "parts": signed},
        "finishReason": "STOP",
        "urlContextMetadata": {"urlMetadata": [page]},
    }
    upstream.scripts[MODEL] = Script([json.dumps({"candidates": [candidate]}).encode()], 200, JSON)
    tools = [
        types.Tool(code_execution=types.ToolCodeExecution(), url_context=types.UrlContext()),
        types.Tool(google_search=types.GoogleSearch(search_types=types.SearchTypes())),
    ]
    chat = client.chats.create(model=MODEL, config=types.GenerateContentConfig(tools=tools))
    first = chat.send_message("What is it?")
    assert (first.executable_code, first.code_execution_result, first.text) == ("print(7)", "7\n", "Seven.")
    read = first.candidates[0].url_context_metadata.url_metadata[0]
    assert read.retrieved_url == "https://a.example"
    chat.send_message("Again.")
    sent = upstream.last(MODEL).body
    assert {name for tool in sent["tools"] for name in tool} == {
        "codeExecution",
        "urlContext",
        "googleSearch",
    }
    builtin_tools = {"codeExecution": {}}, {"urlContext": {}}
    assert all(each in sent["tools"] for each in builtin_tools)
    assert sent["contents"][1]["parts"] == signed


def test_files_that_google_keeps_and_sounds(client: Any, upstream: ScriptedUpstream) -> None:
    spoken = {"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": "AAAA"}}
    candidate = {"content": {"role": "model", "parts": [spoken]}, "finishReason": "STOP"}
    upstream.scripts[MODEL] = Script([json.dumps({"candidates": [candidate]}).encode()], 200, JSON)
    file = "https://generativelanguage.googleapis.com/v1beta/files/abc"
    answer = client.models.generate_content(
        model=MODEL,
        contents=[
            types.Part.from_uri(file_uri=file, mime_type="video/mp4"),
            types.Part.from_uri(file_uri="gs://bucket/a.pdf", mime_type="application/pdf"),
            types.Part.from_bytes(data=b"\0" * 3, mime_type="audio/wav"),
            "Say it.",
        ],
        config=types.GenerateContentConfig(
            response_modalities=["AUDIO"],
            cached_content="cachedContents/1",
            speech_config=types.SpeechConfig(language_code="de-DE"),
        ),
    )
    sent = upstream.last(MODEL).body
    assert sent["contents"][0]["parts"][:3] == [
        {"fileData": {"fileUri": file, "mimeType": "video/mp4"}},
        {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
    ]
    assert sent["cachedContent"] == "cachedContents/1"
    assert sent["generationConfig"]["responseModalities"] == ["AUDIO"]
    blob = answer.candidates[0].content.parts[0].inline_data
    assert (blob.mime_type, blob.data) == ("audio/L16;codec=pcm;rate=24000", b"\0\0\0")


def answers(*parts: Json, **candidate: Any) -> Script:
    """A stream of one chunk."""
    content = {"role": "model", "parts": list(parts)}
    return Script([frame({"candidates": [{"content": content, "finishReason": "STOP", **candidate}]})])


def test_gemini_cli_reads_a_page_and_hears_a_sound(
    node: Path, npm: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Its `web_fetch` asks the model to use Google's own tool, and a file that its user names is sent
    whole."""
    page = "https://1.1.1.1/page"  # a public address, to which this test sends no request
    read = {"retrievedUrl": page, "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}
    fetched: list[Json] = []

    def answer(asked: Received) -> Script:
        body = json.dumps(asked.body)
        if {"urlContext": {}} in asked.body.get("tools", ()):
            fetched.append(asked.body)
            return answers({"text": "It will rain."}, urlContextMetadata={"urlMetadata": [read]})
        if '"functionResponse"' in body:
            return answers({"text": "All done." if "It will rain." in body else body[-500:]})
        call = {"name": "web_fetch", "args": {"prompt": f"Will it rain? {page}"}}
        return answers({"functionCall": {"id": "c1", **call}})

    upstream.answer = answer
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "sound.wav").write_bytes(SOUND)
    options = ["--no-probe", "--program", str(npm("@google/gemini-cli") / "gemini")]
    options += ["--upstream", upstream.url, "--dialect", "gemini", "--model", MODEL]
    words = ("--", "--yolo", "--skip-trust", "-p", "What says @sound.wav?")
    done = run_agent(
        "gemini", *options, *words, home=tmp_path, work=tmp_path / "work", data=tmp_path / "data"
    )
    assert "All done." in done.stdout
    assert fetched
    sounds = [each for each in upstream.received if '"audio/wav"' in each.raw.decode()]
    (sound,) = [
        part["inlineData"]
        for content in sounds[0].body["contents"]
        for part in content["parts"]
        if "inlineData" in part
    ]
    assert (sound["mimeType"], b64decode(sound["data"])) == ("audio/wav", SOUND)
