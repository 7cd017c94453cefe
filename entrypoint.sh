#!/bin/bash
# Starts the image's model server. Environment variables configure it; arguments are passed on to the server and
# override them.
#
#   PORT              gRPC port. Default: 8500
#   REST_API_PORT     REST port; 0 disables REST. Default: 8501
#   MODEL_NAME        Default: efficientnet_lite0
#   MODEL_BASE_PATH   Folder with the model's numbered versions or, as in TensorFlow's own image, the parent folder of
#                     MODEL_NAME. Default: /models. Or the URL of the folder with the versions, such as
#                     s3://bucket/models/flowers; tensorflow_model_server reads gs:// itself, and `bakery pull` copies
#                     the newest version from s3:// for it
#   MODEL_CACHE_DIR   Folder for copies of versions at a URL. Default: /tmp/models
#   GRPC_MAX_THREADS  gRPC calls that run at the same time. tensorflow_model_server rejects further calls, so the default
#                     is 256; in the embedded server they wait, so its default is four per CPU
#   GLIBC_TUNABLES    Default: glibc.malloc.hugetlb=1, which uses huge pages where Linux grants them on request, for
#                     large requests
#
# With `serve` as the first argument it follows SageMaker's contract, with AIP_HTTP_PORT in the environment that of
# Vertex AI, whose other variables the server itself reads.
set -euo pipefail

: "${PORT:=8500}" "${REST_API_PORT:=8501}" "${MODEL_NAME:=efficientnet_lite0}"
: "${MODEL_BASE_PATH:=/models}" "${MODEL_CACHE_DIR:=/tmp/models}"

is_embedded=true
if command -v tensorflow_model_server >/dev/null; then
    is_embedded=false
fi

if [[ "${1-}" == serve || -n "${AIP_HTTP_PORT-}" ]] && ! "$is_embedded"; then
    echo 'error: this image runs tensorflow_model_server, which lacks the routes of SageMaker and Vertex AI: use an' \
        'image of the target server or embedded' >&2
    exit 1
fi
if [[ "${1-}" == serve ]]; then
    shift
    set -- --health_route=/ping --predict_route=/invocations "$@"
    REST_API_PORT="${SAGEMAKER_BIND_TO_PORT:-8080}"
    if [[ -n "${SAGEMAKER_SAFE_PORT_RANGE-}" ]]; then
        PORT="${SAGEMAKER_SAFE_PORT_RANGE%%-*}"
    fi
    # The archive has NAME/NUMBER/saved_model.pb. Without an archive, the image's own model is served.
    models=/opt/ml/model
    if compgen -G "$models/*" >/dev/null; then
        MODEL_BASE_PATH="$models"
        first="$(compgen -G "$models/*/[0-9]*/saved_model.pb" | head --lines=1 || true)"
        first="${first%/*/saved_model.pb}"
        MODEL_NAME="${SAGEMAKER_TFS_DEFAULT_MODEL_NAME:-${first##*/}}"
        : "${MODEL_NAME:=model}"
    fi
elif [[ -n "${AIP_HTTP_PORT-}" ]]; then
    REST_API_PORT="$AIP_HTTP_PORT"
    MODEL_BASE_PATH="${AIP_STORAGE_URI:-$MODEL_BASE_PATH}"
fi

if [[ -d "$MODEL_BASE_PATH/$MODEL_NAME" ]]; then
    MODEL_BASE_PATH="${MODEL_BASE_PATH%/}/$MODEL_NAME"
fi
export GLIBC_TUNABLES="${GLIBC_TUNABLES-glibc.malloc.hugetlb=1}"

server=(tensorflow_model_server --grpc_max_threads="${GRPC_MAX_THREADS:-256}")
if "$is_embedded"; then
    server=(bakery model-server --engine=embedded --grpc_max_threads="${GRPC_MAX_THREADS:-0}")
    if [[ "$MODEL_BASE_PATH" == *://* ]]; then
        server+=(--model_cache_dir="$MODEL_CACHE_DIR")
    fi
fi

bucket=
if [[ "$MODEL_BASE_PATH" == s3://* ]] && ! "$is_embedded"; then
    bucket="$MODEL_BASE_PATH" MODEL_BASE_PATH="$MODEL_CACHE_DIR/$MODEL_NAME"
    if ! command -v bakery >/dev/null; then
        echo "error: tensorflow_model_server cannot read $bucket, and bakery, which copies it, is not in this image" >&2
        exit 1
    fi
    bakery pull "$bucket" "$MODEL_BASE_PATH"
fi

server+=(
    --port="$PORT"
    --rest_api_port="$REST_API_PORT"
    --model_name="$MODEL_NAME"
    --model_base_path="$MODEL_BASE_PATH"
    "$@"
)
if [[ -z "$bucket" ]]; then
    exec "${server[@]}"
fi
stop() {
    # shellcheck disable=SC2046 # their numbers are words
    kill $(jobs -p) 2>/dev/null || true
}
trap stop TERM INT
"${server[@]}" &
server_process=$!
bakery pull "$bucket" "$MODEL_BASE_PATH" --watch 10 &
wait -n || true # neither goes on without the other
stop
status=0
wait "$server_process" || status=$?
wait
exit "$status"
