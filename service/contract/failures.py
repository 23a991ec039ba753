"""Why an attempt did not complete. The class decides about a retry (service/domain/retries.py), never the text."""

from enum import StrEnum

from pydantic import Field

from service.contract.builds import Wire


class FailureClass(StrEnum):
    """One word per kind of failure."""

    SPEC_INVALID = "spec_invalid"
    """Can never work as asked: unknown argument for this version, hash mismatch, missing system library."""
    IMAGE_PULL = "image_pull"
    """What is to be launched could not be fetched or installed."""
    DISK_FULL = "disk_full"
    """No room on the runner or the controller."""
    SERVER_START = "server_start"
    """The server ended, or reported an error, before it was ready."""
    SERVER_CRASH = "server_crash"
    """The server died or stopped sending tokens under load."""
    TIMEOUT_STEP = "timeout_step"
    """A step ran past its time limit."""
    INVALID_MEASUREMENT = "invalid_measurement"
    """Fewer than three repetitions were valid."""
    RUNNER_LOST = "runner_lost"
    """The lease was not renewed, or the runner was restarted in the middle."""
    EVALUATION = "evaluation"
    """The questions could not be asked, or not all were answered. Ends no attempt: the launch counts all the same."""
    UPLOAD_FAILED = "upload_failed"
    """The controller refused what was uploaded."""
    INTERNAL = "internal"
    """A fault of ours."""


class Failure(Wire):
    """What went wrong, in which step, and what to do about it."""

    failure_class: FailureClass
    step: str = Field(max_length=40)
    message: str = Field(max_length=4000)
