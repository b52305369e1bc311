# The image of deploy/compose.yaml and deploy/kuberay: Ray with its dashboard and jobs, and Sunshower.
#
# Build it in the folder of the repository, for each release:
#
#     docker build -t sunshower:0.1.0 .
FROM python:3.11 AS build

COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE /src/
COPY sunshower /src/sunshower
RUN PIP_CONSTRAINT=/src/constraints.txt pip wheel --no-cache-dir --no-deps -w /wheels /src

FROM python:3.11-slim

# The probes use wget.
RUN apt-get update \
    && apt-get install -y --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --home-dir /sunshower --uid 1000 ray

ARG EXTRAS=kafka,zookeeper,redis,postgres,http,protobuf,metrics,profile
RUN --mount=from=build,source=/wheels,target=/wheels \
    --mount=source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir -c /constraints.txt "$(ls /wheels/*.whl)[$EXTRAS]" "ray[default]"

USER ray
WORKDIR /sunshower
