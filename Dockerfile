# The harness with the pinned libraries: docker build -t eva-harness . && docker run --rm eva-harness
# Where the usual index has torch for GPUs only, name one with CPU builds, which are a tenth of the
# size: --build-arg PIP_EXTRA_INDEX_URL=...
FROM python:3.12-slim

# git: every stage records the commit it was computed with.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home harness \
    && install --directory --owner harness --group harness /data \
    && git config --system --add safe.directory /opt/eva-harness

ARG PIP_EXTRA_INDEX_URL
WORKDIR /opt/eva-harness
COPY . .
RUN python -m pip install --no-cache-dir --editable '.[test,lint]' --constraint constraints.txt

USER harness
WORKDIR /data
# Mount a folder at /data to keep what is computed.
ENV HARNESS_WORK=/data/.harness
ENTRYPOINT ["harness"]
CMD ["--help"]
