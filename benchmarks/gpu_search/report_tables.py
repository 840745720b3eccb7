"""Tables of a search's results."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Figures = Mapping[str, Any]
_HEAD = (
    *("contender", "engines", "candidates", "stopped", "seconds", "s/candidate", "x published"),
    *("switch s", "steps", "x floor", "waiting %", "right"),
)


def print_report(content: Figures) -> None:
    """Print the times of contenders and of their steps."""
    floor, contenders = content["floor"], content["contenders"]
    step = floor["weight_bytes"] / floor["bandwidth"]
    print(
        f"\n{floor['device']}: {floor['bandwidth'] / 1e12:.2f} TB/s read and written, "
        f"{floor['weight_bytes'] / 1e9:.2f} GB of weights: {1e3 * step:.3f} ms a step at least\n"
    )
    print_table([_HEAD, *_rows(contenders, step)])
    print("\nmilliseconds a step, of them the processor's (steps), by sequences in it\n")
    print_table(list(_batches(contenders)))


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table whose first line is the header."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        print(f"| {' | '.join(cells)} |")
        if number == 0:
            print(f"|{'|'.join('-' * (width + 1) + ':' for width in widths)}|")


def _rows(contenders: Figures, step: float) -> Iterator[Sequence[str]]:
    published = contenders.get("published")
    for name, figures in contenders.items():
        each, seconds = figures["seconds_a_candidate"], figures["seconds"]
        ratio = f"{published['seconds_a_candidate'] / each:.2f}" if published else ""
        yield (
            *(name, str(figures["engines"]), str(figures["candidates"]), str(figures["stopped"])),
            *(f"{seconds:.1f}", f"{each:.3f}", ratio),
            f"{figures['switch'] / figures['candidates']:.4f}",
            str(figures["steps"]),
            f"{seconds / (figures['steps'] * step):.2f}",
            f"{100 * figures['waiting'] / (seconds * figures['engines']):.1f}",
            "yes" if figures["right"] else f"NO: {_listed(figures['wrong'])}",
        )


def _listed(wrong: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in wrong.items())


def _batches(contenders: Figures) -> Iterator[Sequence[str]]:
    kept = {name: batches["steps_by_batch"] for name, batches in contenders.items()}
    classes = sorted({int(upper) for batches in kept.values() for upper in batches})
    yield ("contender", *(f"to {upper}" for upper in classes))
    for name, batches in kept.items():
        by_class = {int(upper): figures for upper, figures in batches.items()}
        yield (name, *(_cell(by_class.get(upper)) for upper in classes))


def _cell(figures: Sequence[float] | None) -> str:
    if not figures:
        return ""
    steps, seconds, busy = figures
    return f"{1e3 * seconds / steps:.2f}, {1e3 * busy / steps:.2f} ({steps:.0f})"
