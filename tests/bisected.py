"""A bisect as the store would show it, made in memory: twelve versions, a step at v0.19.0, one build that crashes."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from service.actions.bisect_views import (
    AimView,
    BisectView,
    FindingView,
    ForecastView,
    OrderView,
    PairView,
    PictureView,
    PointView,
    ShareView,
    SkippedView,
    StepView,
    VersionView,
)
from service.actions.comparison_views import CellSummary
from service.actions.views import LaunchView
from service.domain.bisect import Answer, Phase
from service.domain.states import BisectState
from tests import measured

NAMES = tuple(
    f"v0.{minor}"
    for minor in "18.0 18.1 19.0 19.1 20.0 20.1 20.2 21.0 22.0 22.1 23.0 24.0".split()  # noqa: SIM905
)
WHY = "server_crash in start: RuntimeError: HIP error <b>| `x` @team #1"
SENTENCE = (
    "v0.19.0 is the first bad version: TPOT p50 is 1.47 times as high as in v0.18.1 (95 % interval 1.45 to 1.48, from "
    "8 launches)."
)
NOTHING_NAMED = "Between v0.18.0 and v0.24.0 nothing can be named."
ACCURACY = "gsm8k is unchanged within 2 points from v0.18.1 (0.92) to v0.19.0 (0.92), 100 questions."


def launches() -> list[LaunchView]:
    """Twenty launches, in order of time: the ends, three probes, the confirmation."""
    versions = [0, 11, 11, 0, 5, 2, 1, *([1, 2, 2, 1] * 2)]
    blocks = [0, 0, 0, 0, 1, 2, 3, *[4] * 4, *[5] * 4]
    found = []
    for number, (version, block) in enumerate(zip(versions, blocks, strict=True)):
        value = (5.0 if version < 2 else 7.33) * (1 + 0.002 * (number % 3 - 1))
        metrics = {
            "tpot_p50_ms": value,
            "itl_p50_ms": value * 0.99,
            "output_tok_s": 16000 / value,
            "ttft_p50_ms": 210.0,
        }
        built = measured.build(NAMES[version])
        found.append(measured.launch(built, number, metrics, block=block, position=number % 4, slot=block % 2))
    return found


def view(answer: Answer | None = Answer.CONFIRMED, **changes: Any) -> BisectView:
    """Return the bisect with that answer; None: it still searches. ``changes`` are members of the view."""
    made = launches()
    steps = [_step(1, Phase.ENDS, 0.05, [0, 11, 11, 0]), _step(2, Phase.SEARCH, 0.5, [5]), _step(3, None, 0.97, [])]
    members: dict[str, Any] = {
        "id": "bis_0000000000000001",
        "request_id": "req_0000000000000001",
        "state": BisectState.SEARCHING if answer is None else BisectState.ENDED,
        "answer": answer,
        "reason": None,
        "paused": False,
        "cancel_requested": False,
        "submitter": "ada",
        "metric": "tpot_p50_ms",
        "label": "TPOT p50",
        "unit": "ms",
        "good": measured.build(NAMES[0]),
        "bad": measured.build(NAMES[-1]),
        "versions": len(NAMES),
        "cell": _cell(),
        "marks": "simulated, time compressed 4x",
        "sentence": "The step lies in v0.18.1 → v0.19.0 with probability 0.97." if answer is None else sentence(answer),
        "launches_done": len(made),
        "launches_pending": 0,
        "slot_minutes": 4.25,
        "seed": 3,
        "priority": -10,
        "created_at": measured.START,
        "ended_at": None if answer is None else measured.START + timedelta(minutes=3),
        "aim": AimView(
            lower_better=True,
            metric="TPOT p50",
            smallest=0.02,
            confidence=0.95,
            max_launches=40,
            confirm_blocks=2,
            gsm8k=True,
        ),
        "lineup": [_version(index, made) for index in range(len(NAMES))],
        "steps": steps,
        "picture": steps[-1].picture,
        "forecast": steps[-1].forecast,
        "finding": None if answer is None else finding(answer),
        "jobs": [],
    }
    return BisectView(**(members | changes))


def sentence(answer: Answer) -> str:
    """Return the finding's sentence; it names a culprit only where there is one."""
    return SENTENCE if answer in (Answer.CONFIRMED, Answer.RANGE) else NOTHING_NAMED


def finding(answer: Answer) -> FindingView:
    """Return the finding of an answer: with the pair and its size where there is one."""
    named = answer in (Answer.CONFIRMED, Answer.RANGE)
    size = (1.466, 1.452, 1.481) if named else (None, None, None)
    return FindingView(
        answer=answer,
        last_good=NAMES[1] if named else None,
        first_bad=NAMES[2] if named else None,
        candidates=[PairView(last_good=NAMES[1], first_bad=NAMES[2])] if named else [],
        **dict(zip(("ratio", "low", "high"), size, strict=True)),
        confidence=0.972 if named else None,
        ends_ratio=1.47,
        ends_low=1.44,
        ends_high=1.5,
        skipped=[SkippedView(name=NAMES[6], why=WHY)],
        launches={"ends": 4, "search": 3, "confirm": 8},
        confirmation=[one.id for one in launches()[7:]] if named else [],
        sentence=sentence(answer),
        accuracy=ACCURACY if named else "",
    )


def _cell() -> CellSummary:
    where = measured.cell()
    return CellSummary(
        digest=where.digest,
        recipe=where.recipe.name,
        workload=where.workload.name,
        hardware=where.hardware,
        simulated=True,
        time_compression=4.0,
        ruler_version=1,
    )


def _version(index: int, made: Sequence[LaunchView]) -> VersionView:
    own = [one for one in made if one.build.name == NAMES[index]]
    broken = index == 6
    value = sum(one.metrics["tpot_p50_ms"] for one in own) / len(own) if own else None
    return VersionView(
        index=index,
        name=NAMES[index],
        build=measured.build(NAMES[index]),
        launches=len(own),
        value=value,
        low=value * 0.99 if value and len(own) > 1 else None,
        high=value * 1.01 if value and len(own) > 1 else None,
        metrics=own[0].metrics if own else {},
        gsm8k=0.92 if own else None,
        gsm8k_note="92 of 100, ± 0.027" if own else "",
        broken=broken,
        why=WHY if broken else "",
        points=[_point(one) for one in own],
    )


def _point(one: LaunchView) -> PointView:
    phase = Phase.ENDS if one.block == 0 else Phase.SEARCH if one.block < 4 else Phase.CONFIRM
    return PointView(
        launch_id=one.id,
        value=one.metrics["tpot_p50_ms"],
        unused_because="",
        phase=phase,
        block=one.block,
        position=one.position,
        slot_id=one.slot_id,
        at=one.created_at,
    )


def _step(number: int, phase: Phase | None, leading: float, versions: list[int]) -> StepView:
    rest = (1 - leading) / len(NAMES[1:])
    shares = [leading if index == 1 else rest for index in range(len(NAMES) - 1)]
    orders = [
        OrderView(
            phase=phase,
            block=number,
            builds=[NAMES[version] for version in versions],
            versions=versions,
            reason="it splits what is left best",
            bits=0.97 if phase is Phase.SEARCH else None,
        )
        for phase in [phase]
        if phase is not None
    ]
    return StepView(
        number=number,
        at=measured.START + timedelta(seconds=20 * number),
        phase=phase,
        orders=orders,
        reason=f"Decision {number}: the step lies in v0.18.1 → v0.19.0 with probability {leading}.",
        picture=PictureView(
            none=rest,
            steps=[
                ShareView(last_good=good, first_bad=bad, probability=share)
                for good, bad, share in zip(NAMES, NAMES[1:], shares, strict=False)
            ],
        ),
        forecast=ForecastView(launches_low=6, launches=9, launches_high=14, minutes=2.5),
        launches_done=4 * (number - 1),
        launches_pending=len(versions),
        slot_minutes=1.5 * number,
    )
