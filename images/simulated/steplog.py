"""The engine's own account of what it did, one JSON object a line, kept so that others can compute the truth.

Kinds of line, by `kind`:
  launch   first line: profile (version, commit, sha256), seed, time_compression, launch_effect, max_num_seqs, pid
  step     start_ns (monotonic), ms (achieved: from the last emission, or from the start after idling, to this
           emission), nominal_ms (the profile's step time over the compression, without launch effect and noise),
           planned_ms (with them), decoding (requests that decode), prefill_tokens, context_tokens (of the decoding)
  request  number, prompt_tokens, cached_tokens, output_tokens, finish_reason, first_emit_ns, last_emit_ns
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import orjson

_FLUSH_NS = 1_000_000_000


class StepLogError(ValueError):
    """A step log that can't be read or from which a number can't be computed; the text names the file."""


class StepLog:
    """Writes a step log. Lines are kept in memory and written once a second, when idle, and at the end.

    With no path nothing is kept. Raises OSError when the file can't be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._file: BinaryIO | None = path.open("wb", buffering=0) if path is not None else None
        self._lines: list[bytes] = []
        self._flushed_ns = 0

    def launch(self, facts: Mapping[str, object]) -> None:
        """Write the first line."""
        if self._file is not None:
            self._lines.append(orjson.dumps({"kind": "launch", **facts}))
            self.flush()

    def add(self, line: Mapping[str, object]) -> None:
        """Keep a line for the next flush."""
        if self._file is not None:
            self._lines.append(orjson.dumps(line))

    def flush_when_due(self, now_ns: int) -> None:
        """Write what is kept if the last time was a second ago or more."""
        if now_ns - self._flushed_ns >= _FLUSH_NS:
            self.flush()
            self._flushed_ns = now_ns

    def flush(self) -> None:
        """Write what is kept."""
        if self._file is None or not self._lines:
            return
        content = memoryview(b"\n".join(self._lines) + b"\n")
        self._lines.clear()
        while content:
            content = content[self._file.write(content) :]

    def close(self) -> None:
        """Write what is kept and close the file. Safe to call twice."""
        if self._file is not None:
            self.flush()
            self._file.close()
            self._file = None


def read_lines(path: Path) -> Iterator[dict[str, object]]:
    """The lines of a step log. A last line that was cut short by a kill is left out; any other bad one is an error.

    Raises StepLogError.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StepLogError(f"{path}: cannot be read: {error.strerror}") from error
    *whole, _cut = content.split(b"\n")
    for number, line in enumerate(whole, 1):
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise StepLogError(f"{path}: line {number} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise StepLogError(f"{path}: line {number} is not an object")
        yield value
