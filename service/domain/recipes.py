"""What a recipe's rules come to for one version."""

from packaging.version import InvalidVersion, Version

from service.contract.errors import InvalidInput
from service.contract.recipes import Recipe, ResolvedRecipe, Rule


def resolve(recipe: Recipe, version: str) -> ResolvedRecipe:
    """Return how a recipe serves a build of ``version`` (``v0.18.0`` or ``0.18.0``).

    Rules apply in their order: arguments are appended, environment variables replace earlier ones, and the last
    ``ready_timeout_s`` named wins. Raises InvalidInput if a rule has a bound and the version can't be ordered
    (PEP 440), or if a bound itself can't be.
    """
    rules = [rule for rule in recipe.rules if applies(rule, version)]
    return ResolvedRecipe(
        model=recipe.model,
        tensor_parallel=recipe.tensor_parallel,
        args=[*recipe.args, *(arg for rule in rules for arg in rule.args)],
        env=recipe.env | {name: value for rule in rules for name, value in rule.env.items()},
        ready_timeout_s=next((r.ready_timeout_s for r in reversed(rules) if r.ready_timeout_s), recipe.ready_timeout_s),
        time_compression=recipe.time_compression,
    )


def applies(rule: Rule, version: str) -> bool:
    """Return whether ``since <= version < until``; an absent end is open. Raises InvalidInput as resolve does."""
    if rule.since is None and rule.until is None:
        return True
    found = _ordered(version, "the build's version")
    return (rule.since is None or _ordered(rule.since, "a rule's since") <= found) and (
        rule.until is None or found < _ordered(rule.until, "a rule's until")
    )


def _ordered(version: str, what: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        raise InvalidInput(
            f"{what}, {version!r}, is no version that can be ordered (such as v0.18.0 or 0.19.0rc1), "
            "and the recipe has rules for ranges of versions"
        ) from None
