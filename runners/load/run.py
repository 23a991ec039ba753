"""Prime, warm up, measure; between the phases scrape, take apart and write down. Finished phases survive a kill."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from runners.load import counters, prompts, wire
from runners.load.plan import REPORT_NAME, STEP, LoadPlan, LoadProgress, LoadReport, RepetitionFile
from runners.load.record import Recorded, Ticket, record
from runners.load.schedule import GIVEN_UP, Loop, Shots, Target
from service.contract.failures import Failure, FailureClass
from service.contract.upload import ArtifactRef
from service.ruler import RULER_VERSION
from service.ruler.rawlog import LogHeader, Outcome, Phase, RawLog, RequestRecord, Role, encode
from service.ruler.validity import PRIME_OUTPUT_TOKENS

PATH = "/v1/completions"
Emit = Callable[[LoadProgress], None]


class LoadFailed(Exception):
    """The load can't go on. Carries the failure as it is reported."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(failure_class=failure_class, step=STEP, message=message[:4000])


class Load:
    """One plan, carried out once. ``emit`` gets progress and must not block."""

    def __init__(self, plan: LoadPlan, emit: Emit, now_ns: wire.NowNs) -> None:
        self._plan = plan
        self._emit = emit
        self._out = Path(plan.out_dir)
        deadline_ns = now_ns() + int(plan.deadline_s * 1e9)
        self._target = Target(plan.host, plan.port, plan.stall_s, deadline_ns, now_ns)
        self._prompts = prompts.load(Path(plan.prompts_path), plan.workload)
        self._prefix = prompts.encode(self._prompts.prefix)
        self._report = LoadReport(prompts=self._prompts.file.sha256)

    async def run(self) -> LoadReport:
        """Carry it out; raises LoadFailed when it can't be finished. ``load.json`` holds what is finished, always."""
        try:
            async with asyncio.timeout(max(0.0, (self._target.deadline_ns - self._target.now_ns()) / 1e9) + 5):
                self._save()
                await self._warm_up()
                for number in range(1, self._plan.workload.repetitions + 1):
                    await self._repeat(number)
        except TimeoutError as error:
            raise LoadFailed(
                FailureClass.TIMEOUT_STEP, f"the deadline of {self._plan.deadline_s:g} s passed"
            ) from error
        except ConnectionError as error:
            raise LoadFailed(FailureClass.SERVER_CRASH, f"the server is gone: {error}") from error
        return self._report

    async def _warm_up(self) -> None:
        workload = self._plan.workload
        base_ns = self._target.now_ns()
        # One after the other: the first fills the cache, cold; the second is the proof that it is filled.
        primes = [self._ticket(n, Role.PRIME, None, PRIME_OUTPUT_TOKENS) for n in range(2)]
        primed = await self._fire("prime", 0, 1, primes)
        records = self._take(primed, base_ns, "prime")
        failed = [r for r in records if r.record.outcome is not Outcome.OK]
        if failed:
            raise self._failed(failed[0], "priming the shared prefix failed")
        suffixes = [prompts.encode(ids) for ids in self._prompts.warm]
        tickets = [self._ticket(n, Role.WARM, s, workload.output_tokens) for n, s in enumerate(suffixes)]
        warmed = await self._fire("warm", 0, workload.concurrency, tickets)
        records += self._take(warmed, base_ns, "warm")
        log = self._log(Phase.WARM, 0, base_ns, warmed, [r.record for r in records])
        self._report = self._report.model_copy(update={"warm": self._write("warm.raw", log)})
        self._save()

    async def _repeat(self, number: int) -> None:
        workload = self._plan.workload
        suffixes = [prompts.encode(ids) for ids in self._prompts.measured[number - 1]]
        tickets = [self._ticket(n, Role.MEASURED, s, workload.output_tokens) for n, s in enumerate(suffixes)]
        before = await counters.settle(self._target)
        base_ns = self._target.now_ns()
        shots = await self._fire("measure", number, workload.concurrency, tickets)
        records = self._take(shots, base_ns, f"rep-{number}")
        after = await counters.settle(self._target)
        ref = self._write(
            f"rep-{number}.raw", self._log(Phase.MEASURE, number, base_ns, shots, [r.record for r in records])
        )
        file = RepetitionFile(number=number, log=ref, counters=counters.difference(before, after))
        self._report = self._report.model_copy(update={"repetitions": [*self._report.repetitions, file]})
        self._save()

    def _ticket(self, index: int, role: Role, suffix: bytes | None, output_tokens: int) -> Ticket:
        plan = self._plan
        parts = prompts.body(plan.served_model_name, output_tokens, plan.workload.seed, self._prefix, suffix or b"")
        length = plan.workload.prefix_tokens + (plan.workload.suffix_tokens if suffix else 0)
        return Ticket(index, role, length, wire.post(plan.host, plan.port, PATH, parts))

    async def _fire(
        self, phase: Literal["prime", "warm", "measure"], number: int, concurrency: int, tickets: Sequence[Ticket]
    ) -> Shots:
        def tell(done: int) -> None:
            of = self._plan.workload.repetitions
            self._emit(LoadProgress(phase=phase, repetition=number, of=of, requests_done=done, requests=len(tickets)))

        tell(0)
        return await Loop(self._target, concurrency, tell).run(tickets)

    def _take(self, shots: Shots, base_ns: int, what: str) -> list[Recorded]:
        """Return the records; when the loop gave up, keep them as evidence and raise."""
        records = [record(ticket, exchange, base_ns) for ticket, exchange in shots.done]
        if not shots.given_up:
            return records
        if records:
            phase = Phase.MEASURE if what.startswith("rep") else Phase.WARM
            number = int(what.removeprefix("rep-")) if phase is Phase.MEASURE else 0
            self._write(f"{what}.partial.raw", self._log(phase, number, base_ns, shots, [r.record for r in records]))
        if self._target.now_ns() >= self._target.deadline_ns:
            message = f"the deadline of {self._plan.deadline_s:g} s passed in {what}"
            raise LoadFailed(FailureClass.TIMEOUT_STEP, message)
        bad = [r for r in records if r.record.outcome is not Outcome.OK and r.record.error != GIVEN_UP]
        why = f"{what}: {shots.given_up}"
        raise self._failed(bad[0], why) if bad else LoadFailed(FailureClass.SERVER_CRASH, why)

    def _failed(self, recorded: Recorded, why: str) -> LoadFailed:
        made, code = recorded.record, recorded.error_code
        refused = code is not None and 400 <= code < 500 and code not in (408, 429)
        failure_class = FailureClass.SPEC_INVALID if refused else FailureClass.SERVER_CRASH
        return LoadFailed(failure_class, f"{why}; {made.role} {made.index}: {made.outcome} {made.error}".rstrip())

    def _log(self, phase: Phase, number: int, base_ns: int, shots: Shots, records: Sequence[RequestRecord]) -> bytes:
        header = LogHeader(
            ruler_version=RULER_VERSION,
            workload=self._plan.workload.digest,
            prompts=self._prompts.file.sha256,
            phase=phase,
            repetition=number,
            base_ns=base_ns,
            client=shots.client,
        )
        return encode(RawLog(header, sorted(records, key=lambda r: r.send_us)))

    def _write(self, name: str, content: bytes) -> ArtifactRef:
        prompts.write_whole(self._out / name, content)
        return ArtifactRef(name=name, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))

    def _save(self) -> None:
        prompts.write_whole(self._out / REPORT_NAME, self._report.model_dump_json(indent=1).encode())
