"""The catalogue of the paper's data sets: their public origins and their splits.

A split is a task's named, fixed list of rows: `split:gsm8k/selection` in a spec. Its digest is
that of its rows in the task's schema (`modnorm.tasks.columns`), so it is equal for every copy and
file format. It is None for data sets whose rows were not available.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from modnorm.errors import InvalidInputError
from modnorm.hints import one_of


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of one split of a hub data set, or of one file of a folder."""

    file: str
    """Split on the hub, or a file's name in a folder without its suffix."""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """A named list of rows."""

    rows: int
    digest: str | None
    """Digest of the rows; None if only their number is known."""
    parts: tuple[Part, ...]
    """Positions of the rows: first on the hub, then in files of folders."""
    rule: str
    """Description of the rows and their relation to the paper's."""
    file_sha256: str | None = None
    """SHA-256 of the paper's own file of the split, if it can be rebuilt."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The data of one task."""

    task: str
    licence: str
    splits: Mapping[str, Split]
    hub: str | None = None
    """Hugging Face data set."""
    config: str | None = None
    revision: str | None = None
    """Pinned commit of the hub data set; None without one."""
    url: str | None = None
    """Address of the data file, if the data are not on the hub."""
    sha256: str | None = None
    """SHA-256 of that file."""
    shuffled: bool = False
    """Whether the file's rows are shuffled before they are divided into splits."""

    @property
    def is_public(self) -> bool:
        """Whether the rows can be downloaded."""
        return self.hub is not None or self.url is not None


_COUNTDOWN_URL = (
    "https://raw.githubusercontent.com/VsonicV/es-at-scale/"
    "574a9d134da1ffce2a8bb812019899e5c96b588a/archive/countdown/data/countdown.json"
)
_SHUFFLED = "random.Random(42).shuffle of all 2,200 rows; the paper's rows"

_DATASETS = (
    Dataset(
        task="countdown",
        licence="Academic Public License (noncommercial); do not redistribute",
        url=_COUNTDOWN_URL,
        shuffled=True,
        sha256="f1b5c5865d9f4bc517991740175f14f6869a2f8e4b00f8602f4655fdc6ccd8ba",
        splits={
            "selection": Split(
                rows=200,
                digest="a83ef0636dd498844eed4406859cde7a84e6eb68c828d7be809dc6e3e51b62b3",
                parts=(Part("countdown"),),
                rule=f"{_SHUFFLED}, the first 200",
                file_sha256="86f24778f6b545ae9ddb4c3fce6d3e7ce66fd0786632d5df67ca559c7c16337c",
            ),
            "heldout": Split(
                rows=500,
                digest="a9f187f780bac254abe238b4390f0b5aad6579798d7b25318c09afc638a87be0",
                parts=(Part("countdown", 200),),
                rule=f"{_SHUFFLED}, the next 500",
                file_sha256="29186cd3825cb0beb95540c31b32e4d5e59b56387461f5616040cd4ef8193e66",
            ),
            "test": Split(
                rows=1500,
                digest="657a45d6eadd8ee53054b6a3f0e02ea1865101687fb6f7ab4fbce17db484c671",
                parts=(Part("countdown", 700),),
                rule=f"{_SHUFFLED}, the last 1,500 (comparison with iterative baselines)",
                file_sha256="c2f9a47a63fd077f78ff51fac29955916ad7b23e96e5cb0022294dd86632c8bd",
            ),
        },
    ),
    Dataset(
        task="gsm8k",
        licence="MIT",
        hub="openai/gsm8k",
        config="main",
        revision="e53f048856ff4f594e959d75785d2c2d37b678ee",
        splits={
            "selection": Split(
                rows=200,
                digest="62576d480e069dafd6fbe05c7a1e838fdca2ad099301674f7c9cd72c9c1da321",
                parts=(Part("train"),),
                rule="the first 200 training rows; how the paper chose its 200 is not public",
            ),
            "heldout": Split(
                rows=1319,
                digest="93746e4fd4acb8f80542902436def296f5104ec72a00ba1fedbee90b19538fea",
                parts=(Part("test"),),
                rule="all test rows, the paper's",
            ),
        },
    ),
    Dataset(
        task="math500",
        licence="MIT",
        hub="HuggingFaceH4/MATH-500",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        splits={
            "selection": Split(
                rows=200,
                digest="924c149fd0a9f9f4e41a353659f1c548ce131d327bd7a71dc3ee00984a143d59",
                parts=(Part("test"), Part("train")),
                rule="the first 200 of the 500 rows",
            ),
            "heldout": Split(
                rows=300,
                digest="c7565ca9243bf7670eb6224b8dd3092634df2fce45e35a9ccbf8578d6c33763b",
                parts=(Part("test", 200), Part("test")),
                rule="the last 300 of the 500 rows",
            ),
        },
    ),
    Dataset(
        task="mbpp",
        licence="CC BY 4.0",
        hub="google-research-datasets/mbpp",
        config="full",
        revision="4bb6404fdc6cacfda99d4ac4205087b89d32030c",
        splits={
            "selection": Split(
                rows=200,
                digest="b985baa1040c6345b2b226fbb2779200c60095a13128e48031730ea06bd6d896",
                parts=(Part("train"),),
                rule="the first 200 training rows (task_id 601 to 800), the paper's",
            ),
            "heldout": Split(
                rows=500,
                digest="ed60e6e7c8d604cdf5bfb777efb2f403efe2004361db363ba73d63fb8bae9f48",
                parts=(Part("test"),),
                rule="all test rows (task_id 11 to 510), the paper's",
            ),
        },
    ),
    Dataset(
        task="olympiadbench",
        licence="MIT",
        hub="Hothan/OlympiadBench",
        config="OE_TO_maths_en_COMP",
        revision="91184b52131e7fc9455fef848035173aea8cc01a",
        splits={
            "selection": Split(
                rows=200,
                digest="58aedd372bc1c4e8fccbe47dc2f725ac9626ed871856275aa84de7a77b55432b",
                parts=(Part("train"), Part("OE_TO_maths_en_COMP")),
                rule="the first 200 of the 674 rows, the paper's",
            ),
            "heldout": Split(
                rows=474,
                digest="3e8531bd7e421aea6586475d90df101bdc0305312111ad782f8156e5f0acf68b",
                parts=(Part("train", 200), Part("OE_TO_maths_en_COMP", 200), Part("test")),
                rule="the other 474 rows, the paper's",
            ),
        },
    ),
    Dataset(
        task="rocstories",
        licence="by request from its authors",
        splits={
            "selection": Split(
                rows=200,
                digest=None,
                parts=(Part("train"), Part("rocstories")),
                rule="the first 200 training stories, or the first of one file of all 98,161",
            ),
            "heldout": Split(
                rows=9817,
                digest=None,
                parts=(Part("test"), Part("rocstories", 98_161 - 9_817)),
                rule="the first 9,817 test stories, or the last of one file of all 98,161; which "
                "stories the paper holds out is not public",
            ),
        },
    ),
    Dataset(
        task="uspto50k",
        licence="MIT (as in RetroXpert)",
        hub="pingzhili/uspto-50k",
        splits={
            "selection": Split(
                rows=200,
                digest=None,
                parts=(Part("train"),),
                rule="the first 200 training rows",
            ),
            "heldout": Split(
                rows=1001,
                digest=None,
                parts=(Part("validation"), Part("test")),
                rule="the 1,001 validation rows; of a folder's test file, the first 1,001",
            ),
        },
    ),
)

DATASETS: Mapping[str, Dataset] = MappingProxyType({data.task: data for data in _DATASETS})
"""The data sets by task."""


def find_task(task: str) -> Dataset:
    """Return the data set of a task."""
    if task not in DATASETS:
        raise InvalidInputError(
            f"there are no data of a task {task!r}",
            field="task",
            remedy=one_of(task, DATASETS),
        )
    return DATASETS[task]


def find_split(name: str, *, field: str) -> Dataset:
    """Return the data set of a split such as `gsm8k/selection`."""
    task, _, split = name.partition("/")
    if task not in DATASETS or split not in DATASETS[task].splits:
        names = [f"{data.task}/{part}" for data in DATASETS.values() for part in data.splits]
        raise InvalidInputError(
            f"there is no split named {name!r}", field=field, remedy=one_of(name, names)
        )
    return DATASETS[task]
