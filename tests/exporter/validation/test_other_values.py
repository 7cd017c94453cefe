"""The values of other inputs for the photos of a validation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from savedmodel_bakery.errors import BakeError
from savedmodel_bakery.exporter.network_inputs import OtherInput
from savedmodel_bakery.exporter.validation.other_values import read_values

TAB, STORE, TEXT = OtherInput((2,), "float32"), OtherInput((), "int64"), OtherInput((), "string")
SECOND = OtherInput((8, 8, 3), "float32")
CAT, DOG = Path("photos/cat.jpg"), Path("photos/dog.jpg")


def test_random_values_are_the_same_in_each_run() -> None:
    others = {"tab": TAB, "store": STORE, "image_2": SECOND}
    values, again = (read_values(others, [CAT, DOG], None) for _ in range(2))
    assert [DOG, CAT] == [values[photo].second for photo in (CAT, DOG)]
    assert ("float32", (2,), "int64", ()) == tuple(
        attribute for array in values[CAT].arrays.values() for attribute in (array.dtype.name, array.shape)
    )
    assert not np.array_equal(values[CAT].arrays["tab"], values[DOG].arrays["tab"])
    np.testing.assert_array_equal(again[CAT].arrays["tab"], values[CAT].arrays["tab"])


def test_values_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    (tmp_path / "other.png").touch()
    file.write_text(json.dumps({"cat.jpg": {"tab": [1, 2.5], "text": "é", "image_2": "other.png"}}))
    values = read_values({"tab": TAB, "text": TEXT, "image_2": SECOND}, [CAT], file)[CAT]
    np.testing.assert_array_equal(np.array([1, 2.5], np.float32), values.arrays["tab"], strict=True)
    assert "é".encode() == values.arrays["text"].item()
    assert tmp_path / "other.png" == values.second


@pytest.mark.parametrize(
    ("others", "content", "message"),
    [
        pytest.param({"text": TEXT}, None, "the input 'text' takes text, so random values", id="text"),
        pytest.param({}, "{}", "cannot be used: the network has no inputs beside the image", id="none"),
        pytest.param({"tab": TAB}, "[", "cannot read --input-values", id="no JSON"),
        pytest.param({"tab": TAB}, "[1]", "must be a JSON object by photo, of objects by input", id="a list"),
        pytest.param({"tab": TAB}, '{"cat.jpg": {}}', "has the inputs none for cat.jpg: must be tab", id="missing"),
        pytest.param(
            {"tab": TAB}, '{"cat.jpg": {"tab": [1]}}', "has tab [1] for cat.jpg: must be float32[2]", id="shape"
        ),
        pytest.param({"tab": TAB}, '{"cat.jpg": {"tab": ["a", "b"]}}', "must be float32[2]", id="text for numbers"),
        pytest.param({"n": STORE}, '{"cat.jpg": {"n": 1.5}}', "has n 1.5 for cat.jpg: must be int64[]", id="a part"),
        pytest.param({"text": TEXT}, '{"cat.jpg": {"text": 1}}', "must be string[]", id="a number for text"),
        pytest.param(
            {"image_2": SECOND}, '{"cat.jpg": {"image_2": "a.png"}}', "for cat.jpg, which is not a file", id="no file"
        ),
    ],
)
def test_values_that_are_not_allowed(
    others: dict[str, OtherInput], content: str | None, message: str, tmp_path: Path
) -> None:
    file = None
    if content is not None:
        file = tmp_path / "values.json"
        file.write_text(content)
    with pytest.raises(BakeError, match=re.escape(message)):
        read_values(others, [CAT], file)
