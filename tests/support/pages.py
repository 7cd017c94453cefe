"""Runs the commands and the Python code of a Markdown page, in order, and compares what they print with the page.

- `console`: each line that starts with `$ ` is a command; the lines below it are its output, where `…` is any text.
  A command that ends with `&` runs in the background; its output is not compared.
- `python`: code; the `text` block after it is its output. A `text` block may also follow a console block whose last
  command shows no output, for output with lines that start with `$ `; a `mermaid` block is such output too.
- a block with a title: the content of the file of that name.
- `<!-- needs: PACKAGE -->` anywhere: the page is run by the system tests, which have that Debian package.
- `<!-- environments: NAME NAME -->` anywhere: the page is run by `make test-guides`, which makes these virtual
  environments; the page finds them in its folder.
- `<!-- not run: REASON -->` before a block: the block is not run.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import warm_start
from server_process import free_port

_MARK = "=== step"
_BAKE = r"bakery bake (?:--model )?efficientnet-lite0(?= 2>bake\.log$|$)"
_COPY_BAKE = (
    "mkdir saved_model && cp --recursive {folder} saved_model && cat {folder}/../bake.log >&2"
    " && echo saved_model/efficientnet_lite0/1"
)
_TRAIN = r"python (?:(?:~/savedmodel-bakery/)?examples/train/)?flowers\.py"
_COPY_TRAINED = "cp --recursive {folder}/. . && cat {folder}/../training.log"
_SLOW_PAGES = {f"how-to/{name}.md" for name in ("boxes-and-maps", "fine-tuned", "gpu", "pipelines", "tasks")}
"""Pages that train networks or measure, and need no Debian packages but curl."""
_BLOCK = re.compile(
    r'^(?P<skip><!-- not run: \S[^\n]* -->\n)?```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<content>.*?)^```',
    re.MULTILINE | re.DOTALL,
)
# The tests have an environment already, and are what `make test` runs.
_SETUP = re.compile(r"\. \S*\.venv/bin/activate|make test")


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    language: str
    title: str | None
    content: str
    is_run: bool


@dataclass(frozen=True)
class Step:
    """What a page shows: a command or code, and its output; None if that is not compared."""

    shown: str
    script: str
    output: str | None


def blocks(page: str) -> list[Block]:
    """Return a page's code blocks."""
    return [
        Block(match["language"], match["title"], match["content"], match["skip"] is None)
        for match in _BLOCK.finditer(page)
    ]


def pages(docs: Path) -> dict[str, str]:
    """Return the pages of a folder that show commands, by their path in it."""
    texts = {str(path.relative_to(docs)): path.read_text() for path in sorted(docs.rglob("*.md"))}
    return {name: text for name, text in texts.items() if steps(text)}


def packages(page: str) -> list[str]:
    """Return the Debian packages that a page needs."""
    return re.findall(r"^<!-- needs: (\S+) -->$", page, re.MULTILINE)


def environments(page: str) -> list[str]:
    """Return the virtual environments that a page needs besides the tests' own."""
    return [name for line in re.findall(r"^<!-- environments: (.+) -->$", page, re.MULTILINE) for name in line.split()]


def pages_of(suite: Literal["guides", "slow", "system"]) -> dict[str, str]:
    """Return the pages of the documentation that the tests of a suite run, by their path in `docs`."""
    docs = Path(__file__).parent.parent.parent / "docs"
    return {name: page for name, page in pages(docs).items() if suite == _suite(name, page)}


def _suite(name: str, page: str) -> str:
    if environments(page):
        return "guides"
    return "slow" if name in _SLOW_PAGES else "system"


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output shown below it."""
    pairs = []
    for part in re.split(r"^\$ ", block.content, flags=re.MULTILINE)[1:]:
        match = re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n(.*)", part, re.DOTALL)
        assert match is not None, part
        pairs.append((match[1], match[2]))
    return pairs


def steps(page: str) -> list[Step]:
    """Return what is run of a page, in order."""
    shown = [block for block in blocks(page) if block.is_run]
    made = []
    for block, following in zip_longest(shown, shown[1:]):
        has_text = following is not None and following.language in ("text", "mermaid") and following.title is None
        text = following.content if following and has_text else ""
        if block.title is not None:
            made.append(Step(block.title, f"cat > '{block.title}' <<'END'\n{block.content}END", None))
        elif block.language == "console":
            pairs = commands(block)
            pairs[-1] = (pairs[-1][0], pairs[-1][1] or text)
            made.extend(
                Step(command, command, None if command.endswith("&") else output)
                for command, output in pairs
                if not _SETUP.fullmatch(command)
            )
        elif block.language == "python":
            made.append(Step(block.content, f"python - <<'END'\n{block.content}END", text))
    return made


def with_free_ports(page: str) -> tuple[str, dict[str, str]]:
    """Return the page with free ports instead of 8500 and 8501, and the variables that make them the defaults."""
    ports = {"8500": str(free_port()), "8501": str(free_port())}
    page = re.sub("8500|8501", lambda port: ports[port[0]], page)
    for client, arguments in (
        ("Client", f"port={ports['8500']}, rest_api_port={ports['8501']}"),
        ("AsyncClient", f"port={ports['8500']}"),
    ):
        page = re.sub(rf"\b{client}\((?=[^\"'\[])", f"{client}({arguments}, ", page)
    variables = {f"BAKERY_{command}_PORT": ports["8500"] for command in ("CLIENT", "SERVE")}
    variables |= {f"BAKERY_{command}_REST_API_PORT": ports["8501"] for command in ("CLIENT", "SERVE")}
    return page, variables | {"PORT": ports["8500"], "REST_API_PORT": ports["8501"]}


def differences(
    page: str,
    clone: Path,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    timeout_s: float = 800,
    lite0: Path | None = None,
    flowers: Path | None = None,
) -> str:
    """Run a page in a folder; return the steps that print something else than the page or do not end, as text.

    With `lite0`, the base path of what `bakery bake --model efficientnet-lite0` has baked, that command copies it. With
    `flowers`, the folder in which `flowers.py` has trained, so does that program. The folder may be empty:
    `~/savedmodel-bakery` is the clone. All processes that the page starts are killed at the end, and after `timeout_s`
    seconds at the latest.
    """
    home = folder / ".home"
    home.mkdir()
    (home / "savedmodel-bakery").symlink_to(clone)
    page, variables = with_free_ports(page)
    run = steps(page)
    # Some commands, such as curl, do not end their output with a newline; the marks start a line nevertheless.
    script = "\n".join(f"echo $'\\n{_MARK} {number}'\n{step.script}" for number, step in enumerate(run))
    if lite0 is not None:
        script = _replace_command(script, _BAKE, _COPY_BAKE.format(folder=lite0))
    if flowers is not None:
        script = _replace_command(script, _TRAIN, _COPY_TRAINED.format(folder=flowers))
    process = subprocess.Popen(
        ["bash", "-c", f"exec 2>&1\n{script}\necho $'\\n{_MARK} end'\nkill $(jobs -p)\nwait"],
        cwd=folder,
        env={
            # Without what `make test` tells a `make` that it starts itself.
            **{name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(Path(warm_start.__file__).parent), str(clone)]),
            **variables,
            **(environment or {}),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=timeout_s)
        is_late = False
    except subprocess.TimeoutExpired as error:
        printed, is_late = (error.output or b"").decode(errors="replace"), True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()
    printed_by_step = re.findall(rf"^{_MARK} \w+\n(.*?)(?:\n(?=^{_MARK})|\Z)", printed, re.MULTILINE | re.DOTALL)
    return "\n".join(_differences([*run, Step("the end", "", None)], printed_by_step, is_late=is_late))


def _replace_command(script: str, pattern: str, commands: str) -> str:
    """Replace the first command that matches a pattern; its redirections stay."""
    return re.sub(f"^{pattern}", lambda _: f"{{ {commands}; }}", script, count=1, flags=re.MULTILINE)


def _differences(run: list[Step], printed: list[str], *, is_late: bool) -> Iterator[str]:
    """Yield the differences, given what the steps printed that began; the last of them did not end if `is_late`."""
    for number, step in enumerate(run):
        if number >= len(printed):
            yield f"$ {step.shown}\n--- was not run\n"
        elif is_late and number == len(printed) - 1:
            yield f"$ {step.shown}\n{printed[number]}--- did not end\n"
        elif step.output is not None and not matches(step.output, printed[number]):
            yield f"$ {step.shown}\n{printed[number]}--- the page shows:\n{step.output}"


def matches(shown: str, printed: str) -> bool:
    """Return whether the printed output matches the shown one; a missing newline at the end does not matter."""
    if printed and not printed.endswith("\n"):
        printed += "\n"
    pattern = "".join(".*?" if piece == "…" else re.escape(piece) for piece in re.split("(…)", shown))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None
