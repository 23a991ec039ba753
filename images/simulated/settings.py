"""What the command line of `serve` says, checked. A wrong use ends the process with status 2 and a message."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Everything a server is started with. The arguments have vLLM's names and meaning where vLLM has them."""

    profile_file: Path
    profile_sha256: str | None
    served_model_name: str
    host: str
    port: int
    seed: int
    time_compression: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    step_log: Path | None
    gsm8k: Path | None
    prompt_tokens_details: bool
    developer_mode: bool


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, is {text!r}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be from {low} to {high}, is {value}")
        return value

    return parse


def _compression(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to 4, is {text!r}") from None
    if not 1 <= value <= 4:
        raise argparse.ArgumentTypeError(f"must be from 1 to 4 (beyond that the machine falsifies it), is {text}")
    return value


def _sha256(text: str) -> str:
    if len(text) != 64 or any(digit not in "0123456789abcdefABCDEF" for digit in text):
        raise argparse.ArgumentTypeError(f"must be 64 hexadecimal digits, is {text!r}")
    return text.lower()


def parse_arguments(argv: Sequence[str], environment: Mapping[str, str]) -> ServeSettings:
    """The settings of `serve ARGS`. Raises SystemExit with status 2 and a message on standard error."""
    parser = argparse.ArgumentParser(prog="python -m images.simulated serve", allow_abbrev=False)
    parser.add_argument("--profile-file", type=Path, required=True, help="the build's profile (TOML)")
    parser.add_argument("--profile-sha256", type=_sha256, help="refuse to start if the profile's bytes differ")
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_whole(0, 65535), default=8000, help="0: a free one, which is printed")
    parser.add_argument("--seed", type=_whole(0, 2**63 - 1), default=0, help="of launch effect and step noise only")
    parser.add_argument("--time-compression", type=_compression, default=1.0, help="1 to 4")
    parser.add_argument("--max-num-seqs", type=_whole(1, 1024), default=16)
    parser.add_argument("--max-num-batched-tokens", type=_whole(1, 2**20), default=8192)
    parser.add_argument("--max-model-len", type=_whole(2, 2**20), default=65536)
    parser.add_argument("--block-size", type=_whole(1, 1024), default=16)
    parser.add_argument("--step-log", type=Path, help="where real step times and request records are written")
    parser.add_argument("--gsm8k", type=Path, help="questions with answers (JSON lines) that the model can answer")
    parser.add_argument("--enable-prompt-tokens-details", action="store_true")
    values = parser.parse_args(argv)
    if values.max_num_batched_tokens < values.max_num_seqs:
        parser.error("argument --max-num-batched-tokens: must not be less than --max-num-seqs")
    return ServeSettings(
        profile_file=values.profile_file,
        profile_sha256=values.profile_sha256,
        served_model_name=values.served_model_name,
        host=values.host,
        port=values.port,
        seed=values.seed,
        time_compression=values.time_compression,
        max_num_seqs=values.max_num_seqs,
        max_num_batched_tokens=values.max_num_batched_tokens,
        max_model_len=values.max_model_len,
        block_size=values.block_size,
        step_log=values.step_log,
        gsm8k=values.gsm8k,
        prompt_tokens_details=values.enable_prompt_tokens_details,
        developer_mode=environment.get("VLLM_SERVER_DEV_MODE") == "1",
    )
