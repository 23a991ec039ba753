"""The controller's settings: one frozen object, read once from BACKSLIDE_* variables, passed in everywhere."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

DEFAULT_SECRET = "change-me"


class Settings(BaseSettings):
    """Every setting has a default that works on one machine, but for the secret, which a real controller must set."""

    model_config = SettingsConfigDict(env_prefix="BACKSLIDE_", frozen=True, extra="ignore")

    data_dir: Path = Path("backslide-data")
    """Raw logs, artifacts, attempt logs, and the SQLite database if no other is named."""
    database_url: str = ""
    """Empty: SQLite in ``data_dir``. PostgreSQL: ``postgresql://user@host/name``."""
    secret: SecretStr = SecretStr(DEFAULT_SECRET)
    """Signs the tokens of attempts. 32 random characters or more."""
    demo: bool = False
    """Allows the default secret, and nothing else."""
    host: str = "127.0.0.1"
    port: int = Field(default=8400, ge=0, le=65535)
    lease_ttl_s: float = Field(default=180, ge=1, le=24 * 3600)
    """How long an attempt lives without a renewal."""
    heartbeat_s: float = Field(default=30, ge=0.2, le=3600)
    """How often a runner calls when idle; lost after six missed calls."""
    reap_every_s: float = Field(default=5, ge=0.05, le=3600)
    plan_every_s: float = Field(default=0.5, ge=0.05, le=3600)
    """How often bisects are looked at: a slot that waits for the next order waits for so long at most."""
    max_artifact_bytes: int = Field(default=256 * 2**20, ge=2**20)
    max_log_bytes: int = Field(default=64 * 2**20, ge=2**16)

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{(self.data_dir / 'backslide.sqlite').resolve()}"

    @property
    def renew_s(self) -> float:
        """Six renewals fit into a lease."""
        return self.lease_ttl_s / 6

    @property
    def lost_after_s(self) -> float:
        return self.heartbeat_s * 6
