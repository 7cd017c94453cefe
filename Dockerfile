# Bakes a model and builds one of two images that serve it:
#
#   tensorflow-serving  tensorflow_model_server (the default)
#   embedded            the embedded server, on CPUs
#
# To use another package registry, pass pip's configuration as the build secret pip.conf.
ARG PYTHON_BASE=python:3.11-slim-bookworm
ARG TENSORFLOW_SERVING_BASE=tensorflow/serving:2.21.0

# The embedded server and its dependencies. TensorFlow's C++ headers, a fifth of its size, are removed.
FROM ${PYTHON_BASE} AS server
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/bakery/bin:$PATH
WORKDIR /src
COPY requirements/embedded.lock requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python3 -m venv /opt/bakery \
    && python3 -m pip install --no-deps --require-hashes --requirement requirements/embedded.lock \
    && rm -r /opt/bakery/lib/python3*/site-packages/tensorflow/include
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY client client
COPY examples examples
COPY exporter exporter
COPY labels labels
COPY savedmodel_bakery savedmodel_bakery
COPY serving serving
COPY wire wire
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python3 -m pip install --no-deps .

# The exporter and the model. MODEL and RECIPE may be paths in the build context.
FROM server AS builder
ARG MODEL=efficientnet-lite0
ARG MODEL_NAME=efficientnet_lite0
ARG RECIPE=
COPY requirements/builder.lock requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python3 -m pip install --no-deps --require-hashes --requirement requirements/builder.lock
COPY . .
RUN bakery bake --model "$MODEL" --name "$MODEL_NAME" --out /models ${RECIPE:+--recipe "$RECIPE"}

FROM ${PYTHON_BASE} AS embedded
ARG MODEL_NAME=efficientnet_lite0
ENV MODEL_NAME=${MODEL_NAME} MODEL_BASE_PATH=/models PORT=8500 REST_API_PORT=8501
ENV PATH=/opt/bakery/bin:$PATH PYTHONUNBUFFERED=1
COPY --from=server /opt/bakery /opt/bakery
COPY entrypoint.sh healthcheck.sh /usr/local/bin/
COPY --from=builder /models /models
USER 65532:65532
WORKDIR /models
EXPOSE 8500 8501
HEALTHCHECK --interval=10s --timeout=5s --start-period=2m CMD ["healthcheck.sh"]
ENTRYPOINT ["entrypoint.sh"]
CMD []

FROM ${TENSORFLOW_SERVING_BASE} AS tensorflow-serving
ARG MODEL_NAME=efficientnet_lite0
ENV MODEL_NAME=${MODEL_NAME} MODEL_BASE_PATH=/models PORT=8500 REST_API_PORT=8501
COPY entrypoint.sh healthcheck.sh /usr/local/bin/
COPY --from=builder /models /models
USER 65532:65532
WORKDIR /models
EXPOSE 8500 8501
HEALTHCHECK --interval=10s --timeout=5s --start-period=2m CMD ["healthcheck.sh"]
ENTRYPOINT ["entrypoint.sh"]
CMD []
