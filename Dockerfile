# The demo in a container: docker build -t kbf . && docker run --rm -v "$PWD/results:/kbf/results" kbf
FROM ubuntu:24.04

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates g++ gcc libegl1 libgl1 libglib2.0-0t64 make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home robot \
    && install -d -o robot /kbf
# hadolint ignore=DL3066
USER robot
WORKDIR /kbf
COPY --chown=robot . .
RUN make .venv/ready-run
CMD ["make", "demo"]
