"""What is known of each version of a lineup, from a bisect's own launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from service.actions.accuracy import score_note
from service.actions.bisect_views import PointView, VersionView
from service.actions.situation import ACCURACY
from service.actions.views import BuildView, EvaluationView
from service.contract.failures import Failure
from service.domain.bisect import Phase
from service.domain.compare import Criterion, Estimate, Observation, Side, compare
from service.ruler.metrics import METRICS
from service.ruler.validity import Validity
from service.store.tables import Bisect, Launch


@dataclass(frozen=True)
class Measured:
    """A bisect's launches, oldest first, the value that each gives (by id), what each block was for, and which builds
    could not be measured."""

    metric: str
    launches: Sequence[Launch]
    values: Mapping[str, float | None]
    phases: Mapping[int, Phase]
    failures: Mapping[str, Failure]
    evaluations: Mapping[str, Sequence[EvaluationView]]
    """By build, oldest first, of the whole cell: accuracy is asked for once."""

    def answers(self, build_ids: Sequence[str]) -> list[EvaluationView]:
        """What a version answered to questions."""
        return [one for build_id in build_ids for one in self.evaluations.get(build_id, [])]

    def why(self, build_ids: Sequence[str]) -> str:
        """Why a version could not be measured; empty if it could."""
        for build_id in build_ids:
            failure = self.failures.get(build_id)
            if failure is not None:
                return f"{failure.failure_class} in {failure.step}: {failure.message}"
        unused = [self._unused_because(one) for one in self.launches if one.build_id in build_ids]
        return f"no launch of it gave a value: {'; '.join(dict.fromkeys(filter(None, unused)))}" if any(unused) else ""

    def points(self, build_ids: Sequence[str]) -> list[PointView]:
        """Every launch of a version, usable or not."""
        return [
            PointView(
                launch_id=one.id,
                value=self.values[one.id],
                unused_because=self._unused_because(one),
                phase=self.phases[one.block],
                block=one.block,
                position=one.position,
                slot_id=one.slot_id,
                at=one.created_at,
            )
            for one in self.launches
            if one.build_id in build_ids
        ]

    def estimate(self, build_ids: Sequence[str], confidence: float) -> Estimate:
        """The geometric mean of a version's usable launches, with its interval."""
        values = [self.values[one.id] for one in self.launches if one.build_id in build_ids]
        found = [Observation(Side.BASE, value) for value in values if value is not None]
        return compare(found, Criterion(lower_better=True, confidence=confidence)).base

    def metrics(self, build_ids: Sequence[str]) -> dict[str, float]:
        """The geometric mean of each metric over a version's valid launches."""
        own = [one for one in self.launches if one.build_id in build_ids and one.validity != Validity.INVALID]
        found = {name: [one.metrics[name] for one in own if one.metrics.get(name, 0) > 0] for name in METRICS}
        return {name: geometric_mean(values) for name, values in found.items() if values}

    def _unused_because(self, one: Launch) -> str:
        if self.values[one.id] is not None:
            return ""
        if one.validity == Validity.INVALID:
            return "invalid"
        return f"has no {METRICS[self.metric].label if self.metric in METRICS else ACCURACY}"


def version_views(row: Bisect, measured: Measured, builds: Mapping[str, BuildView]) -> list[VersionView]:
    """Return a view of each version of the lineup, in order."""
    return [
        _version(index, node["name"], node["build_ids"], row, measured, builds) for index, node in enumerate(row.lineup)
    ]


def _version(
    index: int,
    name: str,
    build_ids: Sequence[str],
    row: Bisect,
    measured: Measured,
    builds: Mapping[str, BuildView],
) -> VersionView:
    estimate = measured.estimate(build_ids, row.aim["confidence"])
    answers = measured.answers(build_ids)
    scores = [one.strict for one in answers if one.strict is not None]
    broken = any(build_id in measured.failures for build_id in build_ids)
    return VersionView(
        index=index,
        name=name,
        build=builds[build_ids[0]],
        launches=estimate.launches,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        metrics=measured.metrics(build_ids),
        gsm8k=scores[-1] if scores else None,
        gsm8k_note=score_note(answers),
        broken=broken,
        why=measured.why(build_ids) if broken else "",
        points=measured.points(build_ids),
    )
