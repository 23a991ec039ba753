"""Writes the files of the tiny Llama model that the CPU builds of vLLM serve.

The model has no weights: it is served with ``--load-format dummy``, which fills them from a fixed seed, so that only
the shape counts. The tokenizer is byte-level: ids 0 to 255 are the bytes, then come the two marks of a sequence. Run
it with the Python of any environment that has ``tokenizers`` (each wheel set's has):

    PYTHON images/models/make_tiny_llama.py images/models/tiny-llama

The output is the same, byte for byte, whenever the version of ``tokenizers`` writes the same JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

BYTES = 256
BOS, EOS = "<s>", "</s>"
BOS_ID, EOS_ID = BYTES, BYTES + 1

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "hidden_act": "silu",
    "hidden_size": 256,
    "initializer_range": 0.02,
    "intermediate_size": 688,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 512,
}

GENERATION_CONFIG: dict[str, Any] = {"bos_token_id": BOS_ID, "do_sample": False, "eos_token_id": EOS_ID}

TOKENIZER_CONFIG: dict[str, Any] = {
    "add_bos_token": False,
    "add_eos_token": False,
    "bos_token": BOS,
    "clean_up_tokenization_spaces": False,
    "eos_token": EOS,
    "model_max_length": CONFIG["max_position_embeddings"],
    "tokenizer_class": "PreTrainedTokenizerFast",
}


def byte_symbols() -> list[str]:
    """Return GPT-2's printable character for each byte, in the order of the bytes.

    Bytes that print keep their own character; the others take the characters from U+0100 on, in order.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    spare = iter(range(BYTES, 2 * BYTES))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(BYTES)]


def write_tokenizer(path: Path) -> None:
    """Write tokenizer.json: one token a byte, no merges, and the two marks."""
    # Only the environments that serve the model have it, so the source is checked without it.
    tokenizers: Any = importlib.import_module("tokenizers")
    vocabulary = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(BOS, special=True), tokenizers.AddedToken(EOS, special=True)])
    if (tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)) != (BOS_ID, EOS_ID):
        raise ValueError("the marks did not get the ids that config.json names")
    tokenizer.save(str(path))


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object with a stable layout."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_model(folder: Path) -> None:
    """Write the four files of the model into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", CONFIG)
    write_json(folder / "generation_config.json", GENERATION_CONFIG)
    write_json(folder / "tokenizer_config.json", TOKENIZER_CONFIG)
    write_tokenizer(folder / "tokenizer.json")


def main() -> None:
    """Read the command line and write the model."""
    parser = argparse.ArgumentParser(description="Writes the tiny Llama model.")
    parser.add_argument("folder", type=Path, help="where the model's files go")
    write_model(parser.parse_args().folder)


if __name__ == "__main__":
    main()
