"""The pages: each reads the data of its address and renders a template."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from starlette.requests import Request

from modnorm.analysis.answers import BASE_INDEX, AnswerFilter, AnswerRecord
from modnorm.analysis.document import EnsembleEntry
from modnorm.analysis.plots import PlotData, draw_plot, follow_theme, plot_names
from modnorm.analysis.report import PLOT_CAPTIONS, report_parts
from modnorm.analysis.votes import VoteFilter, VoteRecord
from modnorm.errors import InvalidInputError, ModnormError, NotFoundError
from modnorm.web import parameters
from modnorm.web.population import PAGE_LINES, STATES
from modnorm.web.rendering import render
from modnorm.web.sources import Catalog, ViewedRun

_COMPARED = 6
"""Runs that fit side by side."""


@dataclass(frozen=True, slots=True)
class _Expert:
    """An expert's part in a vote."""

    rank: int
    candidate: int
    vote: str | None
    correct: bool | None
    """None if it skipped the row."""
    answer: AnswerRecord | None


class Pages:
    """Renders pages of the runs of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._drawing = Lock()  # matplotlib is not thread-safe

    def runs(self, request: Request) -> str:
        """Render one page of the list of runs."""
        found = self._catalog.runs(parameters.page(request.query_params))
        return render(request.scope, "runs.html", found=found)

    def run(self, request: Request) -> str:
        """Render the figures and tables of a run."""
        run = self._run(request)
        if not run.finished:
            return render(request.scope, "unfinished.html", run=run, progress=run.progress)
        document = run.document
        return render(
            request.scope,
            "run.html",
            run=run,
            figures={name: PLOT_CAPTIONS[name] for name in plot_names(document)},
            **report_parts(document),
        )

    def figure(self, request: Request) -> bytes:
        """Draw one figure of a run as SVG."""
        run, name = self._run(request), request.path_params["figure"]
        if name not in plot_names(run.document):
            raise NotFoundError(f"the run has no figure {name[:80]!r}", field="figure")
        votes = _largest_votes(run) if name == "vote-support" else ()
        with self._drawing:
            image = draw_plot(name, PlotData(run.document, run.rewards(), votes), "svg")
        return follow_theme(image)

    def candidates(self, request: Request) -> str:
        """Render one page of candidates."""
        query = parameters.candidate_query(request.query_params)
        run = self._run(request)
        return render(
            request.scope,
            "candidates.html",
            run=run,
            query=query,
            states=STATES,
            found=run.candidates(query),
            rows=run.heldout_rows,
        )

    def answers(self, request: Request) -> str:
        """Render the answers of a candidate, one page of them."""
        run, page = self._run(request), parameters.page(request.query_params)
        candidate = _candidate(request)
        wanted = AnswerFilter(
            candidate=candidate,
            split=parameters.split(request.query_params),
            wrong=parameters.flag(request.query_params, "wrong"),
        )
        start = (page - 1) * PAGE_LINES
        found = list(islice(run.answers(wanted), start, start + PAGE_LINES + 1))
        return render(
            request.scope,
            "answers.html",
            run=run,
            candidate=candidate,
            wanted=wanted,
            page=page,
            answers=found[:PAGE_LINES],
            more=len(found) > PAGE_LINES,
        )

    def answer(self, request: Request) -> str:
        """Render one answer with its prompt and its completion."""
        run = self._run(request)
        wanted = AnswerFilter(
            candidate=_candidate(request),
            split=parameters.split(request.path_params),
            row=parameters.place(request.path_params, "row"),
        )
        answer = next(iter(run.answers(wanted)), None)
        if answer is None:
            raise NotFoundError(
                "no stored answer matches",
                field="row",
                remedy="only the base and experts answered held-out rows",
            )
        return render(request.scope, "answer.html", run=run, answer=answer)

    def questions(self, request: Request) -> str:
        """Render the votes of one ensemble, one page of them."""
        run, query = self._run(request), request.query_params
        chosen = _ensemble(run, request)
        wrong = parameters.flag(query, "wrong")
        start = (parameters.page(query) - 1) * PAGE_LINES
        votes = (vote for vote in run.votes(_votes_of(chosen)) if not (wrong and vote.correct))
        found = list(islice(votes, start, start + PAGE_LINES + 1))
        return render(
            request.scope,
            "questions.html",
            run=run,
            chosen=chosen,
            ensembles=run.document["ensembles"],
            wrong=wrong,
            page=parameters.page(query),
            votes=found[:PAGE_LINES],
            more=len(found) > PAGE_LINES,
        )

    def question(self, request: Request) -> str:
        """Render the votes on one held-out row, with the completions of one ensemble's experts."""
        run, row = self._run(request), parameters.place(request.path_params, "row")
        chosen = _ensemble(run, request)
        votes = list(run.votes(VoteFilter(row=row)))
        vote = next((each for each in votes if _is_of(each, chosen)), None)
        if vote is None:
            raise NotFoundError(
                f"there is no vote on row {row}",
                field="row",
                remedy=f"held-out rows are 0 to {chosen['rows'] - 1}",
            )
        answers = run.answers_of([BASE_INDEX, *vote.experts], vote.row)
        return render(
            request.scope,
            "question.html",
            run=run,
            chosen=chosen,
            votes=votes,
            vote=vote,
            base=answers.get(BASE_INDEX),
            experts=_experts(vote, answers),
            prompt=next((each.prompt for each in answers.values()), None),
        )

    def compare(self, request: Request) -> str:
        """Render finished runs side by side."""
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 2 <= len(names) <= _COMPARED:
            raise InvalidInputError(
                f"{len(names)} runs are chosen", field="run", remedy=f"choose 2 to {_COMPARED}"
            )
        rows = self._catalog.compare(names)
        sizes = sorted({size for row in rows for size in row["ensembles"]})
        return render(
            request.scope,
            "compare.html",
            rows=rows,
            pairs=list(zip(names, rows, strict=True)),
            sizes=sizes,
        )

    def error(self, request: Request, error: ModnormError) -> str:
        """Render an error with its remedy."""
        return render(request.scope, "error.html", error=error)

    def _run(self, request: Request) -> ViewedRun:
        return self._catalog.run(request.path_params["name"])


def _largest_votes(run: ViewedRun) -> Sequence[VoteRecord]:
    """Return the votes of the largest N and K."""
    largest = run.document["ensembles"][-1]
    return list(run.votes(_votes_of(largest)))


def _candidate(request: Request) -> int:
    return parameters.place(request.path_params, "candidate", least=-(2**31))


def _ensemble(run: ViewedRun, request: Request) -> EnsembleEntry:
    """Return the ensemble that an address names; by default the largest."""
    ensembles = run.document["ensembles"]
    n = parameters.integer(request.query_params, "n", least=1)
    k = parameters.integer(request.query_params, "k", least=1)
    matching = [
        each
        for each in ensembles
        if n in {None, each["population"]} and k in {None, each["ensemble_size"]}
    ]
    if not matching:
        raise NotFoundError(
            f"there is no ensemble N={n} K={k}", field="n", remedy="choose an ensemble of the run"
        )
    return matching[-1]


def _votes_of(ensemble: EnsembleEntry) -> VoteFilter:
    return VoteFilter(population=ensemble["population"], ensemble_size=ensemble["ensemble_size"])


def _is_of(vote: VoteRecord, ensemble: EnsembleEntry) -> bool:
    return (vote.population, vote.ensemble_size) == (
        ensemble["population"],
        ensemble["ensemble_size"],
    )


def _experts(vote: VoteRecord, answers: Mapping[int, AnswerRecord]) -> list[_Expert]:
    said = zip(vote.experts, vote.votes, vote.expert_correct, strict=True)
    return [
        _Expert(rank, candidate, answer, correct, answers.get(candidate))
        for rank, (candidate, answer, correct) in enumerate(said, 1)
    ]
