"""FastAPI with a tf.function that reads the photo and classifies it. The port is the argument."""

from __future__ import annotations

import base64
import sys

import uvicorn
from classifier import Classifier
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
classifier = Classifier()


class Question(BaseModel):
    """A photo in base64."""

    image: str


@app.post("/predict")
def predict(question: Question) -> dict[str, str]:
    """Label a photo; FastAPI runs this on a pool of threads."""
    return {"label": classifier.classify(base64.b64decode(question.image))}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
