"""The compose files: restrictions of every container, and the parts of a lab."""

import re
from pathlib import Path

import pytest
import yaml

from modnorm.services.common.settings import (
    AggregatorSettings,
    CalibratorSettings,
    SamplerSettings,
    SandboxSettings,
    ServiceSettings,
    SupervisorSettings,
)
from modnorm.services.evaluator.supervisor import STOP_SECONDS
from tests.deploy.serve_command import parsed

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, type[ServiceSettings]] = {
    "aggregator": AggregatorSettings,
    "calibrator": CalibratorSettings,
    "sampler": SamplerSettings,
    "sandbox": SandboxSettings,
    "evaluator": SupervisorSettings,
}
"""What each container reads from its environment."""
INTERNAL = {"control", "database", "queue", "sandbox"}
VARIABLE = re.compile(r"\$\{(\w+)(?:(:?[-?])([^}]*))?\}")


class Loader(yaml.SafeLoader):
    """A loader for compose's YAML tags."""


def override(loader: Loader, node: yaml.SequenceNode) -> list[object]:
    return list(loader.construct_sequence(node, deep=True))


Loader.add_constructor("!override", override)


def load(name):
    return yaml.load((ROOT / name).read_text(), Loader)


def is_required(text):
    found = VARIABLE.match(text)
    return found is not None and found[2] == ":?"


def with_defaults(text):
    return VARIABLE.sub(lambda found: found[3], text)


LAB = load("compose.yaml")
SERVICES = LAB["services"]
FILES = sorted(path.name for path in ROOT.glob("compose*.yaml"))
ALL = [
    pytest.param(file, name, id=f"{file}:{name}")
    for file in FILES
    for name, service in load(file)["services"].items()
    if "image" in service and (file == "compose.yaml" or name not in SERVICES)
]


@pytest.mark.parametrize(("file", "name"), ALL)
def test_a_container_has_no_more_than_it_needs(file, name):
    service = load(file)["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "ipc", "devices", "network_mode"} & set(service)
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert service["restart"] == "unless-stopped"
    assert service["logging"]["options"]["max-size"]


@pytest.mark.parametrize(("file", "name"), ALL)
def test_images_are_pinned_by_version(file, name):
    service = load(file)["services"][name]
    image = with_defaults(service["image"])
    assert re.search(r":v?\d+(\.\d+)+$", image), image
    assert service.get("pull_policy", "missing") != "always"


@pytest.mark.parametrize("name", ["postgres", "redis"])
def test_kubernetes_has_the_same_version(name):
    path = ROOT / "deploy/kubernetes/base/kustomization.yaml"
    tags = {one["name"]: one["newTag"] for one in yaml.safe_load(path.read_text())["images"]}
    assert with_defaults(load("compose.yaml")["services"][name]["image"]) == f"{name}:{tags[name]}"


def test_only_the_aggregator_and_serve_are_published():
    published = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert published.keys() == {"aggregator", "serve"}
    assert published["serve"] == ["${MODNORM_SERVE_PUBLISH:-127.0.0.1:8000}:8000"]
    api, page = SERVICES["aggregator"]["ports"]
    assert is_required(api)
    assert page == "${MODNORM_PAGE_PUBLISH:-127.0.0.1:8080}:8080"
    assert load("compose.gpu.yaml")["services"].keys() == {"evaluator", "serve"}
    queues = load("compose.hosts.yaml")["services"]
    (redis,), (rabbitmq,) = (queues[name]["ports"] for name in ("redis", "rabbitmq"))
    assert is_required(redis)
    assert rabbitmq.startswith("${MODNORM_RABBITMQ_PUBLISH:-127.0.0.1:")


def test_networks_have_no_route_out_but_two():
    networks = LAB["networks"]
    assert {name for name, network in networks.items() if network.get("internal") is True} == (
        INTERNAL
    )
    assert set(networks) - INTERNAL == {"front", "hub"}
    assert SERVICES["sandbox"]["networks"] == ["sandbox"]
    fronted = [name for name, one in SERVICES.items() if "front" in one["networks"]]
    assert fronted == ["aggregator", "serve"]
    assert {name for name, one in SERVICES.items() if "database" in one["networks"]} == (
        {"postgres", "aggregator"}
    )


def test_the_sandbox_is_given_nothing_to_steal():
    sandbox = SERVICES["sandbox"]
    assert "secrets" not in sandbox
    assert [volume["target"] for volume in sandbox["volumes"]] == ["/etc/modnorm/accepted"]
    assert sandbox["volumes"][0]["read_only"] is True


def test_the_sandbox_has_no_key_of_others():
    services = load("compose.tls.yaml")["services"]
    assert services["sandbox"]["secrets"] == ["tls_ca", "tls_sandbox_cert", "tls_sandbox_key"]
    others = {
        secret for name in services if name != "sandbox" for secret in services[name]["secrets"]
    }
    assert others & set(services["sandbox"]["secrets"]) == {"tls_ca"}


def test_secrets_are_files_and_in_no_environment():
    for name, secret in LAB["secrets"].items():
        assert secret.keys() == {"file"}
        assert secret["file"] == f"${{MODNORM_SECRETS:-./secrets}}/{name}"
    for service in SERVICES.values():
        for key, value in service.get("environment", {}).items():
            assert not re.search("PASSWORD|TOKEN|SECRET", key) or str(value).startswith("/"), key
            assert not re.search(r"://[^/]*:[^/]*@", str(value)), key


def test_services_may_finish_before_they_are_killed():
    for name in SETTINGS:
        period = with_defaults(SERVICES[name]["stop_grace_period"])
        grace = with_defaults(SERVICES[name]["environment"]["MODNORM_STOP_GRACE"])
        assert int(period.removesuffix("s")) >= int(grace) + STOP_SECONDS, name
    assert "stop_grace_period" not in load("compose.gpu.yaml")["services"]["evaluator"]


@pytest.mark.parametrize("file", FILES)
def test_a_container_is_given_settings_that_it_reads(file):
    for name, service in load(file)["services"].items():
        given = {key for key in service.get("environment", {}) if key.startswith("MODNORM_")}
        fields = SETTINGS[name].model_fields if name in SETTINGS else ()
        assert given <= {f"MODNORM_{field.upper()}" for field in fields}, name


def test_the_example_settings_are_those_that_the_compose_files_read():
    named = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    read = {found[1] for file in FILES for found in VARIABLE.finditer((ROOT / file).read_text())}
    assert set(named) - {"COMPOSE_FILE", "COMPOSE_PROFILES"} == read


def test_serve_reads_a_run_and_its_keys_and_is_part_of_no_lab():
    serve = SERVICES["serve"]
    assert serve["profiles"] == ["serve"]
    assert serve["networks"] == ["front"]
    assert serve["secrets"] == ["serve_keys"]
    run = serve["volumes"][0]
    assert run["read_only"] is True
    assert run["bind"] == {"create_host_path": False}
    command, name, source, *options = serve["entrypoint"]
    assert (command, name, source) == ("modnorm", "serve", run["target"])
    parameters = parsed([source, *options])
    assert str(parameters["api_keys"]) == f"/run/secrets/{serve['secrets'][0]}"
    (port,) = serve["ports"]
    assert port.endswith(f":{parameters['port']}")
    assert f":{parameters['port']}/readyz" in serve["healthcheck"]["test"][-1]
