"""The extension reads each part that the corpus' streams become, and writes it as it was."""

import json
import shutil
import subprocess

import pytest

from openresponses_bridge.corpus import cases
from tests.support.shared import REPOSITORY

LIB = REPOSITORY / "server/openresponses_server/vscode/extension/lib/parts.js"
SCRIPT = """
const { Parts } = require(process.argv[1]);
const part = (...names) => class {
  constructor(...values) { names.forEach((name, at) => { this[name] = values[at]; }); }
};
const parts = new Parts({
  LanguageModelTextPart: part('value'), LanguageModelToolCallPart: part('callId', 'name', 'input'),
  LanguageModelDataPart: part('data', 'mimeType'), LanguageModelThinkingPart: part('value', 'id', 'metadata'),
  LanguageModelToolResultPart: part(), LanguageModelPromptTsxPart: part(),
});
const lines = JSON.parse(require('fs').readFileSync(0));
console.log(JSON.stringify(lines.map((line) => parts.knows(line) && parts.write(parts.make(line)))));
"""


def test_the_extension_reads_the_parts_of_the_corpus() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js")
    lines = [part for each in cases() for part in each.parts]
    done = subprocess.run(
        [node, "-e", SCRIPT, str(LIB)],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert {line["type"] for line in lines} >= {"LanguageModelTextPart", "LanguageModelThinkingPart"}
    expected = [{name: value for name, value in line.items() if name != "$mid"} for line in lines]
    assert json.loads(done.stdout) == expected
