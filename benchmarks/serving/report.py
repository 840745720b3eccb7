"""The table of served ensembles."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.serving.load import Answer, Speed
from benchmarks.serving.measured_server import ServingPlan
from modnorm.perturbation.adapters import write_adapter

_LABELS = {
    ("base", "ensemble"): "base alone",
    ("adapters", "ensemble"): "vote of {experts} adapters, rank {rank}",
    ("adapters", "expert-1"): "one of those adapters",
    ("full", "ensemble"): "vote of {experts} full-rank experts, switched",
    ("full", "expert-1"): "one of those experts",
    ("merged", "ensemble"): "vote of the adapters' experts, switched",
}
_HEAD = (
    "answered by", "requests/s", "tokens/s", "median s", "95 % s", "skipped", "GPU GiB", "start s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    way: str
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
    voted = {row.way: row.answers for row in rows if row.model == "ensemble"}
    if {"adapters", "merged"} <= voted.keys():
        print(f"\n{_agreement(voted['adapters'], voted['merged'])}")
    weights = sum(each.stat().st_size for each in _weights(asked))
    adapter = _adapter_bytes(asked)
    print(
        f"\nOn disk: an expert as an adapter {_mib(adapter)} MiB, as a checkpoint "
        f"{_mib(weights)} MiB. {asked.experts} checkpoints held at once would take "
        f"{asked.experts * weights / 2**30:.2f} GiB for weights alone. "
        f"Key-value cache of each server: {asked.cache_gib:g} GiB."
    )


def _agreement(adapters: Sequence[Answer], merged: Sequence[Answer]) -> str:
    """Compare the answers that the same experts gave as adapters and as merged weights."""
    pairs = list(zip(adapters, merged, strict=True))
    equal = [
        one.completions[expert] == other.completions[expert]
        for one, other in pairs
        for expert in one.completions.keys() & other.completions.keys()
    ]
    votes = [one.vote == other.vote for one, other in pairs]
    return (
        f"Adapters and merged weights: {sum(votes)} of {len(votes)} votes and {sum(equal)} of "
        f"{len(equal)} completions are equal."
    )


def _cells(row: Row, asked: ServingPlan) -> Sequence[str]:
    label = _LABELS[row.way, row.model].format(experts=asked.experts, rank=asked.rank)
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


def _adapter_bytes(asked: ServingPlan) -> int:
    ensemble = asked.ensemble(asked.rank, 1)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "adapter"
        descriptor = ensemble.experts[0].descriptor
        write_adapter(asked.checkpoint(), descriptor, ensemble.scale_map, folder)
        return sum(path.stat().st_size for path in folder.iterdir())


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}"
