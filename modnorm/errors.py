"""The exception tree of the whole system.

    ModnormError
    ├── InvalidInputError      the caller must change the request
    │   └── TooLargeError      a message is over the size limit of a service or of its caller
    ├── NotFoundError          the named thing does not exist
    ├── ConflictError          the name belongs to something else
    ├── UnauthenticatedError   the token is missing or not accepted
    ├── ForbiddenError         the token is accepted, but not for this call
    ├── PreconditionError      the request is correct, but not in this state
    │   └── StaleLeaseError    the lease expired; another worker has the work
    ├── UnavailableError       a dependency is down; try again
    │   └── UnreachableError   no server answers at the address
    ├── CancelledError         the work was cancelled
    └── EvaluationError        evaluating one candidate failed; never a score
        ├── EngineError        the infrastructure failed; try again, here or elsewhere
        ├── CandidateError     this candidate cannot be evaluated anywhere (NaN logits)
        └── IncompatibleError  this worker can evaluate no candidate of the experiment
            └── DoesNotFitError  the worker has too little memory for the model

`modnorm.wire.status` maps the tree to gRPC status codes and back, in one table.
"""

import re

LONGEST = 200
"""Characters of a value that a message repeats."""
_LONG = re.compile(
    rf"(?<!\w)(?:'[^']{{{LONGEST + 1},}}'|\"[^\"]{{{LONGEST + 1},}}\")|\S{{{LONGEST + 1},}}"
)
"""A quoted value or a word that is too long to repeat."""


def shortened(value: str) -> str:
    """Return the first characters of a value, as many as a message repeats."""
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}..."


def _brief(text: str) -> str:
    return _LONG.sub(lambda found: shortened(found[0]), text)


class ModnormError(Exception):
    """An error with a message, the field at fault and the remedy.

    Args:
        message: The fault, in one sentence.
        field: Dotted path of the field at fault, as in the spec (`population.size`).
        remedy: What the caller can do.
    """

    def __init__(
        self, message: str, *, field: str | None = None, remedy: str | None = None
    ) -> None:
        message, remedy = _brief(message), remedy and _brief(remedy)
        super().__init__(message)
        self.message = message
        self.field = field and shortened(field)
        self.remedy = remedy
        self.place: str | None = None
        """`FILE:LINE` of a fault in a file; whoever reads the file sets it."""

    @property
    def reason(self) -> str:
        """The field and the message, without the remedy."""
        return f"{self.field}: {self.message}" if self.field else self.message

    def __str__(self) -> str:
        reason = f"{self.place}: {self.reason}" if self.place else self.reason
        return f"{reason} ({self.remedy})" if self.remedy else reason


class InvalidInputError(ModnormError):
    """The request is invalid; the caller must change it."""


class TooLargeError(InvalidInputError):
    """A message is over the size limit of its sender or receiver."""


class NotFoundError(ModnormError):
    """The named thing does not exist."""


class ConflictError(ModnormError):
    """The identifier already belongs to something else."""


class UnauthenticatedError(ModnormError):
    """The caller's token is missing, forged, expired or revoked."""


class ForbiddenError(ModnormError):
    """The caller is authenticated, but its roles do not allow the call."""


class PreconditionError(ModnormError):
    """The request is correct, but the state of its subject does not allow it."""


class StaleLeaseError(PreconditionError):
    """The fencing token is not the current one: another worker has the work."""


class UnavailableError(ModnormError):
    """A dependency is down; the same call may succeed later."""


class UnreachableError(UnavailableError):
    """No server answers at the address."""


class CancelledError(ModnormError):
    """The work was cancelled."""


class EvaluationError(ModnormError):
    """Evaluating a candidate failed; it gets no score."""


class EngineError(EvaluationError):
    """The infrastructure failed; the same candidate may succeed elsewhere or later."""


class CandidateError(EvaluationError):
    """This candidate cannot be evaluated anywhere, for example because logits are not finite."""


class IncompatibleError(EvaluationError):
    """No candidate of the experiment can be evaluated here (another model, a task that raises)."""


class DoesNotFitError(IncompatibleError):
    """The model needs more memory than the engine may use."""
