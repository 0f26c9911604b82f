"""Run in the environment of transformers: a model in llama.cpp's format becomes a folder in transformers'.

python convert.py MODEL.gguf TEMPLATE.jinja FOLDER
"""

import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(source: Path, template: Path, folder: Path) -> None:
    """The model, its tokenizer with this template of a chat, and what ends its answers."""
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    read = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name)
    config = read.config
    if hasattr(config, "quantization_config"):  # its weights are whole numbers of no kind
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(read.state_dict())
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.generation_config.max_new_tokens = 1024
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


if __name__ == "__main__":
    convert(*map(Path, sys.argv[1:]))
