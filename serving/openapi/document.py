"""The OpenAPI document (OpenAPI 3.1): the paths and methods of the REST port. It is the same on every server."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from savedmodel_bakery.serving.openapi.schemas import SCHEMAS, ref

_JSON = "application/json"
_VARIANTS = {"": (), "/versions/{version}": ("version",), "/labels/{label}": ("label",)}
_PARAMETERS = {
    "model": {"type": "string"},
    "version": {"type": "integer", "minimum": 0},
    "label": {"type": "string"},
}
_V2 = ("", "/versions/{version}")
_BINARY: dict[str, Any] = {"application/octet-stream": {}}


def document() -> dict[str, Any]:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "savedmodel-bakery",
            "version": version("savedmodel-bakery"),
            "description": "Photos over HTTP, TensorFlow Serving's REST API, and the v2 protocol (Open Inference "
            "Protocol). Without a version or a label, the newest available version answers.",
        },
        "security": [{}, {"token": []}],
        "paths": {**_photos(), **_tensorflow_serving(), **_v2()},
        "components": {
            "schemas": SCHEMAS,
            "parameters": {
                name: {"name": name, "in": "path", "required": True, "schema": schema}
                for name, schema in _PARAMETERS.items()
            },
            "responses": {"Error": {"description": "An error.", "content": {_JSON: {"schema": ref("Error")}}}},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "If the server was started with --auth_tokens_file.",
                }
            },
        },
    }


def _photos() -> dict[str, Any]:
    file = {"type": "array", "items": {"type": "string", "contentMediaType": "application/octet-stream"}, "minItems": 1}
    body = {
        "required": True,
        "description": "An image file, or a form whose fields are image files, of any names.",
        "content": {
            **{media_type: {} for media_type in ("image/*", "application/octet-stream")},
            "multipart/form-data": {"schema": {"type": "object", "properties": {"file": file}}},
        },
    }
    operation = _operation("Run a baked model on photos", "photos", "PhotoResults", request=body)
    return {f"/photos/{{model}}{path}": _item(path, post=operation) for path in _VARIANTS}


def _tensorflow_serving() -> dict[str, Any]:
    status = _operation("States of the versions", "tensorflow serving", "ModelStatus")
    metadata = _operation("Signatures", "tensorflow serving", "ModelMetadata")
    calls = {
        verb: _operation(title, "tensorflow serving", f"{verb.title()}Response", request=_json_body(request))
        for verb, title, request in (
            ("predict", "Run a signature", "PredictRequest"),
            ("classify", "Classify tf.Examples", "ExamplesRequest"),
            ("regress", "Regress on tf.Examples", "ExamplesRequest"),
        )
    }
    paths = {}
    for path in _VARIANTS:
        base = f"/v1/models/{{model}}{path}"
        paths[base] = _item(path, get=status)
        paths[f"{base}/metadata"] = _item(path, get=metadata)
        paths |= {f"{base}:{verb}": _item(path, post=operation) for verb, operation in calls.items()}
    return paths


def _v2() -> dict[str, Any]:
    def operation(title: str, schema: str, **options: Any) -> dict[str, Any]:
        return _operation(title, "v2", schema, **options)

    infer_body = _json_body("V2InferRequest")
    infer_body["content"] |= _BINARY
    ready = operation("Whether every configured model has an available version", "V2Ready")
    ready["responses"]["503"] = {**ready["responses"]["200"], "description": "Not ready."}
    paths = {
        "/v2": {"get": operation("Name, version and extensions of the server", "V2ServerMetadata")},
        "/v2/health/live": {"get": operation("Whether the server runs", "V2Live") | {"security": []}},
        "/v2/health/ready": {"get": ready | {"security": []}},
        "/v2/repository/index": {
            "post": operation("All versions and their states", "V2Index", request=_json_body("V2IndexRequest", False))
        },
    }
    signature = {"name": "signature_name", "in": "query", "schema": {"type": "string"}}
    for path in _V2:
        base = f"/v2/models/{{model}}{path}"
        metadata = operation("Inputs and outputs of a signature", "V2ModelMetadata") | {"parameters": [signature]}
        infer = operation("Run a signature", "V2InferResponse", request=infer_body)
        infer["responses"]["200"]["content"] |= _BINARY
        paths[base] = _item(path, get=metadata)
        paths[f"{base}/ready"] = _item(path, get=operation("Whether the version is available", "V2Ready"))
        paths[f"{base}/config"] = _item(path, get=operation("Triton's configuration", "V2ModelConfig"))
        paths[f"{base}/infer"] = _item(path, post=infer)
    return paths


def _item(variant: str, **operations: Any) -> dict[str, Any]:
    """Return a path item with the parameters of a variant of the path."""
    names = ("model", *_VARIANTS[variant])
    return {"parameters": [{"$ref": f"#/components/parameters/{name}"} for name in names], **operations}


def _operation(title: str, tag: str, schema: str, *, request: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "summary": title,
        "tags": [tag],
        **({"requestBody": request} if request else {}),
        "responses": {
            "200": {"description": title, "content": {_JSON: {"schema": ref(schema)}}},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _json_body(schema: str, required: bool = True) -> dict[str, Any]:
    return {"required": required, "content": {_JSON: {"schema": ref(schema)}}}
