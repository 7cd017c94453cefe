"""Forms for `/photos` with more parts, longer headers or larger files than they need."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from attacked_server import CLASSIFIER, MB, AttackedServer, HonestCallers
from image_bombs import RGBA, png

CALLS = 8
SIDE = 10_000  # 100 megapixels, the most that the graph accepts
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
HEAD = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'


def post(server: AttackedServer, body: bytes, headers: dict[str, str] = FORM) -> tuple[int, str]:
    """Return the status and the text of a response."""
    response = requests.post(f"{server.url}/photos/{CLASSIFIER}", data=body, headers=headers, timeout=60)
    return response.status_code, response.text


FORMS: dict[str, tuple[Callable[[], bytes], dict[str, str], int, str]] = {
    "500,000 empty files": (lambda: (HEAD + b"\r\n") * 500_000 + b"--b--", FORM, 429, "at most 10000 are allowed"),
    "a header of 30 MB": (
        lambda: b"--b\r\nContent-Disposition: " + b"x" * 30 * MB,
        FORM,
        400,
        "header length exceeded",
    ),
    "a million headers": (lambda: b"--b\r\n" + b"a: b\r\n" * MB, FORM, 400, "header count exceeded"),
    "30 MB before the first part": (lambda: b"x" * 30 * MB, FORM, 400, "is not a valid multipart/form-data"),
    "30 MB of line breaks": (lambda: HEAD + b"\r\n" * 15 * MB, FORM, 400, "is not a valid multipart/form-data"),
    "a boundary of 50 kB": (
        lambda: b"\r\n--" * 7 * MB,
        {"Content-Type": f"multipart/form-data; boundary={'-' * 50_000}"},
        400,
        "is not a valid multipart/form-data",
    ),
    "a field of 30 MB": (
        lambda: b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + b"x" * 30 * MB + b"\r\n--b--",
        FORM,
        400,
        "is not a file",
    ),
}


@pytest.mark.parametrize(("make", "headers", "status", "reason"), FORMS.values(), ids=FORMS)
def test_forms_that_are_not_what_they_say(
    classifier: AttackedServer, make: Callable[[], bytes], headers: dict[str, str], status: int, reason: str
) -> None:
    """Sent: 8 such forms at once.

    Allowed: memory for the bodies and their copies, and a rejection.
    """
    body = make()
    with HonestCallers(classifier) as others, classifier.growing_at_most(1500), ThreadPoolExecutor(CALLS) as callers:
        received = list(callers.map(lambda _: post(classifier, body, headers), range(CALLS)))
    rejected = [text for code, text in received if code == status and reason in text]
    busy = [text for code, text in received if code == 429 and "--memory_budget_bytes" in text]
    assert rejected
    assert CALLS == len(rejected) + len(busy), received
    others.assert_served()


def test_eight_large_photos_at_once(classifier: AttackedServer) -> None:
    """Sent: 8 forms with an RGBA PNG of 100 megapixels each.

    Allowed: the memory of the budget, and results, rejections or, on a slow machine, the end of the time for a request;
    then one alone must get a result.
    """
    body = HEAD + png(SIDE, RGBA, SIDE) + b"\r\n--b--"
    with HonestCallers(classifier) as others, classifier.growing_at_most(1500), ThreadPoolExecutor(CALLS) as callers:
        received = [code for code, _ in callers.map(lambda _: post(classifier, body), range(CALLS))]
    assert {200, 429, 504} >= set(received)
    assert 200 in received or 200 == post(classifier, body)[0]
    others.assert_served()
