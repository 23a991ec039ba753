"""The controller: jobs in, findings out. The rooms and what may import what are drawn in docs/design.md."""

VERSION = "0.1.0"
"""As in pyproject.toml; also right in a source tree that was not installed."""
