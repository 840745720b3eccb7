"""Reading of a report from its messages."""

from collections.abc import Mapping

from modnorm.errors import InvalidInputError, TooLargeError
from modnorm.search.voting import Answer
from modnorm.services.aggregator.jobs.report_checks import Report
from modnorm.v1 import evaluation_pb2
from modnorm.wire.conversions import answer_from_proto, descriptor_from_proto

MAX_ANSWERS = 1_000_000
MAX_REPORT_BYTES = 256 * 2**20
"""Bytes of all messages of a report, which is held in memory before it is stored."""

MAX_NAME = 200
"""Characters of a worker's name or version, which are stored and displayed."""
MAX_ENVIRONMENT = 16 * 2**10
"""Characters of an environment's names and values, which are stored with each candidate."""


def check_name(name: str, field: str) -> None:
    """Check the name of a worker.

    Raises:
        InvalidInputError: the name is empty or too long.
    """
    if not name:
        raise InvalidInputError("the worker has no name", field=field, remedy="give it a name")
    check_length(name, field)


def check_length(text: str, field: str) -> None:
    """Check the length of a worker's name or version.

    Raises:
        InvalidInputError: the text is too long.
    """
    if len(text) > MAX_NAME:
        raise InvalidInputError(
            f"{len(text)} characters are more than {MAX_NAME}", field=field, remedy="shorten it"
        )


def check_environment(environment: Mapping[str, str]) -> None:
    """Check the size of an environment.

    Raises:
        InvalidInputError: its names and values are too long.
    """
    size = sum(len(name) + len(value) for name, value in environment.items())
    if size > MAX_ENVIRONMENT:
        raise InvalidInputError(
            f"{size} characters are more than {MAX_ENVIRONMENT}",
            field="header.environment",
            remedy="report only entries that answers depend on",
        )


class ReportReader:
    """Reads a report from its messages: one header, then answers."""

    def __init__(self) -> None:
        self._header: evaluation_pb2.ReportHeader | None = None
        self._answers = list[Answer]()
        self._room = MAX_REPORT_BYTES

    def check_room(self, part: evaluation_pb2.ReportJobRequest) -> None:
        """Count the bytes of the next message of a stream.

        Raises:
            TooLargeError: the report has too many bytes.
        """
        self._room -= part.ByteSize()
        if self._room < 0:
            raise TooLargeError(
                f"the report has more than {MAX_REPORT_BYTES} bytes", field="answers"
            )

    def add(self, part: evaluation_pb2.ReportJobRequest) -> None:
        """Read the next message.

        Raises:
            InvalidInputError: the message is out of order, or a field is too long.
        """
        if part.WhichOneof("part") != ("header" if self._header is None else "answers"):
            raise InvalidInputError("a report must be one header, then answers", field="part")
        if self._header is None:
            check_length(part.header.worker, "header.worker")
            check_environment(part.header.environment)
            self._header = part.header
            return
        self._answers.extend(map(answer_from_proto, part.answers.answers))
        if len(self._answers) > MAX_ANSWERS:
            raise InvalidInputError("there are too many answers", field="answers")

    def report(self) -> Report:
        """Return the report after its last message, answers in row order.

        Raises:
            InvalidInputError: there was no message.
        """
        header = self._header
        if header is None:
            raise InvalidInputError("a report must start with a header", field="part")
        return Report(
            job_id=header.lease.job_id,
            token=header.lease.token,
            worker=header.worker,
            descriptor=descriptor_from_proto(header.descriptor),
            answers=sorted(self._answers, key=lambda answer: answer.row),
            environment=dict(header.environment),
            switch_seconds=header.switch_seconds,
            generate_seconds=header.generate_seconds,
            score_seconds=header.score_seconds,
            normaliser=header.normaliser,
            stopped=header.stopped,
        )
