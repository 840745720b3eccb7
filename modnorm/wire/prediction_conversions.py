"""Conversions between predictions and their messages."""

from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction
from modnorm.search.voting import AnswerCount
from modnorm.v1 import prediction_pb2 as messages


def prediction_to_proto(prediction: Prediction) -> messages.Prediction:
    """Encode a prediction."""
    return messages.Prediction(
        row=prediction.row,
        answer=prediction.answer,
        completion=prediction.completion,
        agreement=prediction.agreement,
        votes=(
            messages.AnswerCount(answer=each.answer, votes=each.votes, expert=each.expert)
            for each in prediction.votes
        ),
        skipped=prediction.skipped,
        experts=map(_expert_to_proto, prediction.experts),
    )


def prediction_from_proto(message: messages.Prediction, first_row: int = 0) -> Prediction:
    """Decode a prediction of a batch of questions that begins at `first_row`."""
    return Prediction(
        row=first_row + message.row,
        answer=message.answer if message.HasField("answer") else None,
        completion=message.completion if message.HasField("completion") else None,
        agreement=message.agreement if message.HasField("agreement") else None,
        votes=tuple(AnswerCount(each.answer, each.votes, each.expert) for each in message.votes),
        skipped=message.skipped,
        experts=tuple(map(_expert_from_proto, message.experts)),
    )


def _expert_to_proto(answer: ExpertAnswer) -> messages.ExpertAnswer:
    return messages.ExpertAnswer(
        expert=answer.expert,
        vote=answer.vote,
        completion=answer.completion,
        tokens=answer.tokens,
        truncated=answer.truncated,
    )


def _expert_from_proto(message: messages.ExpertAnswer) -> ExpertAnswer:
    return ExpertAnswer(
        expert=message.expert,
        vote=message.vote if message.HasField("vote") else None,
        completion=message.completion,
        tokens=message.tokens,
        truncated=message.truncated,
    )
