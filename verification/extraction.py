"""CPU time of judging hostile completions of 10,000 characters, and hostile expressions.

    python -m verification.extraction [--texts 3000] [--seed 0] [--repeats 3] [--task NAME ...]

CPU time of one `judge`, best of the repeats, in milliseconds. MBPP finds and canonicalises the
program, but runs none. The exit code is 1 when a text costs more than the bound.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from modnorm.errors import UnavailableError
from modnorm.sandbox import Isolation, Program, ProgramOutcome, Verdict
from modnorm.tasks import Row, Task, get_task
from modnorm.tasks.arithmetic import MAX_EXPRESSION
from modnorm.tasks.conformance import HOSTILE_LENGTH, hostile_completions
from modnorm.tasks.mathematics.canonical import canonical
from modnorm.tasks.mathematics.scalars import scalar_form
from modnorm.tasks.programs import canonical_program
from modnorm.tasks.registry import scorer_names

BOUND = 50.0
"""Milliseconds that any text of `HOSTILE_LENGTH` characters may take."""
EXPRESSION_BOUND = 10.0
"""Milliseconds that a Countdown expression may take, legal or nested beyond the bounds."""

ROWS: Mapping[str, Mapping[str, object]] = {
    "countdown": {"numbers": [44, 19, 35], "target": 98},
    "gsm8k": {"question": "q", "answer": "#### 72"},
    "math500": {"problem": "p", "answer": r"\frac{1}{2}"},
    "mbpp": {"text": "t", "test_list": ["assert double(2) == 4"]},
    "olympiadbench": {"question": "q", "final_answer": ["1,3"], "is_multiple_answer": True},
    "rocstories": {
        "shuffled_sentences": list("vwxyz"), "gold_order": [1, 0, 2, 3, 4],
    },
    "uspto50k": {"rxn_smiles": "C>>C", "class": 7},
}  # fmt: skip
PIECES = (
    "<answer>", "</answer>", "</think>", "<think>", "```python\n", "```", "####", "#### ", "\n",
    " ", "\t", "\\boxed{", "\\fbox", "answer is ", "final answer: ", "so ", "thus", "class ", "=",
    "is $", "\\(", "\\)", "$", "**", "*", "{", "}", "(", ")", "[", "]", "|", "\\{", "\\left(",
    "\\frac{1}{2}", "\\frac", "\\sqrt{2}", "\\sqrt", "\\sin ", "\\lfloor ", "\\rfloor", "\\pm ",
    "\\text{cm}", "\\begin{pmatrix}", "\\end{pmatrix}", "\\\\", "&", "\\cup", "\\in ", "\\circ",
    "\\binom{n}{9}", "n!", "!", "^", "^{9}", "_", "_{1}", "x", "n", "e", "i", "1", "9", "44", "0.",
    ",", "1,000", "-", "+", "/", "//", "<", ">", "\\le ", ".", ":", "A", "A,", "B C D", "E",
    "and ", "a()\n", "a[a]\n", "x<n", "x!,", "def f(): ", "lambda: ", "not ", "f'{", "'", '"',
    "if 1:\n ", "a.b", "x if y else ", "await ",
    "with (", "x='```'\n", "Sentence ", "2. ", "^{-1}", "\\tan", "{,}", "(x,y)=", "1 1/2 ",
    "\u0664", "\u2212", "\ud800", "\x00", "\u2028", "\u00e9",
)  # fmt: skip
FRAMES = (
    ("", ""), ("<answer>", "</answer>"), ("\\boxed{", "}"), ("#### ", ""), ("the answer is ", ""),
    ("```python\n", "\n```"),
)  # fmt: skip
SIZES = (100, 480, 4000, HOSTILE_LENGTH)
"""Characters of hostile text in a completion; plain words before it fill the rest."""


class IdleRunner:
    """Fails every program without running it, so that only the judging around it is timed."""

    def execute(self, program: Program) -> ProgramOutcome:  # noqa: ARG002 - as in Runner
        """Return a failed outcome; the program does not run."""
        return ProgramOutcome(Verdict.FAILED, "not run", 0, 0, "", 0.0, 0.0)

    def check_health(self) -> Isolation:
        """Raise, since nothing is isolated."""
        raise UnavailableError("no program runs here, so nothing is isolated")


def texts(count: int, seed: int) -> Iterator[str]:
    """Yield the hostile completions of the conformance check, then random ones."""
    yield from hostile_completions()
    draw = random.Random(seed)
    for _ in range(count):
        opening, closing = draw.choice(FRAMES)
        size = draw.choice(SIZES) - len(opening) - len(closing)
        pieces = draw.choices(PIECES, k=draw.choice((1, 2, 3, 4, size)))
        block = "".join(pieces)
        content = (block * (size // len(block) + 1))[:size]
        filler = "word " * (HOSTILE_LENGTH // 5)
        yield f"{filler}{opening}{content}{closing}"[-HOSTILE_LENGTH:]


def expressions() -> Iterator[str]:
    """Yield expensive Countdown answers for the numbers 44, 19 and 35."""
    powers = ("44**19**35", "44**35**19", "(44**19)**35", "(44**35)//19", "-44**-19**-35")
    deep = (f"{'(' * depth}44+19{')' * depth}+35" for depth in (100, 2000, 10_000))
    signs = (f"{sign * 4000}44+19+35" for sign in "+-")
    long = MAX_EXPRESSION // 2
    rest = ("44" + " " * long + "+19+35", f"44+19+35{')' * long}", "(" * long, "1" * 2 * long)
    yield from (*powers, *deep, *signs, *rest, "44/(19-19)+35", "0**-44+19+35")


def measure(task: Task, row: Row, text: str, repeats: int) -> float:
    """Return the CPU time of one judgement in milliseconds."""
    times = []
    for _ in range(repeats):
        canonical.cache_clear()
        scalar_form.cache_clear()
        canonical_program.cache_clear()
        began = time.thread_time()
        task.judge(row, text)
        times.append(time.thread_time() - began)
    return 1000 * min(times)


def _line(task: Task, bound: float, made: Sequence[str], repeats: int) -> tuple[str, bool]:
    row = task.parse(ROWS[task.name])
    times = [measure(task, row, text, repeats) for text in made]
    ranked = sorted(range(len(made)), key=times.__getitem__)
    worst = ranked[-1]
    percentile = times[ranked[int(0.99 * (len(ranked) - 1))]]
    start = made[worst].replace("word ", "")[:60]
    figures = f"{len(made):,} | {percentile:.2f} | {times[worst]:.2f} | {bound:g}"
    return f"| `{task.scorer}` | {figures} | {start!a} |", times[worst] <= bound


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every scorer, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m verification.extraction")
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--task", choices=tuple(ROWS), nargs="+", default=tuple(ROWS))
    options = parser.parse_args(arguments)
    made = list(texts(options.texts, options.seed))
    hard = [f"</think>\n<answer>{expression}</answer>" for expression in expressions()]
    print("| scorer | texts | 99th percentile | worst | bound | worst text |")
    print("|---|---:|---:|---:|---:|---|")
    good = True
    for name in options.task:
        for scorer in scorer_names(name):
            task = get_task(name, scorer=scorer, sandbox=IdleRunner())
            cases = [(BOUND, made)] + [(EXPRESSION_BOUND, hard)] * (name == "countdown")
            for bound, chosen in cases:
                line, within = _line(task, bound, chosen, options.repeats)
                print(line, flush=True)
                good = good and within
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
