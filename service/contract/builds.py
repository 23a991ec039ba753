"""What is launched: a build is one pinned thing that serves, known by the hash of what it is."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from service.contract import canonical

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$")]


class Wire(BaseModel):
    """Base of every message: unknown fields are refused, values don't change after they were made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_nul(cls, value: Any) -> Any:
        if _holds_nul(value):
            raise ValueError("text must not contain a NUL character: not every database can store one")
        return value


def _holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(_holds_nul(item) for item in value)


class BuildKind(StrEnum):
    """How a build is brought to life."""

    SIMULATED = "simulated"
    WHEELS = "wheels"


class SimulatedSource(Wire):
    """One profile of the simulated engine: its name, and the hash of the file that holds the truth."""

    kind: Literal[BuildKind.SIMULATED] = BuildKind.SIMULATED
    profile: Name
    sha256: Sha256


class WheelSource(Wire):
    """One pinned wheel set of real vLLM: its name, and the hash over its requirement and data files."""

    kind: Literal[BuildKind.WHEELS] = BuildKind.WHEELS
    wheel_set: Name
    sha256: Sha256


Source = Annotated[SimulatedSource | WheelSource, Field(discriminator="kind")]


class BuildSpec(Wire):
    """A build as it is registered: the name people use (``v0.18.0``), upstream's version, and its pinned source.

    ``dated_at`` is when upstream made it. Nightlies and commits need it to have a place in a lineup; releases don't.
    """

    name: Name
    version: Name
    source: Source
    dated_at: AwareDatetime | None = None

    @property
    def kind(self) -> BuildKind:
        return self.source.kind

    @property
    def digest(self) -> str:
        """SHA-256 of the source: two builds with equal digests serve the same thing, whatever they are called."""
        return canonical.digest(self.source.model_dump(mode="json"))


class Build(BuildSpec):
    """A registered build."""

    id: str
