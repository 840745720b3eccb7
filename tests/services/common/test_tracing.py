import sys

import pytest

from modnorm.errors import PreconditionError
from modnorm.services.common.service_process import traced
from modnorm.services.common.settings import TracingSettings

ENDPOINT = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT, True),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ENDPOINT, True),
        ("OTEL_SERVICE_NAME", "x", False),
    ],
)
def test_traces_are_exported_if_an_endpoint_is_set(monkeypatch, name, value, wanted):
    monkeypatch.setenv(name, value)
    assert TracingSettings().wanted == wanted
    monkeypatch.setenv("OTEL_SDK_DISABLED", "")
    assert TracingSettings().wanted == wanted
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not TracingSettings().wanted


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "modnorm.services.common.telemetry", None)
    settings = TracingSettings(otel_exporter_otlp_endpoint=ENDPOINT)
    with pytest.raises(PreconditionError, match=r"modnorm\[telemetry\]"), traced(settings, "x"):
        pass
