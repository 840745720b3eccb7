"""The pages: each reads the data of its address and renders a template."""

import math
from pathlib import Path
from threading import Lock

from starlette.requests import Request
from starlette.types import Scope

from modnorm.analysis.candidates import candidate_records
from modnorm.analysis.environments import describe_differing
from modnorm.analysis.plots import PlotData, draw_plot, follow_theme, plot_names
from modnorm.analysis.report import PLOT_CAPTIONS, page_environment, report_parts
from modnorm.analysis.uncertainty import accuracy_interval
from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.search.answers import BASE_INDEX
from modnorm.web.queries import PAGE_LINES, PageQuery, on_page, read_query
from modnorm.web.sources import Catalog, ViewedRun

CALLER = "modnorm.caller"
"""Key of the ASGI scope: name of the reader's token."""

_templates = page_environment(Path(__file__).parent / "templates")


def render(scope: Scope, template: str, **values: object) -> str:
    return _templates.get_template(template).render(
        root=scope.get("root_path", ""), caller=scope.get(CALLER, ""), **values
    )


def duration(seconds: float) -> str:
    """Return a time such as `1 h 05 min`, `12 min` or `40 s`."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min" if minutes else f"{whole} s"


_templates.filters |= {
    "duration": duration,
    "environments": describe_differing,
    "wilson": accuracy_interval,
}
_COMPARED = 6
"""Runs that fit side by side."""


class Pages:
    """Renders pages of the runs of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._drawing = Lock()  # matplotlib is not thread-safe

    def runs(self, request: Request) -> str:
        """Render one page of the list of runs."""
        page = _query(request).page
        runs, more = self._catalog.runs(page)
        return render(request.scope, "runs.html", runs=runs, page=page, more=more)

    def run(self, request: Request) -> str:
        """Render the figures and tables of a run."""
        run = self._run(request)
        if not run.status.finished:
            return render(request.scope, "unfinished.html", run=run, progress=run.status.progress)
        document = run.results.document
        return render(
            request.scope,
            "run.html",
            run=run,
            seconds=run.results.seconds(),
            figures={name: PLOT_CAPTIONS[name] for name in plot_names(document)},
            **report_parts(document),
        )

    def figure(self, request: Request) -> bytes:
        """Draw one figure of a run as SVG."""
        results, name = self._run(request).results, request.path_params["figure"]
        if name not in plot_names(results.document):
            raise NotFoundError(f"the run has no figure {name[:80]!r}", field="figure")
        largest = max((each.place for each in results.ensembles), default=(1, 1))
        votes = list(results.votes(None, *largest)) if name == "vote-support" else ()
        rewards = results.candidates_frame["selection_reward"].dropna().tolist()
        with self._drawing:
            image = draw_plot(name, PlotData(results.document, rewards, votes), "svg")
        return follow_theme(image)

    def candidates(self, request: Request) -> str:
        """Render one page of candidates."""
        run, query = self._finished_run(request)
        keys = list(dict.fromkeys([query.sort, "index"]))
        order = [not query.descending, True][: len(keys)]
        found = run.results.candidates_frame.sort_values(keys, ascending=order)
        pages = max(1, math.ceil(len(found) / PAGE_LINES))
        page = min(query.page, pages)
        return render(
            request.scope,
            "candidates.html",
            run=run,
            query=query,
            matches=len(found),
            lines=candidate_records(found[(page - 1) * PAGE_LINES : page * PAGE_LINES]),
            page=page,
            pages=pages,
            rows=max((each.rows for each in run.results.ensembles), default=0),
        )

    def answers(self, request: Request) -> str:
        """Render the answers of a candidate, one page of them."""
        run, query = self._finished_run(request)
        answers = run.results.answers(query.candidate, query.split, wrong=query.wrong)
        shown, more = on_page(answers, query.page)
        return render(
            request.scope, "answers.html", run=run, query=query, answers=shown, more=more
        )

    def answer(self, request: Request) -> str:
        """Render one answer with its prompt and its completion."""
        run, query = self._finished_run(request)
        answers = run.results.answers(query.candidate, query.split, query.row)
        answer = next(iter(answers), None)
        if answer is None:
            raise NotFoundError(
                "no stored answer matches",
                field="row",
                remedy="only the base and experts answered held-out rows",
            )
        return render(request.scope, "answer.html", run=run, answer=answer)

    def questions(self, request: Request) -> str:
        """Render the votes of one ensemble, one page of them."""
        run, query = self._finished_run(request)
        chosen = run.results.ensemble(query.n, query.k)
        found = run.results.votes(None, *chosen.place)
        votes = (vote for vote in found if not (query.wrong and vote.correct))
        shown, more = on_page(votes, query.page)
        return render(
            request.scope,
            "questions.html",
            run=run,
            chosen=chosen,
            ensembles=run.results.ensembles,
            query=query,
            votes=shown,
            more=more,
        )

    def question(self, request: Request) -> str:
        """Render the votes on one held-out row, with the completions of one ensemble's experts."""
        run, query = self._finished_run(request)
        chosen = run.results.ensemble(query.n, query.k)
        votes = list(run.results.votes(query.row))
        vote = next(
            each for each in votes if (each.population, each.ensemble_size) == chosen.place
        )
        asked = run.results.answers(split="heldout", row=query.row)
        answers = {each.candidate: each for each in asked}
        said = zip(vote.experts, vote.votes, vote.expert_correct, strict=True)
        experts = [
            {"candidate": one, "vote": key, "correct": correct, "answer": answers.get(one)}
            for one, key, correct in said
        ]
        return render(
            request.scope,
            "question.html",
            run=run,
            chosen=chosen,
            votes=votes,
            vote=vote,
            base=answers.get(BASE_INDEX),
            experts=experts,
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

    def _run(self, request: Request) -> ViewedRun:
        return self._catalog.run(request.path_params["name"])

    def _finished_run(self, request: Request) -> tuple[ViewedRun, PageQuery]:
        """Return a run, refused unless it has finished, and the values of the address."""
        run = self._run(request)
        _ = run.results
        return run, _query(request)


def _query(request: Request) -> PageQuery:
    return read_query(request.query_params, request.path_params)
