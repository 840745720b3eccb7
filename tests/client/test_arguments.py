"""Every argument of the Python API, given a value of a wrong type."""

import inspect
import re
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modnorm import Client, Run, load_run
from modnorm.analysis.run import load_runs
from modnorm.errors import InvalidInputError
from modnorm.prediction.predictor import PredictionSettings
from modnorm.spec import load_spec

NOBODY = "127.0.0.1:1"
"""A target that nothing serves."""
SOUND = {
    "experiment_id": "e1",
    "questions": [{"question": "q", "answer": "7"}],
    "population": 4,
    "ensemble_size": 2,
    "row": 0,
    "split": "heldout",
    "directory": "absent",
    "spec": "absent.yaml",
    "target": NOBODY,
}
"""Sound values of the arguments that a call must have."""
STRANGE = st.builds(object) | st.binary() | st.complex_numbers()
"""Values that no argument takes."""
PLAIN = {"str": st.text(), "bool": st.booleans(), "float": st.floats(), "int": st.integers()}
FUNCTIONS = (load_run, load_spec, load_runs, PredictionSettings, Client)


def wrong_values(parameter):
    """Return a strategy for values that the annotation of a parameter excludes."""
    hint = parameter.annotation
    text = hint.__name__ if isinstance(hint, type) else re.sub(r"\[.*\]", "", str(hint))
    taken = set(re.findall(r"\w+", text))
    if "float" in taken:
        taken.add("int")
    return st.one_of(STRANGE, *(values for name, values in PLAIN.items() if name not in taken))


def parameters_of(function):
    parameters = inspect.signature(function).parameters
    return {name: each for name, each in parameters.items() if name != "self"}


def methods(kind):
    """Return the names of the public methods of a class that take arguments."""
    own = inspect.getmembers(kind, inspect.isfunction)
    public = [(name, each) for name, each in own if name in vars(kind) and name[0] != "_"]
    return [name for name, each in public if parameters_of(each)]


def check(call, parameters, data):
    """Give one argument of a call a wrong value; the error must name field and remedy."""
    needed = [name for name, each in parameters.items() if each.default is each.empty]
    name = data.draw(st.sampled_from(sorted(parameters)))
    value = data.draw(wrong_values(parameters[name]))
    with pytest.raises(InvalidInputError) as raised:
        call(**{each: SOUND[each] for each in needed if each != name}, **{name: value})
    assert raised.value.field
    assert raised.value.remedy


few = partial(
    settings,
    max_examples=10,
    deadline=timedelta(seconds=5),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
@few()
@given(st.data())
def test_functions_refuse_wrong_types_at_the_call(function, data):
    check(function, parameters_of(function), data)


def test_only_patience_may_be_endless():
    with Client(NOBODY, patience=float("inf")) as client:
        assert client.patience == float("inf")
    with pytest.raises(InvalidInputError, match=r"timeout: .*finite"):
        Client(NOBODY, timeout=float("inf"))


@pytest.mark.parametrize("name", methods(Client))
@few()
@given(st.data())
def test_clients_refuse_wrong_types_at_the_call(connect, gsm8k_lab, name, data):
    check(getattr(connect(gsm8k_lab), name), parameters_of(getattr(Client, name)), data)


@pytest.mark.parametrize("name", methods(Run))
@few()
@given(st.data())
def test_runs_refuse_wrong_types_at_the_call(gsm8k_lab, name, data):
    with Client(gsm8k_lab) as client:
        check(getattr(client.run("e1"), name), parameters_of(getattr(Run, name)), data)
