#!/bin/bash
# Exits with 0 if the container's server is ready; otherwise prints the reason and exits with 1.
#
# The embedded server is ready when each of its models has an AVAILABLE version, tensorflow_model_server when MODEL_NAME has.
# It is enough that the port accepts connections if REST is disabled or requires client certificates.
#
# Uses only bash and coreutils, as tensorflow_model_server's image has neither curl nor Python; TLS, which only the embedded
# server has for REST, needs Python. Reads ports and model from the environment, not from the server's arguments.
set -euo pipefail

: "${PORT:=8500}" "${REST_API_PORT:=8501}" "${MODEL_NAME:=efficientnet_lite0}"

if [[ "$REST_API_PORT" == 0 ]]; then
    exec 3<>"/dev/tcp/127.0.0.1/$PORT"
    exit
fi

path=/v2/health/ready
ready='^HTTP/1\.[01] 200 |^no answer without a client certificate$'
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
trap '' PIPE  # bash writes each line by itself, and a port with TLS closes the connection after the first
printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$path" 2>/dev/null >&3 || true
response="$(tr -d '\0' <&3 2>/dev/null || true)"
if [[ "$path" == /v2/* && ! "$response" =~ ^HTTP ]]; then
    # A port with TLS does not answer in HTTP. The name in the certificate does not matter: this is a call to the same container.
    response="$(python3 -Ic '
import socket, ssl, sys

context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
connection = context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 4))
try:
    connection.sendall(f"GET {sys.argv[2]} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    response = connection.recv(4096).decode("latin-1")
except (ssl.SSLError, ConnectionError):
    response = ""
print(response or "no answer without a client certificate")
' "$REST_API_PORT" "$path" 2>&1)" || { printf '%s\n' "$response"; exit 1; }
fi
if [[ ! "$response" =~ $ready ]]; then
    printf '%s\n' "$response"
    exit 1
fi
