"""How a size is put into words."""

from service.domain.compare import Comparison, Criterion, Observation, Side, compare
from service.domain.finding import interval

CRITERION = Criterion(lower_better=False, margin=0.02, confidence=0.95)


def _compared(base: tuple[float, ...], head: tuple[float, ...]) -> Comparison:
    """Two blocks of two launches a side, on one slot."""
    sides = ((Side.BASE, base), (Side.HEAD, head))
    return compare(
        [Observation(side, value, i // 2, "slt_1") for side, values in sides for i, value in enumerate(values)],
        CRITERION,
    )


def test_a_size_is_a_signed_percentage_with_its_interval() -> None:
    found = interval(_compared((0.90, 0.92, 0.91, 0.90), (0.80, 0.81, 0.80, 0.82)), 0.95)
    assert found.startswith("-11.")
    assert "95 % interval" in found


def test_launches_that_all_agree_are_not_given_an_interval_of_no_width() -> None:
    found = interval(_compared((0.92,) * 4, (0.81,) * 4), 0.95)
    assert found == "-12.0 % (no launch differs from another of its build)"
