#!/bin/bash
# Starts the server of the image with the model that the environment names; further arguments go to the server
# and win over the ones given here.
#
#   PORT              gRPC, 8500
#   REST_API_PORT     REST, 8501; 0 for none
#   MODEL_NAME        efficientnet_lite0
#   MODEL_BASE_PATH   the folder that holds the model's versions or, as in TensorFlow's own image, the folder that
#                     holds the folder MODEL_NAME; /models
#   GRPC_MAX_THREADS  256; the real server's own default is four a CPU, and calls beyond that are refused
set -euo pipefail

: "${PORT:=8500}" "${REST_API_PORT:=8501}" "${MODEL_NAME:=efficientnet_lite0}"
: "${MODEL_BASE_PATH:=/models}" "${GRPC_MAX_THREADS:=256}"

if [[ -d "$MODEL_BASE_PATH/$MODEL_NAME" ]]; then
    MODEL_BASE_PATH="${MODEL_BASE_PATH%/}/$MODEL_NAME"
fi

server=(tensorflow_model_server)
if ! command -v tensorflow_model_server >/dev/null; then
    server=(python3 -m savedmodel_bakery.serving --engine=embedded)
fi

exec "${server[@]}" \
    --port="$PORT" \
    --rest_api_port="$REST_API_PORT" \
    --model_name="$MODEL_NAME" \
    --model_base_path="$MODEL_BASE_PATH" \
    --grpc_max_threads="$GRPC_MAX_THREADS" \
    "$@"
