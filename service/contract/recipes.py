"""How a build is served: model, arguments, environment, and rules that hold for a range of versions."""

from typing import Annotated

from pydantic import Field

from service.contract import canonical
from service.contract.builds import BuildKind, Name, Wire

Seconds = Annotated[float, Field(gt=0, le=24 * 3600)]


class Rule(Wire):
    """Extra arguments and environment for versions with ``since <= version < until``; an absent end is open."""

    since: str | None = None
    until: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    ready_timeout_s: Seconds | None = None
    note: str = ""


class Recipe(Wire):
    """How every build of one cell is served.

    ``model`` is a path or name that the runner has, or ``bundled:NAME`` for a model that comes with the runner.
    ``hardware`` is the class of machine that it is meant for (a request may name another). ``time_compression`` is 1
    for everything real; simulated engines may run up to 4 times faster than they claim, and pages show the factor.
    """

    name: Name
    build_kind: BuildKind
    model: str = Field(min_length=1, max_length=300)
    hardware: Name
    tensor_parallel: int = Field(default=1, ge=1, le=64)
    args: list[str] = []
    env: dict[str, str] = {}
    rules: list[Rule] = []
    ready_timeout_s: Seconds = 600
    time_compression: float = Field(default=1.0, ge=1.0, le=4.0)

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the name."""
        return canonical.digest(self.model_dump(mode="json", exclude={"name"}))


class ResolvedRecipe(Wire):
    """What a recipe's rules came to for one version: what the runner starts, word by word."""

    model: str
    tensor_parallel: int
    args: list[str]
    env: dict[str, str]
    ready_timeout_s: Seconds
    time_compression: float
