"""A completion on the wire: vLLM's chunks for a stream, vLLM's object for a whole answer.

As vLLM 0.18 to 0.24 writes them: each chunk with all its nulls; token_ids when return_token_ids is asked for; the
last token's chunk carries finish_reason; then, with include_usage, a chunk without choices, from which nulls are left
out and which has prompt_tokens_details only where the flag is on and something was cached; then [DONE]. One
difference: vLLM's first chunk repeats the prompt's ids with return_token_ids; here prompt_token_ids stays null, since
50 000 of them are a cost that no client asked for. A client must tolerate both.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from images.simulated.connection import Connection
from images.simulated.faults import Behaviour
from images.simulated.requests import Plan, error_body
from images.simulated.scheduler import Sequence
from images.simulated.tokens import EOS_ID

_ERROR = error_body("Internal server error", "InternalServerError", None, 500)
_DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Label:
    """What stands at the head of every chunk, and whether usage may carry prompt_tokens_details."""

    id: str
    created: int
    model: str
    prompt_details: bool


class Completion:
    """One completion in the event loop. token() is called for every token the engine emits.

    `call_later(seconds, callback)` is the loop's; `leave` is called once when nothing more is to be sent, with True
    when the engine still works on the request and must drop it.
    """

    def __init__(
        self,
        label: Label,
        plan: Plan,
        behaviour: Behaviour,
        sequence: Sequence,
        connection: Connection,
        call_later: Callable[[float, Callable[[], None]], object],
        leave: Callable[[bool], None],
    ) -> None:
        self._label = label
        self._plan = plan
        self._behaviour = behaviour
        self._sequence = sequence
        self._connection = connection
        self._call_later = call_later
        self._leave = leave
        self._left = False
        self._count = 0
        self._sent = 0
        self._shown = 0
        self._finished = False
        self._stalled = False
        self._events: list[bytes] = []
        start = {"id": label.id, "object": "text_completion", "created": label.created, "model": label.model}
        self._head = orjson.dumps(start)[:-1]

    def begin(self) -> None:
        """Send what comes before the first token."""
        if self._plan.stream:
            self._connection.begin_stream()

    def abandon(self) -> None:
        """The client has gone."""
        self._depart(unfinished=not self._finished)

    def token(self, finished: bool) -> None:
        """One more token has been emitted; `finished` with the last."""
        if self._left:
            return
        if self._behaviour.cut is not None and self._count >= self._behaviour.cut_after:
            self._cut(self._behaviour.cut, finished)
            return
        self._count += 1
        self._finished = finished
        if self._count == self._behaviour.stall_after:
            self._stalled = True
            self._call_later(self._behaviour.stall_s, self._resume)
        if not self._plan.stream:
            self._respond_when_finished()
            return
        if finished or self._count - self._sent >= self._behaviour.tokens_per_chunk:
            self._events.append(self._chunk())
        if finished:
            self._events += self._closing()
        self._flush()

    def _resume(self) -> None:
        self._stalled = False
        if self._left:
            return
        if self._plan.stream:
            self._flush()
        else:
            self._respond_when_finished()

    def _flush(self) -> None:
        """Send the events that are due: each in a write of its own, or several in one where that is the fault."""
        if self._stalled:
            return
        together = self._behaviour.events_per_write
        while self._events and (self._finished or len(self._events) >= together):
            self._connection.write_event(b"".join(self._events[:together]))
            del self._events[:together]
        if self._finished:
            self._connection.end_stream()
            self._depart(unfinished=False)

    def _respond_when_finished(self) -> None:
        if self._finished and not self._stalled:
            self._connection.respond(200, self._whole())
            self._depart(unfinished=False)

    def _cut(self, kind: str, finished: bool) -> None:
        if kind == "crash_at_request_n":
            os.kill(os.getpid(), signal.SIGKILL)
        for event in self._events:
            self._connection.write_event(event)
        if kind == "reset":
            self._connection.reset()
        elif kind == "truncated_close":
            self._connection.close()
        elif self._plan.stream:
            self._connection.write_event(b"data: " + _ERROR + b"\n\n")
            self._connection.write_event(_DONE)
            self._connection.end_stream()
        else:
            self._connection.respond(500, _ERROR)
        self._depart(unfinished=not finished)

    def _depart(self, *, unfinished: bool) -> None:
        if not self._left:
            self._left = True
            self._leave(unfinished)

    def _ids(self, begin: int, end: int) -> list[int]:
        ids = list(self._plan.output[begin:end])
        return [*ids, EOS_ID] if end > len(self._plan.output) else ids

    def _text(self) -> bytes:
        """The text that becomes visible now; what could begin a stop string is held back until the end."""
        plan = self._plan
        visible = plan.text_length if self._finished else min(plan.text_length, self._count - plan.held_back)
        visible = max(visible, self._shown)
        text = plan.output[self._shown : visible]
        self._shown = visible
        return b"" if self._behaviour.hide_text else text

    def _reasons(self) -> tuple[bytes, bytes]:
        if not self._finished:
            return b"null", b"null"
        return orjson.dumps(self._plan.finish_reason), orjson.dumps(self._plan.stop_reason)

    def _chunk(self) -> bytes:
        ids = orjson.dumps(self._ids(self._sent, self._count)) if self._plan.return_token_ids else b"null"
        self._sent = self._count
        reason, stop_reason = self._reasons()
        return (
            b'data: %b,"choices":[{"index":0,"text":"%b","logprobs":null,"finish_reason":%b,"stop_reason":%b,'
            b'"prompt_token_ids":null,"token_ids":%b}],"usage":%b}\n\n'
        ) % (
            self._head,
            # Output is printable ASCII without quotes and backslashes (tokens.py), but for answers to questions.
            self._text() if self._plan.plain else orjson.dumps(self._text().decode("ascii"))[1:-1],
            reason,
            stop_reason,
            ids,
            orjson.dumps(self._usage(details=False)) if self._plan.continuous_usage else b"null",
        )

    def _closing(self) -> list[bytes]:
        if not self._plan.include_usage or self._behaviour.omit_usage:
            return [_DONE]
        usage = {key: value for key, value in self._usage(details=True).items() if value is not None}
        return [b'data: %b,"choices":[],"usage":%b}\n\n' % (self._head, orjson.dumps(usage)), _DONE]

    def _usage(self, *, details: bool) -> dict[str, object]:
        prompt = self._plan.prompt_tokens
        completion = self._count + (self._behaviour.surplus_tokens if self._finished else 0)
        cached = self._sequence.cached
        shown = details and self._label.prompt_details and cached > 0
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached} if shown else None,
        }

    def _whole(self) -> bytes:
        text = self._text()
        choice = {
            "index": 0,
            "text": text.decode("ascii"),
            "logprobs": None,
            "finish_reason": self._plan.finish_reason,
            "stop_reason": self._plan.stop_reason,
            "token_ids": self._ids(0, self._count) if self._plan.return_token_ids else None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
        }
        usage = None if self._behaviour.omit_usage else self._usage(details=True)
        rest = {"service_tier": None, "system_fingerprint": None, "usage": usage, "kv_transfer_params": None}
        return self._head + b',"choices":[' + orjson.dumps(choice) + b"]," + orjson.dumps(rest)[1:]
