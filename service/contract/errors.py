"""The one tree of errors.

BackslideError                       500  internal
├── InvalidInput                     422  invalid_input
│   ├── MalformedBody                400  malformed_body
│   └── UnknownMetric                422  unknown_metric
├── NotFound                         404  not_found
│   ├── UnknownBuild                 404  unknown_build
│   ├── UnknownRecipe                404  unknown_recipe
│   └── UnknownWorkload              404  unknown_workload
├── MethodNotAllowed                 405  method_not_allowed
├── TokenMissing                     401  token_missing
├── TokenInvalid                     401  token_invalid
├── Forbidden                        403  role_insufficient
├── Conflict                         409  conflict
│   ├── Incomparable                 409  incomparable
│   ├── LeaseLost                    409  lease_lost
│   ├── ResultConflict               409  result_conflict
│   ├── ArtifactMissing              409  artifact_missing
│   └── OffsetMismatch               409  offset_mismatch
├── ProtocolUnsupported              426  protocol_unsupported
├── TooLarge                         413  too_large
├── DiskFull                         507  disk_full          (retryable)
└── Busy                             503  busy               (retryable)

A class's docstring is its default message. ``code`` is stable, ``retryable`` tells a client whether the same call may
succeed later; nobody branches on the text. On the wire an error is RFC 9457 problem+json (service/api/problems.py).
"""

from typing import Any, ClassVar


class BackslideError(Exception):
    """Something went wrong inside Backslide."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None, **details: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.details = details
        super().__init__(self.message)


class InvalidInput(BackslideError):
    """What was sent does not make sense."""

    code = "invalid_input"
    status = 422


class MalformedBody(InvalidInput):
    """The body is not valid JSON."""

    code = "malformed_body"
    status = 400


class UnknownMetric(InvalidInput):
    """There is no such metric."""

    code = "unknown_metric"


class NotFound(BackslideError):
    """There is no such thing."""

    code = "not_found"
    status = 404


class UnknownBuild(NotFound):
    """No build of that name or id is registered."""

    code = "unknown_build"


class UnknownRecipe(NotFound):
    """No recipe of that name or id is registered."""

    code = "unknown_recipe"


class UnknownWorkload(NotFound):
    """No workload of that name or id is registered."""

    code = "unknown_workload"


class MethodNotAllowed(BackslideError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"
    status = 405


class TokenMissing(BackslideError):
    """This call needs a token: send 'Authorization: Bearer TOKEN'."""

    code = "token_missing"
    status = 401


class TokenInvalid(BackslideError):
    """The token is unknown, revoked or expired."""

    code = "token_invalid"
    status = 401


class Forbidden(BackslideError):
    """The token's role does not allow this."""

    code = "role_insufficient"
    status = 403


class Conflict(BackslideError):
    """The thing is in a state in which this can't be done."""

    code = "conflict"
    status = 409


class Incomparable(Conflict):
    """The two sides were not measured in the same cell."""

    code = "incomparable"


class LeaseLost(Conflict):
    """The attempt's lease is no longer held: stop, clean up, forget."""

    code = "lease_lost"


class ResultConflict(Conflict):
    """Another result is already stored for this attempt."""

    code = "result_conflict"


class ArtifactMissing(Conflict):
    """The result names an artifact that was not uploaded."""

    code = "artifact_missing"


class OffsetMismatch(Conflict):
    """The log chunk does not begin where the stored log ends; ``size_bytes`` says where that is."""

    code = "offset_mismatch"


class ProtocolUnsupported(BackslideError):
    """The controller speaks another protocol version; upgrade the older side."""

    code = "protocol_unsupported"
    status = 426


class TooLarge(BackslideError):
    """What was sent is larger than the controller takes."""

    code = "too_large"
    status = 413


class DiskFull(BackslideError):
    """The controller's disk is full; free some space and the same call will succeed."""

    code = "disk_full"
    status = 507
    retryable = True


class Busy(BackslideError):
    """The controller can't take this right now; try again."""

    code = "busy"
    status = 503
    retryable = True
