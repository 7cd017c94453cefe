"""The command line is parsed as TensorFlow's flag parser does."""

from __future__ import annotations

import pytest

from savedmodel_bakery.serving.options import flags


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        pytest.param("--port=8600", "port", 8600, id="integer"),
        pytest.param("--max_num_load_retries=-3", "max_num_load_retries", -3, id="negative"),
        pytest.param("--enable_batching", "enable_batching", True, id="bare boolean"),
        pytest.param("--enable_batching=true", "enable_batching", True, id="true"),
        pytest.param("--enable_model_warmup=false", "enable_model_warmup", False, id="false"),
        pytest.param("--model_name=a=b", "model_name", "a=b", id="text with an equals sign"),
        pytest.param("--model_name=", "model_name", "", id="empty text"),
        pytest.param("--per_process_gpu_memory_fraction=0.5", "per_process_gpu_memory_fraction", 0.5, id="float"),
    ],
)
def test_a_known_flag_sets_its_value(argument: str, name: str, value: flags.Value) -> None:
    parsed = flags.parse([argument])
    assert value == parsed.values[name]
    assert {name} == parsed.explicit
    assert parsed.unknown is None


def test_defaults_match_the_real_server() -> None:
    """GRPC on 8500, no REST, a model named `default`, a scan for versions every second."""
    parsed = flags.parse([])
    assert (8500, 0, "default", 1) == tuple(
        parsed.values[name] for name in ("port", "rest_api_port", "model_name", "file_system_poll_wait_seconds")
    )
    assert parsed.explicit == frozenset()


def test_the_last_occurrence_wins() -> None:
    assert flags.parse(["--port=1", "--port=2"]).integer("port") == 2


@pytest.mark.parametrize("argument", ["-port=1", "foo", "--port", "--nosuch=1", "--nosuch", "--help"])
def test_the_first_unknown_argument_is_returned(argument: str) -> None:
    parsed = flags.parse([argument, "--port=9", "second"])
    assert argument == parsed.unknown
    assert parsed.integer("port") == 9


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--prot=8500"], "did you mean --port=8500?"),
        (["--rest-api-port=8501"], "did you mean --rest_api_port=8501?"),
        (["--enable_batch"], "did you mean --enable_batching?"),
        (["-port=1"], "did you mean --port=1?"),
        (["-port", "1"], "did you mean --port=1?"),
        (["--port", "8500"], 'the value must follow "=": --port=8500'),
        (["--port", "--model_name=m"], 'the value must follow "=": --port=VALUE'),
        (["--port"], 'the value must follow "=": --port=VALUE'),
        (["stray"], "flags are written --name=value"),
        ([""], "flags are written --name=value"),
        (["--nosuch=1"], "--help lists the flags"),
        (["--nosuch=1", "--prot=2"], "--help lists the flags"),
    ],
    ids=" ".join,
)
def test_the_first_unknown_argument_has_a_hint(arguments: list[str], hint: str) -> None:
    assert hint == flags.parse(arguments).hint


def test_arguments_after_two_dashes_are_ignored() -> None:
    assert flags.parse(["--", "--port=1", "more"]) == flags.parse([])


@pytest.mark.parametrize(
    "argument",
    ["--port=abc", "--port=", "--port=1.0", "--port=0x10", "--port= 1", "--enable_batching=yes", "--enable_batching=1"],
)
def test_a_value_that_does_not_parse_raises_an_error(argument: str) -> None:
    name, _, value = argument.removeprefix("--").partition("=")
    with pytest.raises(flags.FlagError, match=f"^Couldn't interpret value {value} for flag {name}\\.$"):
        flags.parse([argument])


def test_usage_lists_every_flag_and_marks_those_without_effect() -> None:
    usage = flags.usage("server")
    assert usage.startswith("usage: server\nFlags:\n\t--port=8500")
    assert sorted(flags.FLAGS) == sorted(line.split("=")[0][3:] for line in usage.splitlines()[2:])
    line = next(line for line in usage.splitlines() if "--skip_initialize_tpu" in line)
    assert line.endswith("(without effect in the embedded engine)")
