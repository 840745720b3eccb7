"""The plots of a run, as its directory has them."""

from modnorm.analysis.document import results_document
from modnorm.analysis.plots import draw_plots, plot_data
from modnorm.analysis.run_data import RunData


def draw_run(run: RunData) -> dict[str, bytes]:
    """Return the plots of a run, by name."""
    return draw_plots(plot_data(run, results_document(run)))
