"""Documented settings can be set in the .env of a compose lab."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTED = {
    name for page in PAGES for name in re.findall(r"\bMODNORM_[A-Z_]+\b", page.read_text())
}
COMPOSE = "".join(path.read_text() for path in sorted(ROOT.glob("compose*.yaml")))
PASSED = set(re.findall(r"\$\{(MODNORM_\w+)", re.sub(r"(?m)#.*$", "", COMPOSE)))

CLIENT = "of the client, which runs outside"
MOUNT = "a path inside a container, where compose mounts it"
NETWORK = "an address on the lab's networks, which compose lays out"
LAYOUT = "a path inside the images: what lies there comes from a volume or a host folder"
TOKENS = "for services without tokens, which a lab requires"
NOT_FOR_ENV = {
    "MODNORM_ALLOW_ANONYMOUS": TOKENS,
    "MODNORM_PROXY": CLIENT,
    "MODNORM_SERVER": CLIENT,
    "MODNORM_TIMEOUT": CLIENT,
    "MODNORM_TOKEN": CLIENT,
    "MODNORM_ACCEPTED_TOKENS": MOUNT,
    "MODNORM_BROKER_PASSWORD_FILE": MOUNT,
    "MODNORM_DATABASE_PASSWORD_FILE": MOUNT,
    "MODNORM_TLS_CA": MOUNT,
    "MODNORM_TLS_CERT": MOUNT,
    "MODNORM_TLS_KEY": MOUNT,
    "MODNORM_TOKEN_FILE": MOUNT,
    "MODNORM_BIND_ADDRESS": NETWORK,
    "MODNORM_CALIBRATOR_TARGET": NETWORK,
    "MODNORM_DATABASE_URL": "the lab's own Postgres; another is for Kubernetes or processes",
    "MODNORM_METRICS_ADDRESS": NETWORK,
    "MODNORM_PAGE_ADDRESS": NETWORK,
    "MODNORM_PAGE_HOSTS": TOKENS,
    "MODNORM_SAMPLER_TARGET": NETWORK,
    "MODNORM_SANDBOX_TARGET": NETWORK,
    "MODNORM_CACHE_DIR": LAYOUT,
    "MODNORM_DATA_ROOTS": LAYOUT,
    "MODNORM_MODEL_ROOTS": LAYOUT,
    "MODNORM_ENGINE_PORTS": "a container has a loopback of its own: no port there is taken",
    "MODNORM_MIGRATE_ON_START": "the service `migrate` brings the schema up to date",
    "MODNORM_TORCH_THREADS": "MODNORM_THREADS sets it together with OMP_NUM_THREADS",
}
"""Settings that a lab's .env lacks, with the reason."""


def test_every_documented_setting_can_be_set_in_env_or_says_why_not():
    assert sorted(DOCUMENTED - PASSED - NOT_FOR_ENV.keys()) == []
