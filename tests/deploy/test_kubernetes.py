"""The Kubernetes example: restrictions of every pod, and resolvable names."""

import re
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import kubernetes_validate
import psycopg
import pytest
import yaml

from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.tables import OPEN, Job, JobState, Split
from modnorm.services.common.settings import (
    AggregatorSettings,
    SandboxSettings,
    SupervisorSettings,
)
from tests.deploy.kubernetes_manifests import (
    BELOW,
    CONTAINERS,
    FOLDER,
    FOLDERS,
    ROOT,
    SCALED,
    SERVE,
    SHOWN_BY_KEDA,
    TRIGGERS,
    WORKLOADS,
    documents,
    kustomization,
    pod,
)
from tests.deploy.serve_command import parsed
from tests.deploy.test_release import project_version
from verification.labs import servers
from verification.labs.waiting import wait_until

SETTINGS = {
    f"MODNORM_{name}".upper()
    for kind in (AggregatorSettings, SandboxSettings, SupervisorSettings)
    for name in kind.model_fields
}
OLDEST, NEWEST = "1.27", kubernetes_validate.latest_version()
"""Versions of Kubernetes; gRPC probes are stable since the first."""


@pytest.mark.parametrize("name", FOLDERS)
def test_objects_have_only_fields_of_their_schemas(name):
    for file in set(kustomization(name)["resources"]) - BELOW:
        for one in documents(f"{name}/{file}"):
            if not one["apiVersion"].startswith("keda.sh/"):
                kubernetes_validate.validate(one, OLDEST, strict=True)
                kubernetes_validate.validate(one, NEWEST, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("name", FOLDERS)
def test_a_kustomization_builds_objects_of_the_schema(name):
    command = ["kubectl", "kustomize", str(FOLDER / name)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for one in yaml.safe_load_all(text):
        if not one["apiVersion"].startswith("keda.sh/"):
            kubernetes_validate.validate(one, NEWEST, strict=True)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pod_has_no_more_than_it_needs(name):
    spec = pod(name)
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert not any("hostPath" in volume for volume in spec.get("volumes", []))


def test_the_sandbox_shares_its_number_with_nobody():
    numbers = {name: pod(name)["securityContext"]["runAsUser"] for name in WORKLOADS}
    assert list(numbers.values()).count(numbers["sandbox"]) == 1


@pytest.mark.parametrize(("name", "container"), CONTAINERS)
def test_a_container_has_no_more_than_it_needs(name, container):
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]) == {"requests", "limits"}
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}


@pytest.mark.parametrize(("name", "container"), CONTAINERS)
def test_images_have_a_version(name, container):
    versions = {
        one["name"]: one["newTag"] for kind in FOLDERS for one in kustomization(kind)["images"]
    }
    image = container["image"]
    assert ":" not in image, "tags are in the kustomization"
    if image.startswith("modnorm/"):
        assert versions[image] == project_version()
    else:
        assert re.fullmatch(r"\d+(\.\d+)+", versions[image])


def test_secrets_are_those_of_the_script(tmp_path):
    subprocess.run(
        [ROOT / "scripts/make-secrets", tmp_path / "s"], check=True, capture_output=True
    )
    made = {path.name for path in (tmp_path / "s").iterdir()}
    for name in WORKLOADS:
        for volume in pod(name)["volumes"]:
            for item in volume.get("secret", {}).get("items", []):
                assert item["key"] in made
    assert {one["key"] for shown in SHOWN_BY_KEDA.values() for one in shown} <= made


def test_settings_are_known():
    shown = [
        variable["name"]
        for _, container in CONTAINERS
        for variable in container.get("env", [])
        if container["image"].startswith("modnorm/")
    ]
    for generated in kustomization("base")["configMapGenerator"]:
        shown += [line.partition("=")[0] for line in generated["literals"]]
    assert {name for name in shown if name.startswith("MODNORM_")} <= SETTINGS


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pod_has_all_three_probes(name):
    (container,) = pod(name)["containers"]
    probes = {kind: container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    assert all(len({"exec", "grpc", "httpGet"} & set(probe)) == 1 for probe in probes.values())
    # A slow start is no reason for a restart: the first minutes are the startup probe's.
    assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] >= 120
    assert probes["liveness"]["failureThreshold"] > 3
    assert probes["liveness"]["timeoutSeconds"] >= 10


def test_serve_is_asked_at_its_probes_and_reached_at_its_port_alone():
    service, policy, _ = SERVE
    (container,) = pod("serve")["containers"]
    words = [*container["command"][2:], *container["args"]]
    parameters = parsed(words)
    port = parameters["port"]
    paths = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness")
    }
    assert paths == {"startup": "/readyz", "liveness": "/healthz"}
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    assert [one["port"] for one in service["spec"]["ports"]] == [port]
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": port}]}]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert words[0].startswith(mounts["ensemble"])
    assert str(parameters["api_keys"]) == f"{mounts['secrets']}/serve_keys"


def test_nobody_reaches_anybody_but_as_listed():
    policies = {
        one["metadata"]["name"]: one["spec"] for one in documents("base/network-policies.yaml")
    }
    assert policies["nothing-else"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for spec in policies.values():
        if "Egress" not in spec["policyTypes"]:
            continue
        selector = spec["podSelector"]
        chosen = selector.get("matchExpressions", [{"values": []}])[0]
        assert "sandbox" not in chosen["values"] or chosen["operator"] == "NotIn"


def test_keda_scales_a_workload_with_secrets_that_exist():
    assert SCALED["scaleTargetRef"]["name"] in WORKLOADS
    assert {one["authenticationRef"]["name"] for one in SCALED["triggers"]} == set(SHOWN_BY_KEDA)


@pytest.fixture
def leases(postgres_url):
    """A database with the documented user of KEDA, without foreign keys."""
    role = TRIGGERS["postgresql"]["userName"]
    with closing(Database(postgres_url)) as database:
        database.migrate()
    (grant,) = re.findall(r"GRANT .*;", (ROOT / "docs/deployment-kubernetes.md").read_text())
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {role}")
        connection.execute(f"CREATE ROLE {role}")
        connection.execute(grant)
        connection.execute("SET session_replication_role = replica")  # no foreign keys
        yield connection
        connection.execute("RESET ROLE")
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_keda_counts_lease_holders_and_pending_jobs_and_reads_nothing_else(leases):
    held = [
        *[(JobState.LEASED, worker, Split.SELECTION) for worker in ("a", "a", "b")],
        *[(JobState.PENDING, "c", Split.HELDOUT)] * 17,
        *[(state, "c", Split.HELDOUT) for state in JobState if state not in OPEN],
    ]
    for number, (state, worker, split) in enumerate(held):
        job = Job(
            id=f"j{number}",
            experiment_id="e",
            candidate=number,
            split=split,
            state=state,
            worker=worker,
        ).model_dump()
        names, places = ", ".join(job), ", ".join(["%s"] * len(job))
        leases.execute(f"INSERT INTO jobs ({names}) VALUES ({places})", [*job.values()])
    leases.execute(f"SET ROLE {TRIGGERS['postgresql']['userName']}")
    assert leases.execute(TRIGGERS["postgresql"]["query"]).fetchone() == (3,)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        leases.execute("SELECT environment FROM jobs")


@pytest.mark.parametrize("accepted", ["hostssl", "hostnossl"])
def test_keda_reads_a_database_with_and_without_tls(accepted):
    mode = TRIGGERS["postgresql"]["sslmode"]  # KEDA's driver reads it as libpq does
    with servers.database() as server, closing(server.connect()) as owner:
        (folder,) = (Path(str(name)) for (name,) in owner.execute("SHOW data_directory"))
        key, certificate = str(folder / "server.key"), str(folder / "server.crt")
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        made += ["-nodes", "-subj", "/CN=postgres", "-keyout", key, "-out", certificate]
        subprocess.run(made, check=True, capture_output=True)
        for file in (key, certificate):
            shutil.chown(file, folder.owner())
        (folder / "pg_hba.conf").write_text(f"{accepted} all all all trust")
        owner.execute("ALTER SYSTEM SET ssl = on")
        owner.execute("SELECT pg_reload_conf()")
        wait_until(lambda: owner.execute("SHOW ssl").fetchone() == ("on",), "TLS")
        with closing(psycopg.connect(server.url, sslmode=mode)) as connection:
            assert connection.pgconn.ssl_in_use == (accepted == "hostssl")
