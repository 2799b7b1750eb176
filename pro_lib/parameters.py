"""The parameters that notebooks share, each declared once and checked when they are put together; computes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pro_lib import bundled, checks, evaluation, imports, similarities
from pro_lib import questions as question_sets
from pro_lib.engine.strategies import STRATEGIES
from pro_lib.protocols import PROTOCOLS
from pro_lib.runs import CONVENTIONS

# A comparison of methods needs beams for PRO, NLL, ALL, PE, SE and SD, and samples for PE-MC, NE and Deg.
BEAMS, SAMPLES, EXACT, GREEDY = "diverse_beam", "multinomial", "threshold", "greedy"


def listed(names: str | Sequence[str]) -> list[str]:
    """One name or several, always as a list."""
    return [names] if isinstance(names, str) else list(names)


def _is_names(value: str | Sequence[str]) -> bool:
    return bool(value) and all(isinstance(name, str) and name for name in listed(value))


def _are_protocols(value: str | Sequence[str]) -> bool:
    return _is_names(value) and set(listed(value)) <= set(PROTOCOLS)


Columns = checks.rule(int, lambda value: value in (1, 2), "must be 1 or 2, the columns of a paper that a figure spans")
Names = checks.rule((str, list, tuple), _is_names, "must be a name or a list of names")
Protocols = checks.rule((str, list, tuple), _are_protocols, f"is none of {', '.join(PROTOCOLS)}, nor a list of them")


@checks.checked
class Parameters:
    """The parameters that notebooks share, checked when they are put together; a notebook repeats the lines it uses.

    Raises:
        ValueError: one sentence naming the parameter, its value and what it may be.
    """

    model: Names = "facts-2m"  # one or several: bundled or paper's name, hub id, folder
    dataset: Names = "world-facts"  # one or several: bundled, trivia_qa, sciq, nq, or a file
    split: str = "test"  # the split reported on
    strategy: checks.choice(*STRATEGIES) = BEAMS  # how answers are found: greedy, multinomial, diverse_beam, threshold
    protocol: Protocols = ("paper", "workbench")  # how answers are counted: paper, workbench, or both
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
    entropy_questions: checks.PositiveInt = 300  # the entropy of this many questions is estimated
    entropy_draws: checks.PositiveInt = 20  # from this many draws each of what its search left
    limit: checks.PositiveInt | None = None  # at most this many questions of each split; None for all
    n_shots: checks.WholeNumber | None = None  # shots in the prompt; None for 10, and for none with files
    n_validation: checks.PositiveInt | None = 100  # α is chosen on this many validation questions; None for all
    seed: checks.WholeNumber = 0  # of samples, of drawn questions, of bootstrap resamples
    batch_size: checks.PositiveInt | None = None  # questions in one pack; None chooses
    device: checks.Name = "auto"  # auto, cpu, cuda, cuda:1, mps
    dtype: checks.Dtype = "auto"  # auto, float32, bfloat16, float16
    quantization: checks.Quantization | None = None  # 8bit or 4bit (bitsandbytes, CUDA); None for none
    device_map: str | None = None  # auto spreads a model over several GPUs; None for one device
    trust_remote_code: checks.Flag = False  # whether code that ships with a hub model may run here
    chat: checks.Chat = False  # put prompts in the chat template of the model
    engine: checks.Engine = "local"  # local, or ray: workers on a Ray cluster, one a GPU
    n_workers: checks.PositiveInt | None = None  # workers of ray; None for as many as there are GPUs
    similarity: Names = "lexical"  # what means the same: lexical, alias, nli, or an NLI model
    correctness: str = "rouge_l"  # what is right: rouge_l, exact_match, alias_match, or a file of labels
    records: Names | None = None  # log-probabilities made elsewhere: files, or published ones; None asks the model
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
            self._check_asked()
        elif imports.recorded(listed(self.records)) and self.strategy == EXACT:
            raise ValueError(f"records={self.records!r} hold no search: exact search needs a model")

    def _check_asked(self) -> None:
        """What only matters where a model is asked."""
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
