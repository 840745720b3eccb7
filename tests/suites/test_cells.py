import pytest

from modnorm.errors import InvalidInputError
from modnorm.suites.cells import overlay
from modnorm.suites.loading import load_suite, setting
from tests.faults import error_at


def test_cells_are_the_combinations_in_the_order_of_the_file(load):
    cells = load().cells
    assert [cell.id for cell in cells] == [
        f"{method}_{task}_{seed}"
        for method in ("randopt", "mn")
        for task in ("puzzles", "more")
        for seed in (42, 43)
    ]
    assert cells[0].labels == {"method": "RandOpt", "task": "puzzles", "seed": "42"}


def test_a_cell_is_an_ordinary_spec(load):
    first, last = load().cells[0].spec, load().cells[-1].spec
    assert (first.method.name, first.method.radius) == ("randopt", 0.01)
    assert (last.method.name, last.task.heldout.limit) == ("modular_norm", 20)
    assert [first.population.seed, last.population.seed] == [42, 43]
    assert first.population.reported_prefixes == (2, 4)
    assert first.name == "tiny-thicket countdown randopt N=4 seed 42"


def test_overrides_change_the_cells_that_they_name(load):
    wide = {"where": {"method": "MN", "task": ["more"]}, "set": {"method": {"radius": 0.5}}}
    late = {"where": {"seed": 43}, "set": {"task": {"max_tokens": 9}}}
    found = {cell.id: cell.spec for cell in load(overrides=[wide, late]).cells}
    assert [found[name].method.radius for name in ("mn_more_42", "mn_puzzles_42")] == [0.5, 0.2]
    assert found["mn_more_42"].method.name == "modular_norm"
    assert [found[f"mn_more_{seed}"].task.max_tokens for seed in (42, 43)] == [None, 9]


def test_excluded_combinations_are_no_cells(load):
    cells = load(exclude=[{"method": "MN", "task": "more"}]).cells
    assert len(cells) == 6
    with pytest.raises(InvalidInputError, match="no cells left"):
        load(exclude=[{"method": ["MN", "RandOpt"]}])


def test_settings_are_laid_over_every_cell(write):
    loaded = load_suite(write(), [setting("population.pool=published"), setting("engine=vllm")])
    assert {cell.spec.population.pool for cell in loaded.cells} == {"published"}
    assert {cell.spec.engine.name for cell in loaded.cells} == {"vllm"}
    assert {cell.spec.population.size for cell in loaded.cells} == {4}


@pytest.mark.parametrize("text", ["engine", "=3", "a..b=1", "a=[1"])
def test_settings_of_another_form_are_refused(text):
    with error_at("set"):
        setting(text)


def test_a_fault_of_a_cell_names_the_cell_and_the_field(load):
    wrong = {"where": {"method": "MN", "seed": "43"}, "set": {"population": {"size": 1}}}
    with error_at("cell MN / puzzles / 43") as caught:
        load(overrides=[wrong])
    assert caught.value.message.startswith("population.prefixes: ")


def test_options_that_are_written_alike_are_refused(load):
    sigma = {"method": {"name": "randopt", "sigma": 0.01}}
    tasks = {"task": {"name": "countdown", "selection": "a.jsonl", "heldout": "b.jsonl"}}
    with pytest.raises(InvalidInputError, match="two cells are named 'rand-opt_t_42'"):
        load(axes={"method": {"rand opt": sigma, "Rand-Opt": sigma}, "task": {"t": tasks}})


def test_profiles_come_from_the_first_cell_of_the_model(load):
    cells = {cell.id: cell for cell in load(profiles={"axis": "task", "from": "puzzles"}).cells}
    origins = {name: cell.profile_of for name, cell in cells.items() if cell.profile_of}
    assert origins == dict.fromkeys(("mn_more_42", "mn_more_43"), "mn_puzzles_42")
    assert cells["mn_more_42"].with_profile("ab" * 32).method.profile == "ab" * 32


def test_a_profile_needs_a_cell_that_calibrates(load):
    shared = {"axis": "task", "from": "puzzles"}
    with error_at("profiles.from"):
        load(profiles=shared, exclude=[{"task": "puzzles", "method": "MN"}])


@pytest.mark.parametrize(
    ("lower", "upper", "merged"),
    [
        ({"engine": "vllm"}, {"engine": {"max_num_seqs": 8}}, {"name": "vllm", "max_num_seqs": 8}),
        ({"engine": {"max_num_seqs": 8}}, {"engine": "vllm"}, "vllm"),
        (
            {"heldout": "rows.jsonl"},
            {"heldout": {"limit": 3}},
            {"source": "rows.jsonl", "limit": 3},
        ),
        ({"rows": "a.jsonl"}, {"rows": {"offset": 3}}, {"source": "a.jsonl", "offset": 3}),
        ({"name": "a"}, {"name": {"b": 1}}, {"b": 1}),
    ],
)
def test_a_section_that_is_given_by_one_field_alone_merges(lower, upper, merged):
    assert list(overlay(lower, upper).values()) == [merged]
