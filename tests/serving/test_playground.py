"""The URLs of the playground, its headers, and what its files may contain."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.http import Request, Response
from savedmodel_bakery.serving.ports import PLAYGROUND_PATHS, find_playground

FILES = files("savedmodel_bakery.serving") / "static"


def get(path: str, method: str = "GET") -> Response:
    route = find_playground(Request(method, path, {}))
    assert route is not None
    assert (None, False) == (route.api, route.runs_model)
    return route.handle(Request(method, path, {}), RequestContext())


def test_the_root_redirects_to_the_page() -> None:
    assert (302, "playground") == (get("/").status, get("/").headers["Location"])


@pytest.mark.parametrize("path", PLAYGROUND_PATHS)
def test_every_response_forbids_what_the_page_does_not_need(path: str) -> None:
    headers = get(path).headers
    policy = headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "nosniff" == headers["X-Content-Type-Options"]
    assert 405 == get(path, "POST").status


def test_the_files_have_their_types() -> None:
    types = {path: get(path).content_type.partition(";")[0] for path in PLAYGROUND_PATHS[1:]}
    assert ["text/html", "text/css", "text/javascript", "text/javascript"] == list(types.values())


def test_the_page_links_to_nothing_else_and_has_nothing_inline() -> None:
    page = (FILES / "playground.html").read_text()
    links = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert ["data:,", "playground/playground.css", "playground/playground.js"] == links
    assert not re.search(r"<style|\bstyle=|\bon\w+=|<script(?![^>]*src=)", page)
    assert "http" not in (FILES / "playground.css").read_text()


def test_the_scripts_make_no_markup_of_texts() -> None:
    script = "".join((FILES / name).read_text() for name in ("playground.js", "results.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script)
    assert "http" not in script.lower().replace("https and on this machine", "")


@pytest.mark.parametrize("path", ["/playground/", "/playground/x.js", "/playground.js", "/index.html", ""])
def test_other_paths_are_not_the_pages(path: str) -> None:
    assert find_playground(Request("GET", path, {})) is None
