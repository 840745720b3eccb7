"""The interface between the web application and an engine's way to answer."""

from collections.abc import AsyncGenerator
from typing import Protocol

from modnorm.prediction.ranked_votes import Prediction
from modnorm.serving.served_ensemble import Question


class Answering(Protocol):
    """Answers questions with an ensemble and its experts; used by one event loop."""

    async def start(self) -> None:
        """Load the model.

        Raises:
            IncompatibleError: the engine cannot run the model.
            EngineError: the infrastructure failed.
        """

    def stop(self) -> None:
        """Answer the questions that wait, or drop them, and free the model."""

    @property
    def is_ready(self) -> bool:
        """Whether questions are answered."""

    @property
    def is_alive(self) -> bool:
        """Whether the engine works, or has not been started."""

    def answer(self, question: Question) -> AsyncGenerator[str | Prediction]:
        """Yield pieces of the text if the question streams, then the prediction.

        Closing the generator drops the question.

        Raises:
            ApiError: nothing is answered now.
            InvalidInputError: the task's code raised.
            EngineError: the infrastructure failed.
        """
