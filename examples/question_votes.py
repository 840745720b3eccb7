"""Print how an ensemble voted on one question: `python examples/question_votes.py RUN ROW`."""

import sys

from modnorm import load_run


def main(directory: str, row: str) -> None:
    """Print the question, the counts and the vote of each expert of the largest ensemble."""
    run = load_run(directory)
    ensemble = run.ensemble()
    vote = next(run.votes(int(row), ensemble.population, ensemble.ensemble_size))
    for answer in run.answers(candidate=ensemble.experts[0], split="heldout", row=vote.row):
        print(answer.prompt)
    print("gold:", vote.gold, "winner:", vote.answer, "tied:", vote.tied)
    for count in vote.counts:
        print(count.votes, "votes for", count.answer)
    for expert, answer_of_expert in zip(vote.experts, vote.votes, strict=True):
        print("candidate", expert, "voted", answer_of_expert)


if __name__ == "__main__":
    main(*sys.argv[1:])
