"""ROCStories: put five shuffled sentences of a story in order.

Selection rewards positions and the order of neighbours; the held-out metric counts exact orders
(paper, app. "Data, Generation, and Scoring Protocol"). `rocstories-v1` reads the last five
different letters that stand together. `rocstories-reference-v1` reads as the published code does;
if nothing else matches, it takes the first five letters from A to E, even inside words.
"""

import hashlib
import random
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import cast

from modnorm.errors import InvalidInputError
from modnorm.tasks import columns
from modnorm.tasks.columns import AnswerTask
from modnorm.tasks.protocol import Judgement, Message, Row

SYSTEM = (
    "You are a helpful assistant that excels at story comprehension and logical reasoning. Given "
    "shuffled sentences from a story, you carefully analyze the narrative flow and temporal cues "
    "to determine the correct chronological order."
)
USER = """\
Below are 5 sentences from a story, but they are in the wrong order.
Please arrange them in the correct chronological order.

Title: {title}

Sentence A: {sentence_0}
Sentence B: {sentence_1}
Sentence C: {sentence_2}
Sentence D: {sentence_3}
Sentence E: {sentence_4}

Output the correct order as comma-separated letters (e.g., B,A,D,E,C).
Only output the letters, nothing else."""

LABELS = "ABCDE"
POSITION_WEIGHT = 0.6
ADJACENCY_WEIGHT = 0.4

_SENTENCES = tuple(f"sentence{number}" for number in range(1, 6))
_NEXT = (
    rf"[^A-Za-z\d]{{1,6}}(?:{number}[^A-Za-z\d]{{1,4}}|and\s{{1,2}})?(?:[Ss]entence\s{{1,2}})?([A-E])"
    for number in range(2, 6)
)
_SEPARATED = re.compile(r"(?<![A-Za-z])([A-E])" + "".join(_NEXT) + r"(?![A-Za-z])")
_LOWER = re.compile(r"(?<![A-Za-z])([a-e])" + r"\s{0,2},\s{0,2}([a-e])" * 4 + r"(?![A-Za-z])")
_TOGETHER = re.compile(r"(?<![A-Za-z])" + r"([A-E])" * 5 + r"(?![A-Za-z])")
_PUBLISHED = (
    re.compile(r"([A-E])" + r"\s*,\s*([A-E])" * 4),
    re.compile(r"([A-E])" + r"\s+([A-E])" * 4),
    re.compile(r"([A-E])" * 5),
)


class RocStories(AnswerTask):
    """The ROCStories task; rows have `title`, `shuffled_sentences`, `gold_order`.

    Rows are `{"title": ..., "shuffled_sentences": [five], "gold_order": [1, 0, 4, 2, 3]}`. The
    first sentence of the story is `shuffled_sentences[gold_order[0]]`. Rows may also have the
    published columns (see `parse`).
    """

    name = "rocstories"
    scorer = "rocstories-v1"
    max_tokens = 64

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check a shuffled row, or shuffle the published columns.

        The published columns are `storyid`, `storytitle` and `sentence1` to `sentence5`. A
        generator seeded with the story's id shuffles them, so a story always has the same order,
        never the right one.
        """
        if "sentence1" in raw:
            return _shuffled(raw)
        row = self.parse_question(raw)
        listed = columns.listed(raw, "gold_order")
        order = list(map(columns.whole, listed)) if isinstance(listed, list) else []
        if {type(index) for index in order} != {int} or sorted(map(str, order)) != list("01234"):
            raise InvalidInputError("must be the numbers 0 to 4 in some order", field="gold_order")
        return {**row, "gold_order": order}

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check a shuffled row, without its `gold_order`, or shuffle the published columns."""
        if "sentence1" in raw:
            return _shuffled(raw)
        return {
            "title": columns.optional_text(raw, "title"),
            "shuffled_sentences": _sentences(raw),
        }

    def messages(self, row: Row) -> tuple[Message, ...]:
        sentences = columns.texts(row, "shuffled_sentences")
        fields = {f"sentence_{number}": sentence for number, sentence in enumerate(sentences)}
        user = USER.format(title=row["title"], **fields)
        return Message("system", SYSTEM), Message("user", user)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: 0.6 positions + 0.4 neighbours in order, of a permutation."""
        vote = self.vote(row, completion)
        reward = 0.0 if vote is None else order_score(vote, right_order(row))
        return Judgement(reward=reward, vote=vote, correct=vote == right_order(row))

    def gold(self, row: Row) -> str:
        return right_order(row)

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the last five different letters that stand together; None without them."""
        for pattern in (_SEPARATED, _TOGETHER, _LOWER):
            orders = list(_orders(pattern, completion))
            if orders:
                return orders[-1]
        return None


class PublishedRocStories(RocStories):
    """ROCStories with the published extraction."""

    scorer = "rocstories-reference-v1"

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the order that the published code reads; None if it is no permutation."""
        text = completion.strip().upper()
        matches = (pattern.search(text) for pattern in _PUBLISHED)
        match = next(filter(None, matches), None)
        letters = "".join(match.groups() if match else re.findall("[A-E]", text)[:5])
        return letters if _is_permutation(letters) else None


def right_order(row: Row) -> str:
    """Return the letters of the right order: `BAECD`."""
    return "".join(LABELS[index] for index in cast("list[int]", row["gold_order"]))


def order_score(order: str, right: str) -> float:
    """Return 0.6 times the share of right positions + 0.4 times that of ordered neighbours."""
    positions = sum(a == b for a, b in zip(order, right, strict=True))
    neighbours = sum(order.index(a) < order.index(b) for a, b in pairwise(right))
    return POSITION_WEIGHT * (positions / 5) + ADJACENCY_WEIGHT * (neighbours / 4)


def _orders(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Yield the valid orders that a pattern matches, also those inside invalid matches."""
    match = pattern.search(text)
    while match is not None:
        letters = "".join(match.groups()).upper()
        valid = _is_permutation(letters)
        if valid:
            yield letters
        match = pattern.search(text, match.end() if valid else match.start() + 1)


def _is_permutation(letters: str) -> bool:
    return sorted(letters) == list(LABELS)


def _sentences(raw: Mapping[str, object]) -> list[str]:
    sentences = columns.texts(raw, "shuffled_sentences")
    if len(sentences) != len(LABELS):
        raise InvalidInputError("must be five sentences", field="shuffled_sentences")
    return sentences


def _shuffled(raw: Mapping[str, object]) -> Row:
    story = columns.text(raw, "storyid")
    sentences = [columns.text(raw, column) for column in _SENTENCES]
    generator = random.Random(hashlib.sha256(story.encode()).digest())
    places = list(range(len(LABELS)))
    while places == sorted(places):
        generator.shuffle(places)
    return {
        "title": columns.optional_text(raw, "storytitle"),
        "shuffled_sentences": [sentences[place] for place in places],
        "gold_order": [places.index(number) for number in range(len(LABELS))],
    }
