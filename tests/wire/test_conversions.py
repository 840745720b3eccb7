import pytest

from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto, spec_to_proto
from tests.faults import error_at

NEWER = b"\xfa\x3f\x01x"
"""Field 1023, of length 1, as a message of a later version may hold it."""


@pytest.mark.parametrize("path", ["", "engine", "task.heldout"])
def test_a_spec_with_a_field_of_a_newer_version_is_no_spec_without_it(path, spec):
    message = part = spec_to_proto(spec)
    for name in filter(None, path.split(".")):
        part = getattr(part, name)
    part.MergeFromString(NEWER)
    arrived = experiments.ExperimentSpec.FromString(message.SerializeToString())
    with error_at(path or "spec", "does not know"):
        spec_from_proto(arrived)
