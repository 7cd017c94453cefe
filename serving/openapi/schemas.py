"""The JSON of requests and responses, as schemas (JSON Schema 2020-12) of the OpenAPI document."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_NUMBER: Schema = {"type": "number"}
_STRING: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
_ANY: Schema = {}


def ref(name: str) -> Schema:
    """Return a reference to a schema of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Schema, optional: Schema | None = None, **others: Any) -> Schema:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required), **others}


def _list(items: Schema, **others: Any) -> Schema:
    return {"type": "array", "items": items, **others}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _result(own: Schema, description: str) -> Schema:
    """Return the schema of a photo's result; `own` are the columns of its task."""
    cells = {"ok": {"type": "boolean"}, "error": {"type": ["string", "null"]}, **own}
    return _object(cells, additionalProperties=False, description=description)


_SCORE: Schema = {"type": ["number", "null"], "description": "A probability, 0 to 1; null if it is not finite."}
_VALUE: Schema = {"type": ["number", "null"], "description": "null if it is not finite."}
_SCORED = {"label": _STRING, "score": _SCORE}
_EDGES = dict.fromkeys(("ymin", "xmin", "ymax", "xmax"), _VALUE)

_RESULTS = {
    "Classification": _result(
        {
            "label": {"type": ["string", "null"]},
            "top": _list(_object({**_SCORED, "class_id": _INTEGER}), description="Best first."),
        },
        "Tasks classify and binary.",
    ),
    "Tags": _result({"tags": _list(_object(_SCORED), description="Best first.")}, "Task multilabel."),
    "Embedding": _result({"embedding": _list(_VALUE)}, "Task embed."),
    "Detections": _result(
        {"boxes": _list(_object({**_SCORED, **_EDGES}), description="Best first; in pixels of the upright photo.")},
        "Task detect.",
    ),
    "Segmentation": _result(
        {
            "labels": _list(_STRING, description="By class id."),
            "shares": _map(_SCORE),
            "map_png": {
                "type": "string",
                "contentEncoding": "base64",
                "contentMediaType": "image/png",
                "description": "The class id of each pixel, grey, of the size of the upright photo.",
            },
        },
        "Task segment.",
    ),
    "Regression": _result({"values": _map(_VALUE)}, "Task regress."),
}

_TENSOR: Schema = {"description": 'Numbers, strings or {"b64": …}, nested in lists like the tensor\'s axes.'}
_SIGNATURE_NAME = {"signature_name": {"type": "string", "default": "serving_default"}}
_V2_PARAMETERS = {"parameters": _map({"type": ["string", "number", "boolean"]})}
_V2_PORT = {"name": _STRING, "datatype": _STRING, "shape": _list(_INTEGER)}
_V2_TENSOR = _object(
    {**_V2_PORT},
    {"data": _list(_ANY, description="Nested like the shape, or flat."), **_V2_PARAMETERS},
    description="Without data, binary data follow the JSON.",
)

SCHEMAS: dict[str, Schema] = {
    "Error": _object({"error": _STRING}, description="The reason."),
    **_RESULTS,
    "PhotoResults": _object(
        {
            "model": _STRING,
            "version": _INTEGER,
            "task": {"enum": ["classify", "multilabel", "embed", "detect", "segment", "regress"]},
            "signature": _STRING,
            "results": _list({"anyOf": [ref(name) for name in _RESULTS]}, description="One per photo, in their order."),
        }
    ),
    "PredictRequest": {
        "description": "Rows (instances), or columns by name (inputs). A lone tensor needs no name.",
        "oneOf": [
            _object({"instances": _list(_TENSOR)}, _SIGNATURE_NAME),
            _object({"inputs": _TENSOR}, _SIGNATURE_NAME),
        ],
    },
    "PredictResponse": {
        "description": "Rows for instances, columns for inputs.",
        "oneOf": [_object({"predictions": _TENSOR}), _object({"outputs": _TENSOR})],
    },
    "ExamplesRequest": _object(
        {"examples": _list(_map(_TENSOR), description="Features by name.")},
        {"context": _map(_TENSOR), **_SIGNATURE_NAME},
    ),
    "ClassifyResponse": _object(
        {"results": _list(_list({"type": "array", "prefixItems": [_STRING, _NUMBER]}), description="Label and score.")}
    ),
    "RegressResponse": _object({"results": _list(_NUMBER)}),
    "ModelStatus": _object(
        {
            "model_version_status": _list(
                _object(
                    {
                        "version": _STRING,
                        "state": {"enum": ["START", "LOADING", "AVAILABLE", "UNLOADING", "END"]},
                        "status": _object({"error_code": _STRING, "error_message": _STRING}),
                    }
                )
            )
        }
    ),
    "ModelMetadata": _object(
        {
            "model_spec": _object({"name": _STRING}, {"version": _STRING, "signature_name": _STRING}),
            "metadata": _object({}, {"signature_def": {"type": "object"}}),
        }
    ),
    "V2ServerMetadata": _object({"name": _STRING, "version": _STRING, "extensions": _list(_STRING)}),
    "V2ModelMetadata": _object(
        {
            "name": _STRING,
            "versions": _list(_STRING),
            "platform": _STRING,
            "inputs": _list(_object(_V2_PORT)),
            "outputs": _list(_object(_V2_PORT)),
        },
        {"parameters": _object({"signature_names": _list(_STRING)})},
    ),
    "V2ModelConfig": _object({"name": _STRING}, description="Triton's ModelConfig."),
    "V2Ready": _object({"ready": {"type": "boolean"}}, {"name": _STRING}),
    "V2Live": _object({"live": {"type": "boolean"}}),
    "V2InferRequest": _object(
        {"inputs": _list(_V2_TENSOR)},
        {
            "id": _STRING,
            "outputs": _list(_object({"name": _STRING}, _V2_PARAMETERS)),
            "parameters": {
                **_map({"type": ["string", "number", "boolean"]}),
                "description": "signature_name chooses the signature.",
            },
        },
    ),
    "V2InferResponse": _object(
        {"model_name": _STRING, "model_version": _STRING, "outputs": _list(_V2_TENSOR)}, {"id": _STRING}
    ),
    "V2IndexRequest": _object({}, {"ready": {"type": "boolean", "default": False}}),
    "V2Index": _list(
        _object(
            {
                "name": _STRING,
                "version": _STRING,
                "state": {"enum": ["LOADING", "READY", "UNLOADING", "UNAVAILABLE"]},
                "reason": _STRING,
            }
        )
    ),
}
