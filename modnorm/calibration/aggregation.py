"""Sensitivities from estimated norms (paper, eq. app_aggregated_sensitivity)."""

import math
from collections.abc import Sequence

import torch

from modnorm.calibration.operator_norm import FLOOR


def aggregate(estimates: Sequence[float], quantile: float) -> dict[str, object]:
    """Return value and summary of some estimates, in the form of profiles.

    As in the published profiles, logs are float32 and the median of an even count is the lower
    middle one. So a value can lie a few 1e-7 (relative) outside of min and max.

    Args:
        estimates: At least one operator norm.
        quantile: Quantile of the logs, linear between neighbours.
    """
    floored = [max(estimate, FLOOR) for estimate in estimates]
    logs = torch.tensor([math.log(value) for value in floored], dtype=torch.float32)
    values = torch.tensor(floored, dtype=torch.float32)
    return {
        "value": math.exp(torch.quantile(logs, quantile).item()),
        "summary": {
            "count": len(floored),
            "min": values.min().item(),
            "median": values.median().item(),
            "max": values.max().item(),
        },
    }
