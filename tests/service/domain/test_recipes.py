"""What rules come to for a version."""

import pytest

from service.contract.builds import BuildKind
from service.contract.errors import InvalidInput
from service.contract.recipes import Recipe, Rule
from service.domain.recipes import applies, resolve


def recipe(*rules: Rule) -> Recipe:
    return Recipe(
        name="r",
        build_kind=BuildKind.SIMULATED,
        model="m",
        hardware="cpu",
        args=["--a"],
        env={"X": "0", "Y": "0"},
        rules=list(rules),
        ready_timeout_s=60,
        time_compression=2,
        tensor_parallel=4,
    )


@pytest.mark.parametrize(
    ("since", "until", "version", "wanted"),
    [
        (None, None, "anything at all", True),
        ("0.19.0", None, "0.18.9", False),
        ("0.19.0", None, "0.19.0", True),
        ("v0.19.0", None, "v0.22.0", True),
        (None, "0.20.0", "0.20.0", False),
        (None, "0.20.0", "0.19.1", True),
        ("0.19.0", "0.20.0", "0.20.0rc1", True),
        ("0.19.0", "0.20.0", "0.19.0rc1", False),
        ("0.9.0", "0.10.0", "0.9.2", True),
        ("0.19.0", None, "0.19.0+rocm7", True),
    ],
)
def test_a_rule_holds_from_since_until_before_until(
    since: str | None, until: str | None, version: str, wanted: bool
) -> None:
    assert applies(Rule(since=since, until=until), version) is wanted


def test_arguments_are_appended_and_later_values_win() -> None:
    found = resolve(
        recipe(
            Rule(args=["--b"], env={"X": "1"}, ready_timeout_s=70),
            Rule(since="0.19", args=["--c"], env={"X": "2", "Z": "2"}, ready_timeout_s=80),
            Rule(since="0.30", args=["--d"], ready_timeout_s=90),
        ),
        "v0.19.1",
    )
    assert (found.args, found.env) == (["--a", "--b", "--c"], {"X": "2", "Y": "0", "Z": "2"})
    assert (found.ready_timeout_s, found.model, found.tensor_parallel, found.time_compression) == (80, "m", 4, 2)


def test_without_rules_a_recipe_is_itself_for_any_version() -> None:
    assert resolve(recipe(), "not a version").args == ["--a"]


@pytest.mark.parametrize(("bound", "version"), [("0.19.0", "main"), ("latest", "0.19.0")])
def test_what_cannot_be_ordered_is_refused_by_name(bound: str, version: str) -> None:
    with pytest.raises(InvalidInput, match=r"main|latest"):
        resolve(recipe(Rule(since=bound)), version)
