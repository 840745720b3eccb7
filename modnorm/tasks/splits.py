"""Named splits: found in a folder, else read from the hub.

In a folder that `modnorm.tasks.fetch` wrote, the split `gsm8k/selection` is the file
`gsm8k/selection.jsonl`; a folder of the data sets' own files (`gsm8k/train.jsonl`,
`gsm8k/test.parquet`) serves as well. Wherever they come from, rows are taken only if their number
and their digest are the catalogue's; where it knows no digest, a fetched split's is its
manifest's.
"""

import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.spec import DataSpec
from modnorm.tasks import mbpp
from modnorm.tasks.catalogue import Dataset, Part, Split, find_split
from modnorm.tasks.countdown import Countdown
from modnorm.tasks.files import Raw, RawRow, find_file, read_file
from modnorm.tasks.gsm8k import Gsm8k
from modnorm.tasks.hub import read_dataset
from modnorm.tasks.manifest import FOLDER, Manifest, Origin, SplitRecord, first_change
from modnorm.tasks.manifest import read_manifest as _read_manifest
from modnorm.tasks.math500 import Math500
from modnorm.tasks.olympiadbench import OlympiadBench
from modnorm.tasks.protocol import Row
from modnorm.tasks.rocstories import RocStories
from modnorm.tasks.rows import rows_digest
from modnorm.tasks.uspto50k import Uspto50k

_SHUFFLE_SEED = 42
_PARSERS: Mapping[str, Callable[[Raw], Row]] = MappingProxyType(
    {
        "countdown": Countdown().parse,
        "gsm8k": Gsm8k().parse,
        "math500": Math500().parse,
        "mbpp": mbpp.parse_row,
        "olympiadbench": OlympiadBench().parse,
        "rocstories": RocStories().parse,
        "uspto50k": Uspto50k().parse,
    }
)

_T = TypeVar("_T")
