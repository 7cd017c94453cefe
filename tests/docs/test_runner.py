"""The runner of the documentation's pages runs what a page shows and reports every difference in its output."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest
from pages import Block, blocks, commands, differences, matches, steps, with_free_ports


def page(*parts: str) -> str:
    """Return a page of these blocks, with text between them."""
    return "# Title\n\n" + "\nText with `code`.\n\n".join(parts)


def block(language: str, content: str, *, title: str = "", reason: str = "") -> str:
    mark = f"<!-- not run: {reason} -->\n" if reason else ""
    return f"{mark}```{language}" + (f' title="{title}"' if title else "") + f"\n{content}```\n"


def run(folder: Path, *parts: str) -> str:
    return differences(page(*parts), folder, folder)


def test_blocks_have_language_title_and_content() -> None:
    text = page(
        block("console", "$ true\n"),
        block("toml", 'a = "```"\n', title="a b.toml"),
        block("python", "", reason="needs a GPU"),
    )
    assert [
        Block("console", None, "$ true\n", True),
        Block("toml", "a b.toml", 'a = "```"\n', True),
        Block("python", None, "", False),
    ] == blocks(text)


@pytest.mark.parametrize(
    ("mark", "is_run"),
    [
        ("<!-- not run: needs a GPU -->\n", False),
        ("<!-- not run: -->\n", True),
        ("<!-- not run: needs a GPU -->\n\n", True),
        ("<!-- needs: rabbitmq -->\n", True),
    ],
    ids=["mark", "no reason", "not on the line before", "another comment"],
)
def test_a_block_is_not_run_if_the_line_before_it_gives_a_reason(mark: str, is_run: bool) -> None:
    text = page(mark + block("console", "$ true\n"), block("console", "$ true\n"), mark + block("console", "$ true\n"))
    assert [is_run, True, is_run] == [found.is_run for found in blocks(text)]


def test_a_command_is_followed_by_its_output() -> None:
    content = "$ printf 'a\\n > $ b\\n'\na\n > $ b\n\n$ true\n$ cd x\n"
    expected = [("printf 'a\\n > $ b\\n'", "a\n > $ b\n\n"), ("true", ""), ("cd x", "")]
    assert expected == commands(Block("console", None, content, True))


def test_a_command_continues_on_lines_that_end_with_a_backslash() -> None:
    content = "$ echo \\\n    a \\\n    b\na b\nc\n$ true\n"
    assert [("echo \\\n    a \\\n    b", "a b\nc\n"), ("true", "")] == commands(Block("console", None, content, True))


def test_the_output_of_background_commands_is_not_compared_and_set_up_is_not_run() -> None:
    text = block(
        "console", "$ . ~/savedmodel-bakery/.venv/bin/activate\n$ make test\n…passed…\n$ sleep 9 &\n$ echo a\na\n"
    )
    assert [("sleep 9 &", None), ("echo a", "a\n")] == [(step.script, step.output) for step in steps(text)]


def test_the_text_block_after_a_console_block_is_the_output_of_its_last_command() -> None:
    text = page(block("console", "$ true\n$ echo 1\n"), block("text", "1\n"), block("console", "$ echo 2\n2\n"))
    assert [("true", ""), ("echo 1", "1\n"), ("echo 2", "2\n")] == [(step.shown, step.output) for step in steps(text)]


def test_the_text_block_after_python_is_its_output() -> None:
    code = block("python", "print(1)\n")
    text = page(code, block("text", "1\n"), code, block("text", "1\n", title="one.txt"), code)
    assert ["1\n", "", None, ""] == [step.output for step in steps(text)]


def test_blocks_in_other_languages_are_not_run() -> None:
    assert [] == steps(page(block("text", "a\n"), block("protobuf", "a: 1\n"), block("console", "$ a\n", reason="b")))


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a…c\n", "abbc\n", True),
        ("a…c\n", "a\nb\nc\n", True),
        ("…\nb\n", "b\n", False),
        ("a.c\n", "abc\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n", "b\na\n", False),
    ],
    ids=["part of a line", "lines", "a line is missing", "no pattern but …", "more at the end", "more at the start"],
)
def test_an_ellipsis_matches_any_text(shown: str, printed: str, expected: bool) -> None:
    assert expected == matches(shown, printed)


def test_a_page_uses_free_ports() -> None:
    text, variables = with_free_ports(
        "--port=8500 curl :8501/v1 Client(model='m') AsyncClient() Client(['a']) Client('a') AmqpClient(url)"
    )
    grpc, rest = variables["PORT"], variables["REST_API_PORT"]
    assert not {"8500", "8501"} & {grpc, rest}
    ports = f"port={grpc}, rest_api_port={rest}, "
    grpc_port = f"port={grpc}, "
    assert (
        f"--port={grpc} curl :{rest}/v1 Client({ports}model='m') AsyncClient({grpc_port}) Client(['a']) Client('a') "
        "AmqpClient(url)"
    ) == text
    assert (grpc, rest) == (variables["BAKERY_CLIENT_PORT"], variables["BAKERY_CLIENT_REST_API_PORT"])
    assert (grpc, rest) == (variables["BAKERY_SERVE_PORT"], variables["BAKERY_SERVE_REST_API_PORT"])


def test_a_page_that_shows_what_it_prints_has_no_differences(tmp_path: Path) -> None:
    """Steps run in one shell, in order, in the folder; output may lack the newline at its end, as that of curl."""
    assert "" == run(
        tmp_path,
        block("toml", 'name = "$HOME"\n', title="a.toml"),
        block("console", '$ cat a.toml\nname = "$HOME"\n$ word=b; echo error >&2\nerror\n$ printf $word\nb\n'),
        block("python", "print(open('a.toml').read(), end='')\n"),
        block("text", 'name = "$HOME"\n'),
        block("console", "$ exit 1\n", reason="ends the shell"),
        block("console", "$ ls ~/savedmodel-bakery/a.toml | wc -l\n1\n"),
    )
    assert 'name = "$HOME"\n' == (tmp_path / "a.toml").read_text()


def test_every_differing_output_is_reported(tmp_path: Path) -> None:
    different = run(
        tmp_path,
        block("console", "$ echo a\nb\n$ echo same\nsame\n$ echo c\n"),
        block("python", "print('d')\n"),
    )
    assert [
        "$ echo a\na\n--- the page shows:\nb\n",
        "$ echo c\nc\n--- the page shows:\n",
        "$ print('d')\n\nd\n--- the page shows:\n",
    ] == re.split(r"\n(?=\$ )", different)


@pytest.mark.parametrize(
    ("command", "output"), [("exit 3", ""), ("echo 'a", "…unexpected EOF…\n")], ids=["exit", "unclosed quote"]
)
def test_steps_after_the_end_of_the_shell_are_reported(command: str, output: str, tmp_path: Path) -> None:
    """Also those that show no output, any output, or are not compared."""
    different = run(tmp_path, block("console", f"$ {command}\n{output}$ cd .\n$ echo b\n…\n$ sleep 9 &\n"))
    expected = [f"$ {step}\n--- was not run\n" for step in ("cd .", "echo b", "sleep 9 &", "the end")]
    assert expected == re.split(r"\n(?=\$ )", different)


def test_a_step_that_does_not_end_is_reported(tmp_path: Path) -> None:
    text = page(block("console", "$ echo a\nb\n$ echo c; sleep 600\nc\n$ true\n"))
    assert [
        "$ echo a\na\n--- the page shows:\nb\n",
        "$ echo c; sleep 600\nc\n--- did not end\n",
        "$ true\n--- was not run\n",
        "$ the end\n--- was not run\n",
    ] == re.split(r"\n(?=\$ )", differences(text, tmp_path, tmp_path, timeout_s=2))


def test_processes_in_the_background_are_killed(tmp_path: Path) -> None:
    assert "" == run(tmp_path, block("console", "$ sleep 600 &\n$ echo $! > pid\n"))
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
