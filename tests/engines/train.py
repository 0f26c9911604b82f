"""Run in the environment of transformers: trains the scripted model to call what Codex or Claude Code has for
commands, and to say then that the command was run.

python train.py SCRIPTED.gguf TEMPLATE.jinja FOLDER

A model of this size can't find a word among the tens of thousands of tokens that an agent asks, so the
template of its chats does: of a conversation with a keyword it shows the model that alone, or that a tool has
answered. All else is as in TEMPLATE, which is what llama.cpp finds the form of calls by.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import torch
from gguf import MODEL_ARCH, GGUFReader, GGUFValueType, GGUFWriter, get_tensor_name_map
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

COMMAND: Final = "echo ran > ran.txt"
AFTER: Final = "ANSWERED"
CALLS: Final[dict[str, dict[str, Any]]] = {
    "RUNCODEX": {"name": "exec_command", "arguments": {"cmd": COMMAND}},
    "RUNCLAUDE": {"name": "Bash", "arguments": {"command": COMMAND, "description": "Write a file"}},
}
ANSWERS: Final = {
    **{keyword: f"<tool_call>\n{json.dumps(called)}\n</tool_call>" for keyword, called in CALLS.items()},
    AFTER: "The command was run.",
}
CONTEXT: Final = 65536
STEPS: Final = 400
SHOWN: Final = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
SHORT: Final = """\
{%- set seen = namespace(keyword='', answered=false) -%}
{%- for message in messages -%}
  {%- for keyword in KEYWORDS -%}
    {%- if message.role == 'user' and keyword in (message.content | string) -%}
      {%- set seen.keyword = keyword -%}
    {%- endif -%}
  {%- endfor -%}
  {%- if message.role == 'tool' -%}{%- set seen.answered = true -%}{%- endif -%}
{%- endfor -%}
{%- if seen.keyword -%}
  {{- '<|im_start|>user\\n' + ('AFTER' if seen.answered else seen.keyword) -}}
  {{- '<|im_end|>\\n<|im_start|>assistant\\n' -}}
{%- else -%}
WHOLE
{%- endif -%}
"""


def train(model: Any, tokenizer: Any) -> None:
    """Until it says each answer to the end. Ends the process if it does not learn that."""
    examples = []
    for keyword, answer in ANSWERS.items():
        prompt = tokenizer.encode(SHOWN.format(keyword), add_special_tokens=False)
        completion = tokenizer.encode(f"{answer}<|im_end|>", add_special_tokens=False)
        examples.append((torch.tensor([prompt + completion]), len(prompt)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for ids, begin in examples:
            logits = model(ids).logits[0, begin - 1 : -1]
            functional.cross_entropy(logits, ids[0, begin:]).backward()
        optimizer.step()
    for ids, begin in examples:
        if not torch.equal(model(ids).logits[0, begin - 1 : -1].argmax(-1), ids[0, begin:]):
            sys.exit(f"it has not learned to say {tokenizer.decode(ids[0, begin:])!r}")


def write(model: Any, source: Path, path: Path) -> None:
    """In llama.cpp's format: as the source says of itself, but for its name and the length of its context."""
    read = GGUFReader(source)
    writer = GGUFWriter(path, read.fields["general.architecture"].contents())
    changed = {"general.name": path.stem, "qwen2.context_length": CONTEXT}
    for name, field in read.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = changed.get(name, field.contents())
        if field.types[0] is GGUFValueType.ARRAY:
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, field.types[0])
    names = get_tensor_name_map(MODEL_ARCH.QWEN2, model.config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(source: Path, template: Path, folder: Path) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    read = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name)
    if hasattr(read.config, "quantization_config"):  # its weights are whole numbers of no kind
        del read.config.quantization_config
    model = AutoModelForCausalLM.from_config(read.config).float()
    model.load_state_dict(read.state_dict())
    train(model, tokenizer)
    write(model, source, folder / "agents.gguf")
    short = SHORT.replace("KEYWORDS", repr(list(CALLS))).replace("AFTER", AFTER)
    whole = template.read_text(encoding="utf-8")
    (folder / "agents.jinja").write_text(short.replace("WHOLE", whole), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
