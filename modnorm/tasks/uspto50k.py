"""USPTO-50K: the class, one of ten, of a chemical reaction.

Selection uses micro accuracy, the held-out metric is balanced accuracy (paper, app. "USPTO-50K
Metric"). `uspto50k-v2` reads the class from the answer tag, from "class N", or from a completion
that is only a number. `uspto50k-reference-v1` reads the answer tag, else the last lone number from
1 to 10. Its metric compares texts, so `07` is not 7.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from modnorm.errors import InvalidInputError
from modnorm.tasks import columns
from modnorm.tasks.columns import AnswerTask
from modnorm.tasks.protocol import Judgement, Message, Row

SYSTEM = """\
You are an expert organic chemist. Your task is to classify chemical reactions into one of 10 \
standard reaction categories based on the transformation type.

## Reaction Classes:
1: Heteroatom alkylation/arylation - N, O, S attacking C (e.g., SN2, ether formation)
2: Acylation - Forming C=O bonds with N, O, S (e.g., amide, ester formation)
3: C-C bond formation - New C-C bonds (e.g., Suzuki, Heck, Grignard)
4: Heterocycle formation - Creating rings with N, O, S
5: Protections - Adding protecting groups (Boc, Bn, TBS, etc.)
6: Deprotections - Removing protecting groups
7: Reductions - Adding H, removing O (e.g., ketone\u2192alcohol, nitro\u2192amine)
8: Oxidations - Adding O, removing H (e.g., alcohol\u2192ketone)
9: Functional group interconversion - Changing one FG to another
10: Functional group addition - Adding new FG to molecule (e.g., halogenation)"""
USER = """\
Classify this reaction:

Reactants >> Product:
{rxn_smiles}

Analyze the key transformation and output the class number (1-10) in <answer>X</answer> tags."""

CLASSES = 10

_MAX_DIGITS = 4000
"""Most digits that Python converts to an integer by default."""

_ATOM_MAP = re.compile(r":\d+\]")
# A minus after a letter is a hyphen, as in `class-3`.
_NUMBER = r"((?:(?<![A-Za-z])[-\u2212])?\d{1,4})"
_TAGGED = re.compile(
    rf"<answer>[^<\d]{{0,40}}?{_NUMBER}(?:[^<\d]|(?<=[A-Za-z])\d){{0,200}}(?:</answer>|$)",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"\b(?:class|category|answer)(?: number)?[\s:#*([$]{0,8}(?:is\b)?[\s:#*([$]{0,8}(\d{1,4})\b",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"\W{{0,20}}?{_NUMBER}\W{{0,20}}")
_PUBLISHED_TAGGED = re.compile(r"<answer>\s*+(\d++)\s*+</answer>", re.IGNORECASE)
_PUBLISHED_NUMBER = re.compile(r"\b([1-9]|10)\b")


class Uspto50k(AnswerTask):
    """The USPTO-50K task; rows are `{"rxn_smiles": "CCO>>CC=O", "class": 8}` without atom maps."""

    name = "uspto50k"
    scorer = "uspto50k-v2"
    max_tokens = 64

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `rxn_smiles` and `class` (1 to 10, as a number or text)."""
        row, number = self.parse_question(raw), columns.number(raw.get("class"))
        if type(number) is not int or not 1 <= number <= CLASSES:
            raise InvalidInputError(f"must be a class from 1 to {CLASSES}", field="class")
        return {**row, "class": number}

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the column `rxn_smiles`; drop the rest."""
        reaction = columns.text(raw, "rxn_smiles")
        if ">>" not in reaction:
            raise InvalidInputError("must be REACTANTS>>PRODUCT", field="rxn_smiles")
        return {"rxn_smiles": _ATOM_MAP.sub("]", reaction)}

    def messages(self, row: Row) -> tuple[Message, ...]:
        user = USER.format(rxn_smiles=row["rxn_smiles"])
        return Message("system", SYSTEM), Message("user", user)

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the class that a completion names; None without a class from 1 to 10."""
        whole = _ALONE.fullmatch(completion)
        numbers = _TAGGED.findall(completion) or _NAMED.findall(completion) or [whole and whole[1]]
        number = int((numbers[-1] or "0").replace("\u2212", "-"))
        return str(number) if 1 <= number <= CLASSES else None

    def gold(self, row: Row) -> str:
        return str(row["class"])

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Balanced accuracy: the mean recall over the classes that occur."""
        by_class: dict[object, list[bool]] = defaultdict(list)
        for row, is_right in zip(rows, correct, strict=True):
            by_class[row["class"]].append(is_right)
        return fmean(fmean(values) for values in by_class.values())


class PublishedUspto50k(Uspto50k):
    """USPTO-50K scored as the published code does."""

    scorer = "uspto50k-reference-v1"

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the last tagged number, else the last lone number from 1 to 10."""
        numbers = _PUBLISHED_TAGGED.findall(completion) or _PUBLISHED_NUMBER.findall(completion)
        return numbers[-1] if numbers else None

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 for the right class as a number, else 0.

        The metric compares texts, so a vote of `07` is wrong.
        """
        vote = self.vote(row, completion)
        right = vote is not None and len(vote) <= _MAX_DIGITS and int(vote) == row["class"]
        return Judgement(reward=float(right), vote=vote, correct=vote == str(row["class"]))
