"""vLLM's endpoints, as far as they are used here, on top of the engine and the prompt worker."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import orjson

from images.simulated import worker as prompts
from images.simulated.completion import Completion, Label
from images.simulated.connection import Connection, Request
from images.simulated.engine import Emission, Engine
from images.simulated.faults import strike
from images.simulated.metrics import Metrics
from images.simulated.pacing import Pacer
from images.simulated.profile import Profile
from images.simulated.requests import Plan, Reply, error_body
from images.simulated.scheduler import Sequence
from images.simulated.settings import ServeSettings

_METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_DEAD = Reply(500, error_body("EngineCore encountered an issue.", "InternalServerError", None, 500))


class Api:
    """Answers requests. Lives in the event loop; `engine` is set before the first request is served."""

    def __init__(
        self, settings: ServeSettings, profile: Profile, worker: prompts.PromptWorker, metrics: Metrics, pacer: Pacer
    ) -> None:
        self._settings = settings
        self._profile = profile
        self._worker = worker
        self._metrics = metrics
        self._pacer = pacer
        self._loop = asyncio.get_running_loop()
        self._created = int(time.time())
        self._open: dict[int, Completion] = {}
        self._accepted = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.engine: Engine | None = None
        self._routes: dict[str, tuple[str, Callable[[Connection, Request], None]]] = {
            "/health": ("GET", self._health),
            "/version": ("GET", self._version),
            "/v1/models": ("GET", self._models),
            "/metrics": ("GET", self._show_metrics),
            "/v1/completions": ("POST", self._completion),
            "/tokenize": ("POST", self._tokenize),
            "/detokenize": ("POST", self._detokenize),
        }
        if settings.developer_mode:
            self._routes["/reset_prefix_cache"] = ("POST", self._reset_prefix_cache)

    def handle(self, connection: Connection, request: Request) -> None:
        """Answer one request, now or later."""
        method, answer = self._routes.get(request.path, ("", None))
        if answer is None:
            connection.respond(404, b'{"detail":"Not Found"}')
        elif request.method != method:
            connection.respond(405, b'{"detail":"Method Not Allowed"}')
        else:
            answer(connection, request)

    def emit(self, emissions: list[Emission]) -> None:
        """Send the tokens of one step."""
        for number, finished in emissions:
            completion = self._open.get(number)
            if completion is not None:
                completion.token(finished)

    async def stop(self) -> None:
        """Drop what is still being prepared."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _health(self, connection: Connection, _request: Request) -> None:
        connection.respond(200, b"")

    def _version(self, connection: Connection, _request: Request) -> None:
        connection.respond(200, orjson.dumps({"version": self._profile.version}))

    def _models(self, connection: Connection, _request: Request) -> None:
        model = self._settings.served_model_name
        card = {
            "id": model,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": model,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
            "permission": [],
        }
        connection.respond(200, orjson.dumps({"object": "list", "data": [card]}))

    def _show_metrics(self, connection: Connection, _request: Request) -> None:
        connection.respond(200, self._metrics.render(), _METRICS_TYPE)

    def _reset_prefix_cache(self, connection: Connection, _request: Request) -> None:
        if self.engine is not None:
            self.engine.reset_prefix_cache()
        connection.respond(200, b"")

    def _tokenize(self, connection: Connection, request: Request) -> None:
        self._start(self._relay(connection, prompts.TOKENIZE, request.body))

    def _detokenize(self, connection: Connection, request: Request) -> None:
        self._start(self._relay(connection, prompts.DETOKENIZE, request.body))

    def _completion(self, connection: Connection, request: Request) -> None:
        self._start(self._complete(connection, request.body, self._pacer.now_ns()))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, operation: int, body: bytes) -> Plan | Reply:
        try:
            return await self._worker.ask(operation, body)
        except prompts.WorkerDied:
            return _DEAD

    async def _relay(self, connection: Connection, operation: int, body: bytes) -> None:
        answer = await self._ask(operation, body)
        assert isinstance(answer, Reply)
        connection.respond(answer.status, answer.body)

    async def _complete(self, connection: Connection, body: bytes, arrived_ns: int) -> None:
        plan = await self._ask(prompts.COMPLETION, body)
        engine = self.engine
        if connection.lost or engine is None:
            return
        if isinstance(plan, Reply):
            connection.respond(plan.status, plan.body)
            return
        self._accepted += 1
        number = self._accepted
        plan, behaviour = strike(self._profile.faults, number, plan)
        sequence = Sequence(
            number=number,
            prompt_tokens=plan.prompt_tokens,
            output_tokens=plan.output_tokens,
            block_hashes=plan.block_hashes,
            finish_reason=plan.finish_reason,
            arrived_ns=arrived_ns,
            right=plan.right,
        )

        def leave(unfinished: bool) -> None:
            del self._open[number]
            if unfinished:
                engine.abort(sequence)

        settings = self._settings
        label = Label(
            f"cmpl-{uuid.uuid4().hex}", int(time.time()), settings.served_model_name, settings.prompt_tokens_details
        )
        completion = Completion(label, plan, behaviour, sequence, connection, self._loop.call_later, leave)
        self._open[number] = completion
        connection.on_lost = completion.abandon
        completion.begin()
        engine.submit(sequence)
