"""/openapi.json is a valid OpenAPI document, and describes the paths that the server has."""

from __future__ import annotations

import pytest
import requests
from browser import add_packages
from server_process import ServerProcess


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_document_is_valid(server: ServerProcess) -> None:
    add_packages()
    from openapi_spec_validator import OpenAPIV31SpecValidator

    response = requests.get(f"{server.url}/openapi.json", timeout=30)
    assert "application/json" == response.headers["Content-Type"]
    OpenAPIV31SpecValidator(response.json()).validate()
