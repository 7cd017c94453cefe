# Bakes a model and builds images that serve it:
#
#   tensorflow-serving      tensorflow_model_server (the default)
#   tensorflow-serving-gpu  the same, on an NVIDIA GPU
#   embedded                the embedded server, on CPUs
#
# The others have the server or the model only, for Kubernetes:
#
#   server                  the embedded server, without a model
#   client                  the commands that call a server
#   model                   the client and the model
#   kserve-model            the same with the versions in /models itself, for storageUri: oci://… of KServe
#
# To use another package registry, pass pip's configuration as the build secret pip.conf.
ARG PYTHON_BASE=python:3.11-slim-bookworm
ARG TENSORFLOW_SERVING_BASE=tensorflow/serving:2.21.0
ARG TENSORFLOW_SERVING_GPU_BASE=tensorflow/serving:2.21.0-gpu

# An empty environment in /opt/bakery, and the programs that fill it, which no image contains.
FROM ${PYTHON_BASE} AS tools
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
COPY requirements/image-tools.lock requirements/
# The version of strip does not matter, and no image contains the lists of packages.
# hadolint ignore=DL3008,DL3009
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    apt-get update --quiet \
    && apt-get install --quiet --yes --no-install-recommends binutils \
    && python3 -m venv --without-pip /opt/bakery \
    && python3 -m venv /opt/tools \
    && /opt/tools/bin/python3 -m pip install --require-hashes --requirement requirements/image-tools.lock
# From here on, pip installs into /opt/bakery.
ENV PIP_PYTHON=/opt/bakery/bin/python3 PATH=/opt/bakery/bin:/opt/tools/bin:$PATH

FROM tools AS wheel
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY answers answers
COPY client client
COPY examples examples
COPY exporter exporter
COPY labels labels
COPY savedmodel_bakery savedmodel_bakery
COPY serving serving
COPY storage storage
COPY wire wire
RUN env --unset=PIP_PYTHON pip wheel --no-build-isolation --no-deps --wheel-dir /wheels .

# The embedded server and its dependencies, without what serving does not use: TensorFlow's C++ headers, a Python binding of
# MLIR, symbol tables and tests. Only TensorFlow's libraries can be stripped; those of NumPy would no longer load.
# PACKAGES=buckets adds the clients of s3:// and gs://.
FROM tools AS server-packages
ARG PACKAGES=embedded
COPY requirements/${PACKAGES}.lock requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install --no-compile --no-deps --require-hashes --requirement requirements/${PACKAGES}.lock
COPY --from=wheel /wheels /wheels
COPY tools/finish_environment.sh tools/
RUN pip install --no-compile --no-deps --no-index /wheels/*.whl \
    && tools/finish_environment.sh

FROM tools AS client-packages
COPY requirements/client.lock requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install --no-compile --no-deps --require-hashes --requirement requirements/client.lock
COPY --from=wheel /wheels /wheels
COPY tools/finish_environment.sh tools/
RUN pip install --no-compile --no-deps --no-index /wheels/*.whl \
    && tools/finish_environment.sh

# The exporter and the model. MODEL and RECIPE may be paths in the build context.
FROM server-packages AS builder
ENV PYTHONDONTWRITEBYTECODE=
COPY requirements/builder.lock requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install --no-deps --require-hashes --requirement requirements/builder.lock
COPY . .
ARG MODEL=efficientnet-lite0
ARG MODEL_NAME=efficientnet_lite0
ARG MODEL_VERSION=
ARG RECIPE=
RUN bakery bake "$MODEL" --name "$MODEL_NAME" --out /models \
    ${MODEL_VERSION:+--version "$MODEL_VERSION"} ${RECIPE:+--recipe "$RECIPE"}

FROM ${PYTHON_BASE} AS client
LABEL org.opencontainers.image.title="savedmodel-bakery client" \
      org.opencontainers.image.version=0.2.0 \
      org.opencontainers.image.licenses=Apache-2.0
ENV PATH=/opt/bakery/bin:$PATH PYTHONUNBUFFERED=1
COPY --from=client-packages /opt/bakery /opt/bakery
USER 65532:65532
WORKDIR /
ENTRYPOINT ["bakery"]
CMD ["--help"]

FROM client AS model
LABEL org.opencontainers.image.title="savedmodel-bakery model"
COPY --from=builder /models /models

# KServe takes /models for the base path, and starts the image with its `sh`, `ln` and `sleep`.
FROM client AS kserve-model
LABEL org.opencontainers.image.title="savedmodel-bakery model for KServe"
ARG MODEL_NAME=efficientnet_lite0
COPY --from=builder /models/${MODEL_NAME} /models

FROM ${PYTHON_BASE} AS server
LABEL org.opencontainers.image.title="savedmodel-bakery embedded server" \
      org.opencontainers.image.version=0.2.0 \
      org.opencontainers.image.licenses=Apache-2.0 \
      com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true
ENV MODEL_BASE_PATH=/models PORT=8500 REST_API_PORT=8501
ENV PATH=/opt/bakery/bin:$PATH PYTHONUNBUFFERED=1
COPY --from=server-packages /opt/bakery /opt/bakery
COPY entrypoint.sh healthcheck.sh /usr/local/bin/
USER 65532:65532
WORKDIR /
EXPOSE 8500 8501
HEALTHCHECK --interval=10s --timeout=5s --start-period=2m CMD ["healthcheck.sh"]
ENTRYPOINT ["entrypoint.sh"]
CMD []

FROM server AS embedded
ARG MODEL_NAME=efficientnet_lite0
ENV MODEL_NAME=${MODEL_NAME}
COPY --from=builder /models /models

# TensorFlow takes all memory of a GPU unless it may grow, and the memory of all GPUs that it sees although it computes on the
# first: start one container per GPU.
FROM ${TENSORFLOW_SERVING_GPU_BASE} AS tensorflow-serving-gpu
LABEL org.opencontainers.image.title="tensorflow_model_server with a baked model, for GPUs" \
      org.opencontainers.image.version=0.2.0 \
      org.opencontainers.image.licenses=Apache-2.0
ARG MODEL_NAME=efficientnet_lite0
ENV MODEL_NAME=${MODEL_NAME} MODEL_BASE_PATH=/models PORT=8500 REST_API_PORT=8501
ENV TF_FORCE_GPU_ALLOW_GROWTH=true CUDA_VISIBLE_DEVICES=0
COPY entrypoint.sh healthcheck.sh /usr/local/bin/
COPY --from=builder /models /models
USER 65532:65532
WORKDIR /models
EXPOSE 8500 8501
HEALTHCHECK --interval=10s --timeout=5s --start-period=2m CMD ["healthcheck.sh"]
ENTRYPOINT ["entrypoint.sh"]
CMD []

FROM ${TENSORFLOW_SERVING_BASE} AS tensorflow-serving
LABEL org.opencontainers.image.title="tensorflow_model_server with a baked model" \
      org.opencontainers.image.version=0.2.0 \
      org.opencontainers.image.licenses=Apache-2.0
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
