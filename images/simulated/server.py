"""The process: start-up, serving, a quick and clean end.

Exit status: 0 after SIGINT or SIGTERM, 1 when the engine could not start or broke, 2 for wrong use or a bad profile.
"""

import asyncio
import gc
import hashlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from collections.abc import Sequence as Listing

import uvloop

from images.simulated.answers import QuestionsError, Skill, load_answers
from images.simulated.api import Api
from images.simulated.connection import Connection
from images.simulated.engine import Emission, Engine, Outlet, Pace
from images.simulated.metrics import Metrics
from images.simulated.pacing import MonotonicPacer
from images.simulated.prefix_cache import PrefixCache
from images.simulated.profile import Profile, ProfileError, load_profile
from images.simulated.requests import Limits
from images.simulated.scheduler import Scheduler
from images.simulated.settings import ServeSettings, parse_arguments
from images.simulated.steplog import StepLog
from images.simulated.steptime import Noise
from images.simulated.worker import PromptWorker, WorkerDied

_SWITCH_S = 0.0005
_BACKLOG = 2048


class StartError(Exception):
    """The server can't start as it was told to; the text says why."""


def main(argv: Listing[str]) -> int:
    """Serve until told to stop; returns the exit status."""
    settings = parse_arguments(argv, os.environ)
    try:
        profile = load_profile(settings.profile_file, settings.profile_sha256)
        _check_fit(settings, profile)
        limits = _limits(settings, profile)
    except (ProfileError, QuestionsError, StartError) as error:
        return _complain(error, 2)
    try:
        with _bind(settings) as listener:
            log = StepLog(settings.step_log)
            try:
                return uvloop.run(_serve(settings, profile, limits, listener, log))
            finally:
                log.close()
    except (StartError, OSError) as error:
        return _complain(error, 1)


def _complain(error: Exception, status: int) -> int:
    print(f"ERROR: {error}", file=sys.stderr, flush=True)
    return status


def _check_fit(settings: ServeSettings, profile: Profile) -> None:
    held = profile.kv_blocks * settings.block_size
    if held < settings.max_model_len:
        raise StartError(
            f"{settings.profile_file}: key 'kv_blocks': {profile.kv_blocks} blocks of {settings.block_size} tokens are "
            f"less than --max-model-len {settings.max_model_len}"
        )


def _bind(settings: ServeSettings) -> socket.socket:
    """The socket, bound early, as vLLM does, so that a taken port is known at once; it listens only when ready."""
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise StartError(f"cannot bind {settings.host}:{settings.port}: {error.strerror or error}") from error
    return listener


def _limits(settings: ServeSettings, profile: Profile) -> Limits:
    """Raises QuestionsError for a file of questions that can't be used."""
    return Limits(
        settings.served_model_name,
        settings.max_model_len,
        settings.block_size,
        profile.vocabulary_size,
        Skill(profile.accuracy, profile.flip_rate, f"{profile.version} {profile.commit}"),
        load_answers(settings.gsm8k) if settings.gsm8k else {},
    )


async def _serve(
    settings: ServeSettings, profile: Profile, limits: Limits, listener: socket.socket, log: StepLog
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    print(f"INFO:     simulated vLLM {profile.version} ({profile.commit}), process {os.getpid()}", flush=True)
    if profile.start_failure is not None:
        if await _stopped_within(stop, profile.start_failure.after_s):
            return 0
        raise StartError(profile.start_failure.message)
    broken: list[str] = []

    def give_up(reason: str) -> None:
        broken.append(reason)
        stop.set()

    worker = PromptWorker(limits, lambda: give_up("the prompt worker died"))
    try:
        begun = loop.time()
        try:
            await worker.start()
        except WorkerDied as error:
            raise StartError(str(error)) from error
        if not await _stopped_within(stop, profile.start_s - (loop.time() - begun)):
            await _run_engine(settings, profile, listener, log, worker, stop, give_up)
    finally:
        await worker.stop()
    if broken:
        raise StartError(broken[0])
    return 0


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), max(0.0, seconds))
    except TimeoutError:
        return False
    return True


async def _run_engine(
    settings: ServeSettings,
    profile: Profile,
    listener: socket.socket,
    log: StepLog,
    worker: PromptWorker,
    stop: asyncio.Event,
    give_up: Callable[[str], None],
) -> None:
    """Serve until `stop`."""
    loop = asyncio.get_running_loop()
    pacer = MonotonicPacer()
    metrics = Metrics(settings.served_model_name)
    api = Api(settings, profile, worker, metrics, pacer)
    pace = Pace(profile, Noise(profile.launch_sd, profile.step_sd, settings.seed), settings.time_compression)

    def break_off() -> None:
        loop.call_soon_threadsafe(give_up, "the engine's thread died")

    def deliver(emissions: list[Emission]) -> None:
        loop.call_soon_threadsafe(api.emit, emissions)

    cache = PrefixCache(profile.kv_blocks)
    scheduler = Scheduler(cache, settings.max_num_seqs, settings.max_num_batched_tokens, settings.block_size)
    engine = Engine(scheduler, pace, pacer, metrics, log, Outlet(deliver, break_off))
    log.launch(_launch_facts(settings, profile, pace))
    api.engine = engine
    sys.setswitchinterval(_SWITCH_S)
    # Collections would fall into the steps that are timed: the engine does them while it is idle.
    gc.collect()
    gc.freeze()
    gc.disable()
    connections: set[Connection] = set()
    engine.start()
    try:
        server = await loop.create_server(lambda: Connection(api.handle, connections), sock=listener, backlog=_BACKLOG)
        print("INFO:     Application startup complete.", flush=True)
        host, port = listener.getsockname()[:2]
        print(f"INFO:     serving on http://{host}:{port}", flush=True)
        await stop.wait()
        server.close()
    finally:
        await asyncio.to_thread(engine.stop)
        await api.stop()
        for connection in list(connections):
            connection.close()


def _launch_facts(settings: ServeSettings, profile: Profile, pace: Pace) -> dict[str, object]:
    return {
        "version": profile.version,
        "commit": profile.commit,
        "profile_sha256": hashlib.sha256(settings.profile_file.read_bytes()).hexdigest(),
        "seed": settings.seed,
        "time_compression": settings.time_compression,
        "launch_effect": pace.noise.launch_effect,
        "max_num_seqs": settings.max_num_seqs,
        "pid": os.getpid(),
    }
