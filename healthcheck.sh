#!/bin/bash
# Exits with 0 if the container's server reports MODEL_NAME as AVAILABLE; otherwise prints the reason and exits with 1.
# Uses only bash, as tensorflow_model_server's image has neither curl nor Python. Reads ports and model from the
# environment, not from the server's arguments. If REST is disabled, it only checks that gRPC accepts connections.
set -euo pipefail

: "${PORT:=8500}" "${REST_API_PORT:=8501}" "${MODEL_NAME:=efficientnet_lite0}"

if [[ "$REST_API_PORT" == 0 ]]; then
    exec 3<>"/dev/tcp/127.0.0.1/$PORT"
    exit
fi

encoded=""
LC_ALL=C  # so that characters are bytes
for ((at = 0; at < ${#MODEL_NAME}; at++)); do
    printf -v byte '%%%02X' "'${MODEL_NAME:at:1}"
    encoded+="%${byte: -2}"
done

exec 3<>"/dev/tcp/127.0.0.1/$REST_API_PORT"
printf 'GET /v1/models/%s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$encoded" >&3
status="$(cat <&3)"
if [[ ! "$status" =~ \"state\":\ *\"AVAILABLE\" ]]; then
    printf '%s\n' "$status"
    exit 1
fi
