"""The exception tree of the whole system.

    ModnormError
    ├── InvalidInputError      the caller must change the request
    │   └── TooLargeError      a message is over the size limit of a service or of its caller
    ├── NotFoundError          the named thing does not exist
    ├── ConflictError          the name is taken by something else
    ├── UnauthenticatedError   no token, or one that is not accepted
    ├── ForbiddenError         the token is good, but not for this
    ├── PreconditionError      right request, wrong state
    │   └── StaleLeaseError    the lease was lost; the work belongs to someone else
    ├── UnavailableError       a dependency is down; try again
    │   └── RateLimitedError   too many calls under one token; try again a little later
    ├── CancelledError         somebody asked for the work to stop
    └── EvaluationError        evaluating one candidate failed; never a score
        ├── EngineError        infrastructure: try again, here or elsewhere
        ├── CandidateError     this candidate cannot be evaluated anywhere (NaN logits, say)
        └── IncompatibleError  no candidate of this experiment can be evaluated by this worker
            └── DoesNotFitError  its memory is too small for the model

`modnorm.wire.status` maps the tree to gRPC status codes and back, in one table.
"""


class ModnormError(Exception):
    """An error with a message for people, the field at fault and the remedy.

    Args:
        message: What is wrong, in one sentence.
        field: Dotted path of the field at fault, as in the spec (`population.size`).
        remedy: What the caller can do about it.
    """

    def __init__(
        self, message: str, *, field: str | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.remedy = remedy

    @property
    def reason(self) -> str:
        """The field and the message, without the remedy."""
        return f"{self.field}: {self.message}" if self.field else self.message

    def __str__(self) -> str:
        return f"{self.reason} ({self.remedy})" if self.remedy else self.reason


class InvalidInputError(ModnormError):
    """The request is wrong and will be wrong again: the caller must change it."""


class TooLargeError(InvalidInputError):
    """A message is over the size limit of one of its two ends, and will be again."""


class NotFoundError(ModnormError):
    """The named thing does not exist."""


class ConflictError(ModnormError):
    """The identifier is already taken by something else."""


class UnauthenticatedError(ModnormError):
    """The caller has no token, or one that is forged, expired or revoked."""


class ForbiddenError(ModnormError):
    """The caller is known, and its roles do not allow the call."""


class PreconditionError(ModnormError):
    """The request is right, but the state of its subject does not allow it."""


class StaleLeaseError(PreconditionError):
    """The fencing token is not the current one: the work belongs to someone else now."""


class UnavailableError(ModnormError):
    """A dependency is down; the same call may succeed later."""


class RateLimitedError(UnavailableError):
    """There were too many calls under one token.

    Args:
        message: What is wrong, in one sentence.
        wait: Seconds after which a call is taken again.
    """

    def __init__(
        self,
        message: str,
        *,
        wait: float = 1.0,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, field=field, remedy=remedy)
        self.wait = wait


class CancelledError(ModnormError):
    """Somebody asked for the work to stop."""


class EvaluationError(ModnormError):
    """Evaluating a candidate failed. It is never turned into a score."""


class EngineError(EvaluationError):
    """The infrastructure failed; the same candidate may succeed elsewhere or later."""


class CandidateError(EvaluationError):
    """This candidate cannot be evaluated anywhere (non-finite logits, for instance)."""


class IncompatibleError(EvaluationError):
    """No candidate of the experiment can be evaluated here (another model, a task that raises)."""


class DoesNotFitError(IncompatibleError):
    """The model needs more memory than the engine may take."""
