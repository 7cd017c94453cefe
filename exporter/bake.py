"""Bakes a vision model: a model and a recipe become one validated, published version.

source ─► network ┐
recipe, labels ───┴─► servable module ─► staged SavedModel ─► validation ─► <out>/<name>/<version>
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from savedmodel_bakery.defaults import SEARCH_S
from savedmodel_bakery.errors import RecipeError, SourceError
from savedmodel_bakery.exporter import publish, resources, sources
from savedmodel_bakery.exporter.calibration import NO_CALIBRATION, read_calibration
from savedmodel_bakery.exporter.evidence import Judgement, Source, Sources, default_photos, judge_all
from savedmodel_bakery.exporter.recipe import Recipe, RecipeFile, complete_recipe, convert_values, read_recipe_file
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.exporter.sources.network import Network
from savedmodel_bakery.exporter.sources.onnx_file import is_onnx
from savedmodel_bakery.exporter.tasks.choose import ClassNames, read_class_names
from savedmodel_bakery.exporter.validation.agreement import Agreement, OnnxModel, onnx_network
from savedmodel_bakery.exporter.validation.int8_agreement import check_min_agreement
from savedmodel_bakery.exporter.validation.other_values import describe_random, read_values
from savedmodel_bakery.exporter.validation.report import ParityReport, check_writable, write_html_page
from savedmodel_bakery.exporter.validation.session import SessionProcess
from savedmodel_bakery.exporter.validation.validate import Int8Evaluation, Validation, validate_and_record
from savedmodel_bakery.extras import MissingPackageError
from savedmodel_bakery.storage.folders import check_free, check_name
from savedmodel_bakery.tensorflow_import import warnings_hidden

_SHOWN_LABELS = 3
_MAX_SHOWN = 40  # characters of each


@dataclass(frozen=True, repr=False)
class BakeResult:
    """A published version.

    Attributes:
        path: its folder.
        recipe: the complete recipe.
        agreement: how its answers compare with those of the network on the same pixels; None for precision int8.
        onnx_agreement: how they compare with those of the ONNX model `reference`; None without one.
        parity: how it compares with the reference pipeline, photo by photo, and for precision int8 with the network.
        evidence: what inputs, predictions and labelled photos say of the recipe; empty without any.
    """

    path: Path
    recipe: Recipe
    agreement: Agreement | None
    onnx_agreement: Agreement | None
    parity: ParityReport
    evidence: Sequence[Judgement] = ()

    def __repr__(self) -> str:
        """Return the folder and the verdict of the parity report."""
        return f"<BakeResult {self.path}: {self.parity!r}>"

    def _repr_html_(self) -> str:
        """Return the folder, what the evidence says, and the parity report with pictures."""
        evidence = "".join(
            f"<pre>{escape(each.to_table())}</pre><p>{escape(each.summary)}</p>" for each in self.evidence
        )
        return f"<p><code>{escape(str(self.path))}</code></p>{evidence}{self.parity._repr_html_()}"


def _print_if_interactive(step: str) -> None:
    if hasattr(sys, "ps1"):
        print(f"{step} …", flush=True)


def bake(
    *,
    model: str | PathLike[str] | Callable[..., Any] | None = None,
    labels: str | PathLike[str] | Sequence[str] | Mapping[int, str] | None = None,
    out: str | Path = "saved_model",
    name: str | None = None,
    version: int | None = None,
    recipe: Recipe | Mapping[str, Any] | str | Path | None = None,
    photos: str | PathLike[str] | Iterable[str | PathLike[str]] | None = None,
    inputs: Source | None = None,
    predictions: Source | None = None,
    labelled: str | Path | None = None,
    input_values: str | Path | None = None,
    search_seconds: float = SEARCH_S,
    atol: float | None = None,
    rtol: float | None = None,
    share: float | None = None,
    iou: float | None = None,
    require_parity: bool = True,
    reference: str | Path | None = None,
    min_agreement: float | None = None,
    parity_html: str | Path | None = None,
    progress: Callable[[str], None] = _print_if_interactive,
    session: SessionProcess | None = None,
) -> BakeResult:
    """Bake a vision model into a SavedModel, validate it and publish it as `<out>/<name>/<version>`.

    Args:
        model: `efficientnet-lite0`, `keras:NAME`, a TF Hub URL, a file, a folder or `package.module:callable`; or an
            object, which needs a `name`: a Keras model, a tf.Module, a function that returns one of them, or a function
            of the network's input, float32 [n, height, width, channels]. None takes it from the recipe.
        labels: a label set, the path of a file, a list of names or a dict from class id to name; None takes them from
            the recipe.
        out: the model root.
        name: the name to serve it under; None takes it from the recipe file, or derives it from `model` and then
            rejects a name that another model has.
        version: its number, 0 to 2**63 - 1; None is the next one.
        recipe: a recipe, or the path of a recipe file, or a mapping of field names to values. Mappings and files may
            omit fields that the model determines. Relative paths in a file refer to its folder.
        photos: files to validate it on: a folder, which may have a folder per label, or the path of one photo or of
            several; None uses those that are compared of a `labelled` folder, or else the example photos that come with
            the package. The first 8 become golden requests in the version.
        inputs: what the network received in training for some of the photos: an `.npz` file whose keys are their names,
            a dict of arrays by their names, or a function of a path or its name, `module:function`. Fields of the
            recipe that are not stated are found from it.
        predictions: what the network answered in training for some of the photos: a `.csv`, `.json` or `.npz` file, a
            dict of arrays by their names, or a function of a path or its name; see `evidence.answer_files`. Fields that
            are not stated are found from it.
        labelled: photos with their right labels, a folder with one folder per label or a `.csv` of file and label.
        input_values: for a network with inputs beside the image, a `.json` file with their values for each photo; see
            `validation.other_values`. None takes random values.
        search_seconds: how long the search for the recipe may take, for each of the three, in wall-clock time.
        atol: allowed difference of an answer from the reference pipeline's; None is the task's default: 0.01 for
            probabilities, 0.001 for the cosine distance of embeddings, 0.0001 for numbers of tasks regress and tensors,
            0.005 of white for pictures, 0.005 of the photo's longer side for points; that of each head's task.
        rtol: allowed in addition, as a part of the reference's answer; None is the task's default: 0.01 for numbers of
            tasks regress and tensors and for scores of points, 0 for others.
        share: part of the pixels that must have the class of the reference's, for task segment, or part of the boxes
            that must agree with one of the reference's, for task detect; None is 0.99.
        iou: for task detect, the intersection over union from which on two boxes agree; None is 0.9.
        require_parity: whether to reject a version beyond that tolerance; False publishes it with its report.
        reference: the ONNX model that `model` was converted from, to compare the answers with on the same pixels; the
            tolerance is `agreement.CONVERSION`, except for those of atol, rtol, share and iou that are not None.
        min_agreement: for precision int8, the share of photos whose answers must agree with those of float32; None is
            0.95. They are `photos` without those to calibrate with, or else a part of the calibration folder.
        parity_html: file for an HTML page of the comparison, which is written even if the version is rejected.
        progress: called with each step, in a few words; by default prints them in notebooks and interactive sessions.
        session: the process to verify it in, if one has been started, which takes seconds; None starts one.

    Returns:
        The version's folder and its reports.

    Examples:
        >>> from savedmodel_bakery import bake
        >>> result = bake(
        ...     model="flowers.keras",
        ...     labels=["daisy", "sunflower", "tulip"],
        ...     photos="photos",
        ...     predictions="predictions.csv",
        ... )
        >>> print(result.path)
        saved_model/flowers/1
        >>> result.recipe.preprocessing.scale  # as the predictions show
        '0..1'

    Raises:
        RecipeError: a value is missing or not allowed.
        SourceError: the model or the reference can't be loaded or used.
        EvidenceError: what training shows can't be read, contradicts what is stated, or no recipe agrees with it.
        LabelError: the label set can't be read, or doesn't fit the network.
        VerificationError: the SavedModel's outputs differ from the network's, or from those of the reference.
        MissingPackageError: there is a reference, and onnxruntime is not installed.
        ParityError: its outputs differ from the reference pipeline's, or a photo can't be read.
        PublishError: the name is not allowed, or the version exists or can't be written.
    """
    file_name, known = _read_recipe(recipe)
    name = file_name if name is None else name
    python_model = None if isinstance(model, str | PathLike) else model
    if python_model is not None:
        if name is None:
            raise RecipeError("a model that is an object needs a name to serve it under: pass name=")
        model = f"{sources.OBJECT}{name}"
    values = convert_values(known) | convert_values({"model": model, "labels": labels})
    model = values.get("model")
    if model is None:
        raise RecipeError("no model given: pass --model, or state it in the --recipe file")
    base_path = Path(out) / check_name(publish.default_name(model) if name is None else name)
    check_free(base_path, version)
    if parity_html is not None:
        check_writable(Path(parity_html))
    if python_model is None:
        sources.find_source(model)  # an unknown model is reported as such, before other problems
    if name is None:
        publish.check_same_model(base_path, model)
    onnx = None if reference is None else OnnxModel(Path(reference))
    like = sources.read_preprocessing(values["like"]) if "like" in values else {}
    if sources.names_files(values.get("like", "")):  # the version's recipe states what it says
        del values["like"]
    progress(f"loading {model}")
    network = sources.read_network(values, python_model)
    known = {**network.defaults, **network.recipe}
    if network.returns_map and not {"task", "boxes", "source_outputs", "heads"} & {**known, **values}.keys():
        raise RecipeError(
            f"the network of {model} returns shape {network.output_shape}, so its task must be stated: pass --task "
            "segment and --labels for a label per pixel, --task image for a picture, --task keypoints for heat maps of "
            "points, --task embed for a vector, which is the mean of its pixels, or --task tensors for all values"
        )
    photo_files = default_photos(labelled) if photos is None else resources.list_photos(photos)
    stated = {**like, **network.recipe, **values}
    others = read_values(network.others, photo_files, None if input_values is None else Path(input_values))
    if network.others:
        _check_uses(network, {"--predictions": predictions, "--labelled": labelled, "--reference": reference})
        if input_values is None:
            progress(f"no --input-values given: {describe_random(network.others)}")
    evidence, shown = judge_all(
        Sources(inputs, predictions, labelled),
        stated,
        network,
        photo_files,
        search_seconds,
        progress=progress,
    )
    values = {**shown, **values}
    complete = complete_recipe(known, values, like=like, scaling_layer=network.scaling_layer)
    if network.scaling_layer and "channels" not in {**like, **network.recipe, **values}:
        progress(f"assuming channels RGB: layer {network.scaling_layer!r} scales pixels, but does not say their order")
    if network.others and complete.optimisation.is_int8:
        raise RecipeError("precision int8 is for networks whose only input is an image: pass another --precision")
    min_agreement = check_min_agreement(min_agreement, complete)
    if onnx is not None and complete.optimisation.is_int8:
        raise RecipeError(
            "--reference cannot be combined with precision int8, which changes the answers by more than a conversion; "
            "check the conversion with --precision float32 first"
        )
    onnx_call = None if onnx is None else onnx.network(complete)
    if reference is None and is_onnx(model) and not complete.optimisation.is_int8 and not network.others:
        try:
            onnx_call = OnnxModel(Path(model)).network(complete)
        except (MissingPackageError, SourceError) as error:
            progress(f"not compared with {model}: {error}")
    class_names = read_class_names(complete)
    for line in _describe_labels(class_names):
        progress(line)
    calibration = NO_CALIBRATION
    if complete.optimisation.calibration is not None:
        progress(f"reading photos in {complete.optimisation.calibration}")
        calibration = read_calibration(
            complete.optimisation.calibration, complete.optimisation.digests, hold_back=photos is None
        )
    with warnings_hidden(), nullcontext(session) if session else SessionProcess() as session:
        progress("building the servable")
        servable = ServableModule(
            network.call, complete, class_names, calibration, others=network.others, tables=network.tables
        )
        task = servable.task
        if servable.quantisation is not None:
            stated_digests = ",".join(servable.calibration.digests)
            complete = replace(
                complete, optimisation=replace(complete.optimisation, calibration_digests=stated_digests)
            )
        progress(f"writing it for task {task.name}")
        complete = replace(complete, answers=replace(complete.answers, task=task.name))
        warm_up = complete.optimisation.warmed_up(servable.functions)
        stated = {"atol": atol, "rtol": rtol, "share": share, "iou": iou}

        def validate(version_folder: Path) -> Validation:
            progress("verifying it in a fresh process")
            with servable.calibration.held_back_files() as held_back:
                validation = validate_and_record(
                    version_folder,
                    session,
                    network,
                    complete,
                    task,
                    model_name=base_path.name,
                    evidence=[judgement.to_json() for judgement in evidence],
                    photos=photo_files,
                    others=others,
                    tolerance=task.tolerance.replaced(**stated),
                    warm_up=warm_up,
                    onnx=None if onnx_call is None else onnx_network(onnx_call, complete, task, stated),
                    int8=Int8Evaluation(held_back or photo_files, min_agreement, servable.quantisation)
                    if servable.quantisation
                    else None,
                )
            if parity_html is not None:
                write_html_page(Path(parity_html), validation.parity)
            if require_parity:
                validation.parity.check(advice="; --parity-html shows it, --no-parity publishes it anyway")
            return validation

        path, validation = publish.publish_version(
            base_path,
            version,
            save=servable.save,
            description=(publish.RECIPE_FILE, complete.to_toml()),
            validate=validate,
        )
    return BakeResult(path, complete, validation.agreement, validation.onnx_agreement, validation.parity, evidence)


def _read_recipe(recipe: Recipe | Mapping[str, Any] | str | Path | None) -> RecipeFile:
    match recipe:
        case None:
            return RecipeFile(None, {})
        case Recipe():
            return RecipeFile(None, recipe.to_values())
        case Mapping():
            return RecipeFile(None, dict(recipe))
        case _:
            return read_recipe_file(Path(recipe))


def _check_uses(network: Network, options: Mapping[str, object]) -> None:
    """Reject options that run the network on images alone."""
    for option, value in options.items():
        if value is not None:
            raise RecipeError(
                f"{option} is for networks whose only input is an image: this one takes {', '.join(network.others)} too"
            )


def _describe_labels(class_names: ClassNames) -> Iterator[str]:
    """Yield a line with the number of labels and the first of them, of each head, so that a wrong reading shows."""
    for head, names in class_names.items() if isinstance(class_names, Mapping) else [("", class_names)]:
        labels = list(filter(None, names))
        if labels:
            first = ", ".join(label[:_MAX_SHOWN] for label in labels[:_SHOWN_LABELS])
            yield f"{f'head {head}: ' if head else ''}{len(labels)} labels: {first}"
