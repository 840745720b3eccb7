# The images of all services, one target each (docs/adr/0007):
#
#     docker build --target aggregator --tag modnorm/aggregator .
#
# `docker compose build` builds them all. Wheels in the build context `wheels` (`--build-context
# wheels=DIR`) are taken beside those of indexes, and alone with `--build-arg PIP_NO_INDEX=1`.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG VLLM_IMAGE=vllm/vllm-openai:v0.26.0
# Labels, last in each image: a new revision rebuilds no layer.
# `--build-arg REVISION=$(git rev-parse HEAD)` names the commit.
ARG VERSION=0.1.0
ARG REVISION=unknown

FROM scratch AS wheels

# A virtual environment without pip: what installs into it stays behind.
FROM ${PYTHON_IMAGE} AS build
ARG PIP_NO_INDEX=
ENV PIP_NO_INDEX=${PIP_NO_INDEX} \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
RUN python -m venv --without-pip /opt/modnorm
WORKDIR /src

FROM build AS code
COPY pyproject.toml README.md LICENSE ./
COPY modnorm modnorm
COPY services services
RUN --mount=type=bind,from=wheels,target=/wheels \
    pip --python /opt/modnorm/bin/python install --find-links=/wheels --no-deps .

# The packages' own tests are a tenth of an image: they stay behind, too.
FROM build AS aggregator-packages
COPY constraints.txt services/aggregator/requirements.txt ./
RUN --mount=type=bind,from=wheels,target=/wheels \
    pip --python /opt/modnorm/bin/python install --find-links=/wheels \
        -c constraints.txt -r requirements.txt \
    && find /opt/modnorm -type d -name tests -prune -exec rm -r {} +

FROM build AS sandbox-packages
COPY constraints.txt services/sandbox/requirements.txt ./
RUN --mount=type=bind,from=wheels,target=/wheels \
    pip --python /opt/modnorm/bin/python install --find-links=/wheels \
        -c constraints.txt -r requirements.txt

# For all that load models.
# PyTorch's own index has a build for CPUs; the one on PyPI brings gigabytes of CUDA.
FROM build AS torch-packages
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=type=bind,from=wheels,target=/wheels \
    pip --python /opt/modnorm/bin/python install --find-links=/wheels \
        ${TORCH_INDEX:+--extra-index-url=${TORCH_INDEX}} torch==2.13.0
COPY pyproject.toml constraints.txt scripts/requirements.py ./
RUN --mount=type=bind,from=wheels,target=/wheels \
    python requirements.py services telemetry >requirements.txt \
    && pip --python /opt/modnorm/bin/python install --find-links=/wheels \
        -c constraints.txt -r requirements.txt \
    && find /opt/modnorm -type d \( -name tests -o -path '*/torch/test' \) -prune -exec rm -r {} + \
    && find /opt/modnorm -path '*/torch/bin/*' -iname '*test*' -delete

# What every service has: an account, its directories, no way to write elsewhere.
FROM ${PYTHON_IMAGE} AS runtime
RUN useradd --no-create-home --home-dir /tmp --uid 10001 modnorm \
    && install --directory --owner modnorm --group modnorm \
        /data /models /var/cache/modnorm /var/cache/modnorm/huggingface \
        /var/cache/modnorm/lab-runs
ENV PATH=/opt/modnorm/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    HF_HOME=/var/cache/modnorm/huggingface \
    HF_HUB_DISABLE_TELEMETRY=1 \
    MODNORM_CACHE_DIR=/var/cache/modnorm \
    MODNORM_DATA_ROOTS=/data \
    MODNORM_MODEL_ROOTS=/models
USER modnorm
WORKDIR /tmp

FROM runtime AS torch-runtime
COPY --from=torch-packages /opt/modnorm /opt/modnorm
COPY --from=code /opt/modnorm /opt/modnorm

FROM runtime AS aggregator
COPY --from=aggregator-packages /opt/modnorm /opt/modnorm
COPY --from=code /opt/modnorm /opt/modnorm
ENV MODNORM_BIND_ADDRESS=0.0.0.0:50051
EXPOSE 50051
ENTRYPOINT ["python", "-m", "modnorm.services.aggregator.server"]
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="modnorm aggregator" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"

# An account of its own: its limit of processes counts those of other containers, too.
FROM runtime AS sandbox
USER root
RUN useradd --no-create-home --home-dir /tmp --uid 10005 sandbox
USER sandbox
COPY --from=sandbox-packages /opt/modnorm /opt/modnorm
COPY --from=code /opt/modnorm /opt/modnorm
ENV MODNORM_BIND_ADDRESS=0.0.0.0:50055
EXPOSE 50055
ENTRYPOINT ["python", "-m", "modnorm.services.sandbox.server"]
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="modnorm sandbox" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"

FROM torch-runtime AS calibrator
ENV MODNORM_BIND_ADDRESS=0.0.0.0:50052
EXPOSE 50052
ENTRYPOINT ["python", "-m", "modnorm.services.calibrator.server"]
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="modnorm calibrator" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"

FROM torch-runtime AS sampler
ENV MODNORM_BIND_ADDRESS=0.0.0.0:50053
EXPOSE 50053
ENTRYPOINT ["python", "-m", "modnorm.services.sampler.server"]
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="modnorm sampler" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"

# Idle OpenMP threads that spin for long take the cores from their neighbours.
FROM torch-runtime AS evaluator
ENV GOMP_SPINCOUNT=20000 \
    MODNORM_BIND_ADDRESS=127.0.0.1:50054
ENTRYPOINT ["python", "-m", "modnorm.services.evaluator.supervisor"]
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="modnorm evaluator" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"

# vLLM's image brings its own Python, torch and CUDA. Its packages keep their versions: whatever
# cannot be installed beside them ends the build.
FROM ${VLLM_IMAGE} AS evaluator-gpu
ARG PIP_NO_INDEX=
USER root
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt scripts/requirements.py ./
RUN --mount=type=bind,from=wheels,target=/wheels \
    python3 -m pip list --format=freeze >present.txt \
    && python3 requirements.py services telemetry --constraints constraints.txt --present present.txt \
        >requirements.txt \
    && python3 -m pip install --no-cache-dir --find-links=/wheels \
        -c present.txt -r requirements.txt
COPY modnorm modnorm
COPY services services
RUN --mount=type=bind,from=wheels,target=/wheels \
    python3 -m pip install --no-cache-dir --find-links=/wheels --no-deps . \
    && useradd --no-create-home --home-dir /tmp --uid 10001 modnorm \
    && install --directory --owner modnorm --group modnorm \
        /data /models /var/cache/modnorm /var/cache/modnorm/huggingface \
        /var/cache/modnorm/lab-runs
ENV PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    HF_HOME=/var/cache/modnorm/huggingface \
    HF_HUB_DISABLE_TELEMETRY=1 \
    VLLM_CACHE_ROOT=/var/cache/modnorm/vllm \
    MODNORM_BIND_ADDRESS=127.0.0.1:50054 \
    MODNORM_CACHE_DIR=/var/cache/modnorm \
    MODNORM_DATA_ROOTS=/data \
    MODNORM_DEVICES=all \
    MODNORM_MODEL_ROOTS=/models
USER modnorm
WORKDIR /tmp
ENTRYPOINT ["python3", "-m", "modnorm.services.evaluator.supervisor"]
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="modnorm evaluator-gpu" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
