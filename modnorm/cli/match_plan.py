"""What `modnorm match` tries, checked before a model is loaded or a lab is asked."""

from modnorm.admission import check_search_here
from modnorm.cli.options import settings
from modnorm.radius.matching_checks import check_count, check_method
from modnorm.spec import ExperimentSpec
from modnorm.wire.radius_conversions import Matching


def check_matching(spec: ExperimentSpec, wanted: Matching) -> None:
    """Refuse a matching for what its spec names on this machine.

    Raises:
        InvalidInputError: names the field or the option at fault.
        PreconditionError: the rows are not public and not on this machine.
    """
    check_method(spec.method, wanted.radii, wanted.sigma)
    rows = check_search_here(spec, folders=settings().split_folders)
    if rows is not None:
        check_count(rows, wanted.settings.prompts)
