"""Photos as bodies and as forms, for every task, without a network and TensorFlow."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
import requests
from jsonschema import Draft202012Validator

from savedmodel_bakery.answers.signatures import TensorSpec
from savedmodel_bakery.serving.admission.budget import Cost, MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.http import Request, Response
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.photos import PhotoHandlers, read_parts, sort_parts
from savedmodel_bakery.serving.ports import find_openapi
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import StatusError

CLASSIFICATION = {
    "ok": True,
    "label": "<b>cat",
    "error": None,
    "top": [{"label": "<b>cat", "score": 0.75, "class_id": 4}, {"label": "dog", "score": 0.25, "class_id": 2}],
}
NO_MASK = {"mask_counts": None, "mask_size": None}
RESULTS: dict[str, Any] = {
    "classify": CLASSIFICATION,
    "multilabel": {"ok": True, "error": None, "tags": [{"label": "cat", "score": 0.75}]},
    "embed": {"ok": True, "error": None, "embedding": [0.5, -1.0]},
    "detect": {
        "ok": True,
        "error": None,
        "boxes": [{"label": "cat", "score": 0.75, "ymin": 1.0, "xmin": 2.0, "ymax": 30.0, "xmax": 14.0, **NO_MASK}],
    },
    "masks": {
        "ok": True,
        "error": None,
        "boxes": [
            {
                "label": "cat",
                "score": 0.75,
                "ymin": 1.0,
                "xmin": 1.0,
                "ymax": 3.0,
                "xmax": 3.0,
                "mask_counts": "42102",
                "mask_size": [3, 4],
            }
        ],
    },
    "segment": {
        "ok": True,
        "error": None,
        "shares": {"road": 0.25, "tree": 0.75},
        "map_png": "UE5H",
        "probability_png": "",
        "labels": ["road", "tree"],
    },
    "regress": {"ok": True, "error": None, "values": {"value": 1.5}},
    "broken": {"ok": True, "error": None, "values": {"value": None}},
    "broken boxes": {
        "ok": True,
        "error": None,
        "boxes": [{"label": "cat", "score": None, "ymin": None, "xmin": 2.0, "ymax": None, "xmax": 14.0, **NO_MASK}],
    },
}
EMPTY = {
    "classify": {"label": None, "top": []},
    "multilabel": {"tags": []},
    "embed": {"embedding": []},
    "detect": {"boxes": []},
    "masks": {"boxes": []},
    "segment": {"shares": {}, "map_png": "", "probability_png": "", "labels": []},
    "regress": {"values": {}},
    "broken": {"values": {}},
    "broken boxes": {"boxes": []},
}
_TYPE = "multipart/form-data; boundary=b"


def form(*files: tuple[str, tuple[str | None, bytes]]) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a form, as requests sends it."""
    prepared = requests.Request("POST", "http://x/", files=list(files)).prepare()
    return {"content-type": prepared.headers["Content-Type"]}, prepared.body


def send(
    registry: Registry,
    path: str,
    body: bytes = b"good",
    headers: dict[str, str] | None = None,
    *,
    method: str = "POST",
    context: RequestContext | None = None,
) -> Response:
    request = Request(method, path, headers or {}, body)
    route = PhotoHandlers(registry).find(request)
    assert route is not None
    try:
        return route.handle(request, context or RequestContext())
    except StatusError as error:
        return route.on_error(error)


def error_of(response: Response) -> tuple[int, str]:
    return response.status, json.loads(response.body)["error"]


def check_schema(value: object, name: str) -> None:
    request = Request("GET", "/openapi.json", {})
    route = find_openapi(request)
    assert route
    document = json.loads(route.handle(request, RequestContext()).body)
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize("task", RESULTS)
def test_a_form_has_a_result_per_photo_and_a_bad_photo_does_not_affect_the_others(
    registry: Registry, task: str
) -> None:
    headers, body = form(("file", ("a.jpg", b"good")), ("other", ("b.jpg", b"bad")))
    response = send(registry, f"/photos/{quote(task)}", body, headers)
    assert (200, "nosniff") == (response.status, response.headers["X-Content-Type-Options"])
    answer = json.loads(response.body)
    name = {"broken": "regress", "broken boxes": "detect", "masks": "detect"}.get(task, task)
    signature = "top_k" if task == "classify" else "serving_default"
    results = [RESULTS[task], {"ok": False, "error": "damaged", **EMPTY[task]}]
    assert {"model": task, "version": 3, "task": name, "signature": signature, "results": results} == answer
    check_schema(answer, "PhotoResults")


@pytest.mark.parametrize("path", ["", "/versions/3", "/versions/03", "/labels/stable", "/labels/%73table"])
def test_the_body_is_a_photo_whatever_its_type(registry: Registry, path: str) -> None:
    for media_type in ({}, {"content-type": "application/x-www-form-urlencoded"}, {"content-type": "image/jpeg"}):
        answer = json.loads(send(registry, f"/photos/classify{path}?x", headers=media_type).body)
        assert [CLASSIFICATION] == answer["results"]


@pytest.mark.parametrize(
    "parameter",
    [b'filename="caf\xe9.jpg"', 'filename="café.jpg"'.encode(), b"filename*=UTF-8''caf%C3%A9.jpg", b"FileName* = x"],
    ids=["Latin-1", "UTF-8", "extended", "extended, other case"],
)
def test_a_file_may_have_any_name(registry: Registry, parameter: bytes) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="f"; ' + parameter + b"\r\n\r\ngood\r\n--b--"
    answer = json.loads(send(registry, "/photos/classify", body, {"content-type": _TYPE}).body)
    assert [CLASSIFICATION] == answer["results"]


def test_photos_are_whole_wherever_the_parser_cuts_the_form() -> None:
    """It reads pieces of 64 KiB. The first ends in each place of the second photo's boundary and headers."""
    head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
    for beyond in range(len(head) + 4):
        photos = [bytes(2**16 - len(head) - beyond), b"\r\n--" * 2**15, b"", b"end"]
        body = b"".join(head + photo + b"\r\n" for photo in photos) + b"--b--\r\nepilogue"
        parts = read_parts(Request("POST", "/", {"content-type": _TYPE}, body), RequestContext())
        assert photos == [part.content for part in parts]


def test_a_single_bad_photo_is_an_error(registry: Registry) -> None:
    response = send(registry, "/photos/classify", b"bad")
    assert (400, "the photo cannot be read: damaged") == error_of(response)
    assert "nosniff" == response.headers["X-Content-Type-Options"]
    check_schema(json.loads(response.body), "Error")


ERRORS: dict[str, tuple[dict[str, Any], int, str]] = {
    "empty body": ({"body": b""}, 400, "the body is empty: it must be an image file, or a form with image files"),
    "compressed": (
        {"headers": {"content-encoding": "gzip"}},
        400,
        'invalid Content-Encoding "gzip": photos must be sent uncompressed',
    ),
    "another multipart": (
        {"headers": {"content-type": "multipart/mixed; boundary=b"}},
        400,
        'invalid Content-Type "multipart/mixed": must be multipart/form-data for a form, or any type that is not '
        "multipart for a single photo",
    ),
    "no boundary": (
        {"headers": {"content-type": "multipart/form-data"}},
        400,
        "is not a valid multipart/form-data: Empt",
    ),
    "no form": ({"headers": {"content-type": _TYPE}}, 400, "is not a valid multipart/form-data: Unexpected end"),
    "empty form": ({"headers": {"content-type": _TYPE}, "body": b""}, 400, "is not a valid multipart/form-data"),
    "cut off": (
        {
            "headers": {"content-type": _TYPE},
            "body": b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nx',
        },
        400,
        "is not a valid multipart/form-data",
    ),
    "no file": ({"headers": {"content-type": _TYPE}, "body": b"--b--\r\n"}, 400, "the form has no file"),
    "a field": (
        {
            "headers": {"content-type": _TYPE},
            "body": b'--b\r\nContent-Disposition: form-data; name="k"\r\n\r\n1\r\n--b--',
        },
        400,
        'the field "k" of the form is not a file: send photos as files, as curl does with -F file=@photo.jpg',
    ),
    "a field whose name is not UTF-8": (
        {
            "headers": {"content-type": _TYPE},
            "body": b'--b\r\nContent-Disposition: form-data; name="caf\xe9"\r\n\r\n1\r\n--b--',
        },
        400,
        'the field "caf\N{REPLACEMENT CHARACTER}" of the form is not a file',
    ),
    "a field whose name is UTF-8": (
        {
            "headers": {"content-type": _TYPE},
            "body": '--b\r\nContent-Disposition: form-data; name="café"\r\n\r\n1\r\n--b--'.encode(),
        },
        400,
        'the field "café" of the form is not a file',
    ),
    "an invalid name of a header": (
        {"headers": {"content-type": _TYPE}, "body": b"--b\r\nf\xfcr: x\r\n\r\nx\r\n--b--"},
        400,
        "the body is not a valid multipart/form-data: Invalid segment header name",
    ),
    "unknown model": ({"path": "/photos/m"}, 404, "Servable not found for request: Latest(m)"),
    "unknown version": ({"path": "/photos/classify/versions/2"}, 404, "Specific(classify, 2)"),
    "no version": ({"path": "/photos/classify/versions/x"}, 400, 'invalid version "x": must be a number between 0 and'),
    "unknown label": ({"path": "/photos/classify/labels/x"}, 400, "Unrecognized servable version label: x"),
    "no photos": (
        {"path": "/photos/other"},
        400,
        'model "other" version 3 does not take photos: none of its signatures has the input "image" and the outputs of '
        "a task (classify or binary, multilabel, embed, detect, segment, keypoints, image, heads, regress, tensors); "
        "call it with /v1/models or /v2/models",
    ),
    "name that is not UTF-8": ({"path": "/photos/%ff"}, 404, "Servable not found for request: Latest(\ufffd)"),
    "method": ({"method": "GET"}, 405, "GET is not allowed for /photos/classify: must be POST"),
}


@pytest.mark.parametrize(("options", "status", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_is_wrong(registry: Registry, options: dict[str, Any], status: int, message: str) -> None:
    received = error_of(send(registry, **{"path": "/photos/classify", **options}))
    assert status == received[0]
    assert message in received[1]


@pytest.mark.parametrize("path", ["/photos", "/photos/", "/photos/a/b", "/photos/a:predict", "/Photos/a"])
def test_other_urls_are_of_no_api(registry: Registry, path: str) -> None:
    assert PhotoHandlers(registry).find(Request("POST", path, {})) is None


SPECS = {
    "tab": TensorSpec(dtypes.BY_NAME["float"], (-1, 2)),
    "text": TensorSpec(dtypes.STRING, (-1,)),
    "image_2": TensorSpec(dtypes.STRING, (-1,)),
}


def sort(*parts: tuple[str, tuple[str | None, bytes]], specs: Any = SPECS) -> list[tuple[bytes, dict[str, Any]]]:
    headers, body = form(*parts)
    context = RequestContext(max_rows=2)
    return sort_parts(read_parts(Request("POST", "/", headers, body), context), specs, context)


def test_fields_of_other_inputs_belong_to_the_photos_in_their_order() -> None:
    """Texts are taken as they are, other values are JSON, and the second image is a file."""
    photos = sort(
        ("tab", (None, b"[1, 2.5]")),
        ("file", ("a", b"first")),
        ("text", (None, "é".encode())),
        ("image_2", ("b", b"pair")),
        ("file", ("c", b"second")),
        ("image_2", ("d", b"other")),
        ("tab", (None, b"[3, 4]")),
        ("text", (None, b"[x]")),
    )
    assert [
        (b"first", {"tab": [1, 2.5], "text": "é", "image_2": b"pair"}),
        (b"second", {"tab": [3, 4], "text": "[x]", "image_2": b"other"}),
    ] == photos
    assert [(b"a", {}), (b"b", {})] == sort(("file", ("a", b"a")), ("image_2", ("b", b"b")), specs={})


PHOTO = ("file", ("a", b"photo"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        pytest.param([PHOTO], 'the form has 1 photos and 0 fields "tab": must have one for each photo', id="missing"),
        pytest.param([PHOTO, ("tab", (None, b"x"))], "invalid input \"tab\" 'x': must be JSON", id="no JSON"),
        pytest.param([PHOTO, ("text", (None, b"\xff"))], "codec can't decode byte 0xff", id="no UTF-8"),
        pytest.param(
            [PHOTO, ("x", (None, b"1"))], "other fields are inputs of the model: tab, text, image_2", id="unknown"
        ),
        pytest.param([("tab", (None, b"1"))], "the form has no file", id="no photo"),
        pytest.param([PHOTO] * 3, "rows", id="more photos than rows are allowed"),
        pytest.param([PHOTO, *[("text", (None, b"x"))] * 3], "3 rows", id="more fields than rows are allowed"),
        pytest.param([PHOTO, *[("image_2", PHOTO[1])] * 3], "3 rows", id="more second images than rows are allowed"),
    ],
)
def test_a_form_whose_fields_do_not_fit(parts: list[Any], message: str) -> None:
    with pytest.raises(StatusError, match=re.escape(message)):
        sort(*parts)


def test_photos_count_as_rows(registry: Registry) -> None:
    headers, body = form(*[("file", ("a", b"good"))] * 3)
    response = send(registry, "/photos/classify", body, headers, context=RequestContext(max_rows=2))
    assert (429, "the request has 3 rows; at most 2 are allowed (--max_rows_per_request)") == error_of(response)


def test_a_form_is_charged_for_the_copies_of_its_photos(registry: Registry) -> None:
    memory = MemoryBudget(1_000_000)
    headers, body = form(("file", ("a", bytes(150_000))))
    context = RequestContext(memory=memory)
    assert 200 == send(registry, "/photos/classify", body, headers, context=context).status
    assert (1 + Cost.IMAGE_BYTE) * 150_000 <= memory.held
    headers, body = form(("file", ("a", bytes(1_100_000))))
    assert 429 == send(registry, "/photos/classify", body, headers, context=RequestContext(memory=memory)).status
    context.close()
    assert 0 == memory.held


def test_the_call_runs_a_model_and_has_a_name_in_the_metrics(registry: Registry) -> None:
    route = PhotoHandlers(registry).find(Request("POST", "/photos/a%20b", {}))
    assert route is not None
    assert ("a b", "photos", True) == (route.model_name, route.api, route.runs_model)
    other = PhotoHandlers(registry).find(Request("PUT", "/photos/a", {}))
    assert other is not None
    assert (None, False) == (other.api, other.runs_model)


def test_a_browser_may_ask_what_it_may_send(registry: Registry) -> None:
    response = send(registry, "/photos/classify", b"", {"origin": "https://x"}, method="OPTIONS")
    assert (200, b"") == (response.status, response.body)
