"""A process of its own that loads a SavedModel as tensorflow_model_server does and writes down what it answers.

python -m exporter.session_answers SAVED_MODEL ANSWERS.npz PHOTO…
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf


def answer(saved_model: str, photos: list[Path]) -> dict[str, np.ndarray]:
    """Pixels, labels, scores and class ids for the photos, and the default signature's label."""
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        loaded = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], saved_model)

        def run(name: str) -> dict[str, np.ndarray]:
            signature = loaded.signature_def[name]
            images = np.array([photo.read_bytes() for photo in photos], object)
            fetches = {alias: info.name for alias, info in signature.outputs.items()}
            found: dict[str, np.ndarray] = session.run(fetches, {signature.inputs["image"].name: images})
            return found

        top_k = run("top_k")
        if not top_k["ok"].all():
            raise SystemExit(f"a photo cannot be read: {top_k['error'].tolist()}")
        return {
            "pixels": run("preprocess")["pixels"],
            "scores": top_k["scores"],
            "class_ids": top_k["class_ids"],
            "labels": np.char.decode(top_k["labels"].astype("S"), "utf-8"),
            "default": np.char.decode(run("serving_default")["output_0"].astype("S"), "utf-8"),
        }


def main() -> None:
    """Answer the photos named on the command line; a failure is one line on stderr."""
    saved_model, out, *photos = sys.argv[1:]
    try:
        answers = answer(saved_model, [Path(photo) for photo in photos])
    except (tf.errors.OpError, KeyError, OSError, ValueError) as error:
        raise SystemExit(" ".join(str(error).split())) from error
    np.savez(out, **answers)  # type: ignore[arg-type]  # names are not options


if __name__ == "__main__":
    main()
