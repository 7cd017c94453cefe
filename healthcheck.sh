#!/bin/bash
# Exits with 0 if the container's server is ready; otherwise prints the reason and exits with 1.
#
# The embedded server is ready when each of its models has an AVAILABLE version, tensorflow_model_server when MODEL_NAME has.
# If REST is disabled or has TLS, it is enough that the port accepts connections.
#
# Uses only bash and coreutils, as tensorflow_model_server's image has neither curl nor Python. Reads ports and model from
# the environment, not from the server's arguments.
set -euo pipefail

: "${PORT:=8500}" "${REST_API_PORT:=8501}" "${MODEL_NAME:=efficientnet_lite0}"

if [[ "$REST_API_PORT" == 0 ]]; then
    exec 3<>"/dev/tcp/127.0.0.1/$PORT"
    exit
fi

path=/v2/health/ready
ready='^HTTP/1\.[01] 200 |^([^H]|$)'  # a port with TLS does not answer in HTTP
if command -v tensorflow_model_server >/dev/null; then
    path=/v1/models/
    ready='"state": *"AVAILABLE"'
    LC_ALL=C  # so that characters are bytes
    for ((at = 0; at < ${#MODEL_NAME}; at++)); do
        printf -v byte '%%%02X' "'${MODEL_NAME:at:1}"
        path+="%${byte: -2}"
    done
fi

exec 3<>"/dev/tcp/127.0.0.1/$REST_API_PORT"
printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$path" >&3
response="$(tr -d '\0' <&3 2>/dev/null || true)"
if [[ ! "$response" =~ $ready ]]; then
    printf '%s\n' "$response"
    exit 1
fi
