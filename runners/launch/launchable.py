"""What every kind of build comes to before it is started: a command, an environment, and what it must answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.contract.failures import FailureClass


class LaunchError(Exception):
    """A build can't be launched: ``failure_class`` decides about a retry, ``message`` says why and what to do."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        self.failure_class = failure_class
        self.message = message
        super().__init__(message)


@dataclass(frozen=True)
class Launchable:
    """A verified build with its recipe. ``env`` holds only what build, recipe and launcher set.

    ``matches_version`` judges the server's answer to GET /version, ``version`` is what it should be, for people.
    ``startup_step`` turns a line of the server's log into what it says about the start, or None.
    """

    program: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    version: str
    matches_version: Callable[[str], bool]
    startup_step: Callable[[str], str | None]
    step_log: Path | None = None

    def command(self, served_model_name: str, port: int) -> tuple[str, ...]:
        """Return the whole command line."""
        identity = ("--served-model-name", served_model_name, "--host", "127.0.0.1", "--port", str(port))
        return (*self.program, *identity, *self.args)


def argument(args: Sequence[str], name: str) -> str | None:
    """Return the last value of ``--name value`` or ``--name=value`` in a command line, or None."""
    found = None
    for index, word in enumerate(args):
        if word == name and index + 1 < len(args):
            found = args[index + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def last_line(line: str) -> str | None:
    """Say of a log line what it says itself: for servers whose log has no known pattern."""
    return line.strip() or None
