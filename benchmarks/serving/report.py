"""The table of a served ensemble."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.serving.load import Answer, Speed
from benchmarks.serving.measured_server import ServingPlan

_LABELS = {
    "ensemble": "vote of {experts} experts, in turns",
    "expert-1": "one of those experts",
}
_HEAD = (
    "answered by", "requests/s", "tokens/s", "median s", "95 % s", "skipped", "GPU GiB", "start s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    model: str
    gpu_bytes: int | None
    """Memory of the GPU that the server took, after the requests."""
    started_seconds: float
    speed: Speed
    answers: Sequence[Answer]

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return asdict(self)


def print_table(rows: Sequence[Row], asked: ServingPlan) -> None:
    """Print the rows, then the sizes of experts."""
    print(f"| {' | '.join(_HEAD)} |")
    print(f"|---|{'---:|' * (len(_HEAD) - 1)}")
    for row in rows:
        print(f"| {' | '.join(_cells(row, asked))} |")
    weights = sum(each.stat().st_size for each in _weights(asked))
    print(
        f"\nOn disk a checkpoint has {weights / 2**20:.1f} MiB. "
        f"{asked.experts} held at once would take {asked.experts * weights / 2**30:.2f} GiB. "
        f"Key-value cache: {asked.cache_gib:g} GiB."
    )


def _cells(row: Row, asked: ServingPlan) -> Sequence[str]:
    label = _LABELS[row.model].format(experts=asked.experts)
    speed = row.speed
    return (
        label,
        f"{speed.requests_per_second:.1f}",
        f"{speed.tokens_per_second:,.0f}",
        f"{speed.median_seconds:.2f}",
        f"{speed.slow_seconds:.2f}",
        str(speed.skipped),
        "-" if row.gpu_bytes is None else f"{row.gpu_bytes / 2**30:.2f}",
        f"{row.started_seconds:.0f}",
    )


def _weights(asked: ServingPlan) -> Sequence[Path]:
    return list(asked.checkpoint().directory.glob("*.safetensors"))
