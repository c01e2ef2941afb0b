# Two stages: what builds stays behind, what runs holds Python, the product and nothing to install more with.
ARG PYTHON=3.11.11-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /source
COPY pyproject.toml constraints.txt requirements.lock README.md LICENSE ./
COPY operator operator
COPY predictors predictors
# A prefix of its own makes one directory to copy. What comes from an index is pinned by hash as well, so that no index
# decides what goes in; then ourselves, with nothing beside.
RUN python -m pip install --no-cache-dir --disable-pip-version-check --no-compile \
      --prefix=/install --require-hashes --no-deps --requirement requirements.lock
RUN python -m pip install --no-cache-dir --disable-pip-version-check --no-compile \
      --prefix=/install --no-deps --constraint constraints.txt .
# Tests of libraries are a seventh of all that they bring, and no program here runs them.
RUN find /install -type d \( -name tests -o -name test \) -prune -exec rm -r {} +
# Whoever runs the image can't write beside the modules: without bytecode each start would compile all of them anew.
# By the source's digest and not by its time, which a copy may change; unchecked, since nobody changes the image.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /install -p /usr/local /install/lib

FROM python:${PYTHON}
RUN python -m pip uninstall --yes --quiet setuptools wheel pip 2>/dev/null || true
COPY --from=build /install /usr/local
# Numeric, so that Kubernetes can check runAsNonRoot.
USER 65532:65532
# The machine code of the engine's kernels is kept where the container may write: a restart there does not compile again.
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 NUMBA_CACHE_DIR=/tmp/numba
WORKDIR /var/lib/cotide
EXPOSE 8080
ENTRYPOINT ["cotide"]
CMD ["operator"]
