"""The parameters that notebooks share, each declared once, and what a notebook says of them; computes nothing."""

from __future__ import annotations

import ast
import builtins
import hashlib
import os
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pro_lib import bundled, checks, evaluation, imports, similarities
from pro_lib import questions as question_sets
from pro_lib.engine.strategies import STRATEGIES
from pro_lib.protocols import PROTOCOLS
from pro_lib.runs import CONVENTIONS

# A comparison of methods needs beams for PRO, NLL, ALL, PE, SE and SD, and samples for PE-MC, NE and Deg.
BEAMS, SAMPLES, EXACT, GREEDY = "diverse_beam", "multinomial", "threshold", "greedy"
# What notebooks come with, beside the defaults: their figures go to figures/ itself.
_COME_WITH = {
    "model": (["facts-2m", "facts-1m"], ["facts-2m"]),
    "dataset": (["world-facts", "world-facts-reworded"], ["world-facts"]),
    "similarity": (["lexical", "alias"], ["alias"]),
    "protocol": (["paper"],),
    "search_alpha": (0.005,),
    "target": ([0.7, 0.8, 0.9],),
}


def listed(names: str | Sequence[str]) -> list[str]:
    """Return one name or several always as a list."""
    return [names] if isinstance(names, str) else list(names)


def _is_names(value: str | Sequence[str]) -> bool:
    return bool(value) and all(isinstance(name, str) and name for name in listed(value))


Names = checks.rule((str, list, tuple), _is_names, "must be a name or a list of names")
Protocols = checks.rule(
    (str, list, tuple),
    lambda value: _is_names(value) and set(listed(value)) <= set(PROTOCOLS),
    f"is none of {', '.join(PROTOCOLS)}, nor a list of them",
)
Columns = checks.rule(int, lambda value: value in (1, 2), "must be 1 or 2, the columns of a paper that a figure spans")


@checks.checked
class Parameters:
    """The parameters of a notebook, checked when they are put together.

    Raises `ValueError`: one sentence naming the parameter, its value and what it may be.
    """

    model: Names = "facts-2m"  # one or several: bundled or paper's name, hub id, folder
    dataset: Names = "world-facts"  # one or several: bundled, trivia_qa, sciq, nq, or a file
    split: str = "test"  # the split reported on
    strategy: checks.choice(*STRATEGIES) = BEAMS  # how answers are found: greedy, multinomial, diverse_beam, threshold
    protocol: Protocols = "paper"  # how answers are counted in figures: paper, workbench, or both
    distinct: checks.Flag | None = None  # whether repeated answers count once; None as the protocol has it
    convention: checks.choice(*CONVENTIONS) = "complete"  # complete (ending included) or answer_tokens (left out)
    alphas: checks.Probabilities | None = None  # α is chosen from these; None for 0, 0.05, …, 1
    alpha: checks.Probability = 0.4  # the default α: PRO keeps answers whose probability is at least α
    target: checks.Probabilities = (0.7, 0.8, 0.9)  # accuracies to promise, of the answers given
    confidence: checks.Probability = 0.95  # that a promise holds
    search_alpha: checks.PositiveShare = 0.02  # α of strategy threshold, the exact search: how far down it looks
    n_answers: checks.PositiveInt = 10  # N, answers per question
    temperature: checks.Positive = 1.0  # of samples: below 1 likely tokens are drawn more often, above 1 less
    top_p: checks.PositiveShare = 1.0  # samples are drawn from the likeliest tokens that hold this share; 1 for all
    diversity_penalty: checks.NotNegative = 1.0  # λ, what a token costs a beam after another beam has taken it
    max_new_tokens: checks.PositiveInt = 32  # T, tokens at which an answer is cut, its ending included
    stop: checks.Texts = ()  # texts that end an answer beside its end of text and newline, each one token
    limit: checks.PositiveInt | None = None  # at most this many questions of each split; None for all
    n_shots: checks.WholeNumber | None = None  # shots in the prompt; None for 10, and for none with files
    n_validation: checks.PositiveInt | None = 100  # α is chosen on this many validation questions; None for all
    seed: checks.WholeNumber = 0  # of samples, of drawn questions, of redraws
    batch_size: checks.PositiveInt | None = None  # questions in one pack; None chooses
    device: checks.Name = "auto"  # auto, cpu, cuda, cuda:1, mps
    dtype: checks.Dtype = "auto"  # auto, float32, bfloat16, float16
    loading: dict | None = None  # further options of models.load, as {"device_map": "auto"}
    chat: checks.Chat = False  # put prompts in the chat template of the model
    engine: checks.Engine = "local"  # local, or ray: workers on a Ray cluster, one a GPU
    n_workers: checks.PositiveInt | None = None  # workers of ray; None for as many as there are GPUs
    similarity: Names = "lexical"  # what means the same: lexical, alias, nli, or an NLI model
    correctness: str = "rouge_l"  # what is right: rouge_l, exact_match, alias_match, or a file of labels
    records: Names | None = None  # files of log-probabilities made elsewhere; None asks the model
    generations_dir: str | Path | None = None  # where runs are kept; None for data/generations of the repository
    figures_dir: str | Path | None = None  # where figures go; None for figures of the repository
    columns: Columns = 2  # columns of a paper that a figure spans, 1 or 2
    reported: checks.Flag = False  # the split is reported on, so that it may not be validation, where α is chosen

    def __post_init__(self) -> None:
        # Notebooks run in folders of their own, so a default must not depend on where that is.
        for name, folder in (("generations_dir", "data/generations"), ("figures_dir", "figures")):
            object.__setattr__(self, name, Path(getattr(self, name) or bundled.HOME / folder))
        if self.reported and self.split == "validation":
            raise ValueError("split='validation' is where alpha is chosen; report on another split")
        for name in listed(self.similarity):
            if not (name in similarities.SIMILARITIES or os.path.isdir(name) or "/" in name):
                known = ", ".join(similarities.SIMILARITIES)
                raise ValueError(f"similarity={name!r} is neither {known}, nor an NLI model's folder or hub id")
        if self.correctness not in evaluation.CORRECTNESS and not os.path.isfile(self.correctness):
            known = ", ".join(evaluation.CORRECTNESS)
            raise ValueError(f"correctness={self.correctness!r} is neither {known}, nor a file of labels")
        if self.records is None:
            self._check_models()
        elif imports.recorded(listed(self.records)) and self.strategy == EXACT:
            raise ValueError(f"records={self.records!r} hold no search: exact search needs a model")

    def _check_models(self) -> None:
        """Check what only matters where a model is asked."""
        if self.split not in question_sets.SPLITS:
            raise ValueError(f"split={self.split!r} is unknown; choose {', '.join(question_sets.SPLITS)}")
        if self.strategy == EXACT and self.alpha < self.search_alpha:
            raise ValueError(f"alpha={self.alpha!r} is below search_alpha={self.search_alpha!r}: not searched so far")
        for model in listed(self.model):
            bundled.check_model(model)
        for dataset in listed(self.dataset):
            if dataset not in question_sets.NAMES and not os.path.exists(dataset):
                known = ", ".join(question_sets.NAMES)
                raise ValueError(f"dataset={dataset!r} is neither {known}, nor a file or folder")

    @classmethod
    def of(cls, names: Mapping[str, Any], **constants: object) -> Parameters:
        """Return what a notebook's parameters cell declares and papermill has injected, and the notebook's `constants`.

        `names` are the notebook's `globals()`. Papermill may inject any parameter, declared or not. Figures of other
        parameters than the notebooks come with go to a folder of their own in `figures/other/`, unless `figures_dir`
        is given. From here on an error of this package is shown as its sentence.

        Raises:
            SentenceError: an injected name is no parameter, or a value cannot be.
        """
        shell = getattr(builtins, "get_ipython", lambda: None)()
        if shell:
            # Anything else is a fault of the program, and keeps its traceback.
            shell.set_custom_exc((ValueError, OSError, ImportError, MemoryError), _show)
        declared, injected = _parameter_names(names.get("In", ()))
        parameters = [field.name for field in fields(cls)]
        checks.check_known((*declared, *injected), parameters, " of the notebooks")
        values = {name: names[name] for name in (*declared, *injected)}
        made = cls(**values | constants)
        usual = {field.name: (field.default, *_COME_WITH.get(field.name, ())) for field in fields(cls)}
        apart = {name: value for name, value in values.items() if value not in usual[name] and value not in ([], {})}
        apart = {name: value for name, value in apart.items() if name not in ("generations_dir", "figures_dir")}
        if apart and values.get("figures_dir") is None:
            made = replace(made, figures_dir=made.figures_dir / "other" / trial_name(apart))
            print(f"Figures go to {made.figures_dir}")
        made._check_machine()
        return made

    def _check_machine(self) -> None:
        """Raise what would stop the notebook later, as far as it can be known before anything is computed."""
        checks.check_writable(self.figures_dir, "figures_dir")


def trial_name(changed: Mapping[str, Any]) -> str:
    """Return a folder's name for parameters that differ from a notebook as it comes: `alpha=0.3,limit=200`.

    A checksum stands for what is too long, or written with letters that folders seldom have.
    """
    values = {name: value if isinstance(value, list) else [value] for name, value in changed.items()}
    written = {name: [re.sub(r"[^\w.-]", "_", str(one), flags=re.ASCII) for one in values[name]] for name in values}
    text = ",".join(f"{name}={'+'.join(parts)}" for name, parts in written.items())
    is_whole = len(text) <= 60 and all(written[name] == list(map(str, values[name])) for name in values)
    return text if is_whole else f"{text[:60]}-{hashlib.sha256(repr(changed).encode()).hexdigest()[:6]}"


def _parameter_names(cells: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names that the latest parameters cell declares, and those that papermill injected after it.

    A parameters cell holds nothing but typed names, `alpha: float = 0.4`; no other cell counts.
    """
    declared, injected = [], []
    for cell in cells:
        try:
            statements = ast.parse(cell).body
        except SyntaxError:
            continue
        if statements and all(isinstance(statement, ast.AnnAssign) for statement in statements):
            declared, injected = [statement.target.id for statement in statements], []
        elif cell.startswith("# Parameters\n"):
            injected = [statement.targets[0].id for statement in statements]
    return declared, injected


def _show(shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: int | None = None) -> list[str]:
    """Show an error of this package as its sentence, any other with its traceback."""
    *_, (frame, _) = traceback.walk_tb(trace)
    ours = frame.f_globals.get("__name__", "").startswith("pro_lib.")
    whole = shell.InteractiveTB.structured_traceback
    shown = [f"{kind.__name__}: {error}"] if ours else whole(kind, error, trace, tb_offset=tb_offset)
    shell._showtraceback(kind, error, shown)
    return shown
