"""The manifests of the Kubernetes example, read from their files."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
FOLDERS = ("base", "gpu", "serve", "serve-gpu")
BELOW = {"../base", "../serve"}
"""Folders that others build on."""


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def kustomization(name):
    (content,) = documents(f"{name}/kustomization.yaml")
    return content


BASE = [one for name in kustomization("base")["resources"] for one in documents(f"base/{name}")]
SERVE = documents("serve/serve.yaml")
WORKLOADS = {
    one["metadata"]["name"]: one
    for one in [*BASE, *SERVE]
    if one["kind"] in {"Deployment", "StatefulSet"}
}
CONTAINERS = [
    (name, container)
    for name, one in WORKLOADS.items()
    for kind in ("initContainers", "containers")
    for container in one["spec"]["template"]["spec"].get(kind, [])
]
SCALING = documents("gpu/scaling.yaml")
SHOWN_BY_KEDA = {
    one["metadata"]["name"]: one["spec"]["secretTargetRef"]
    for one in SCALING
    if one["kind"] == "TriggerAuthentication"
}
(SCALED,) = (one["spec"] for one in SCALING if one["kind"] == "ScaledObject")
TRIGGERS = {one["type"]: one["metadata"] for one in SCALED["triggers"]}


def pod(name):
    return WORKLOADS[name]["spec"]["template"]["spec"]
