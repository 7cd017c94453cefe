"""FastAPI with a tf.function that decodes and classifies the photo. The port is the argument."""

from __future__ import annotations

import base64
import sys

import uvicorn
from classifier import Classifier
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
classifier = Classifier()


class PredictRequest(BaseModel):
    """A photo in base64."""

    image: str


@app.post("/predict")
def predict(request: PredictRequest) -> dict[str, str]:
    """Classify a photo; FastAPI calls this on a thread pool."""
    return {"label": classifier.classify(base64.b64decode(request.image))}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
