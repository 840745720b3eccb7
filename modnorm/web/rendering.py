"""HTML from the templates."""

from pathlib import Path

from starlette.types import Scope

from modnorm.analysis.environments import describe_differing
from modnorm.analysis.report import page_environment
from modnorm.analysis.uncertainty import accuracy_interval

FOLDER = Path(__file__).parent
CALLER = "modnorm.caller"
"""Key of the ASGI scope: name of the reader's token."""

_templates = page_environment(FOLDER / "templates")


def render(scope: Scope, template: str, **values: object) -> str:
    """Render a template for a request."""
    return _templates.get_template(template).render(
        root=scope.get("root_path", ""), caller=scope.get(CALLER, ""), **values
    )


def duration(seconds: float) -> str:
    """Return a time such as `1 h 05 min`, `12 min` or `40 s`."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min" if minutes else f"{whole} s"


_templates.filters["duration"] = duration
_templates.filters |= {"environments": describe_differing, "wilson": accuracy_interval}
