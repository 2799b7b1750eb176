"""What the parameters of a notebook ask for: questions, runs, evaluations; read where they are stored, else made.

It knows names, splits and folders; it does not know a score by its formula, and it does not draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pro_lib import bundled, checks, engine, evaluation, files, imports, metrics, runs, similarities, store
from pro_lib import questions as question_sets
from pro_lib.evaluation import Choices, Evaluation, Splits
from pro_lib.parameters import BEAMS, GREEDY, SAMPLES, Parameters, listed
from pro_lib.protocols import PROTOCOLS
from pro_lib.questions import QuestionSet
from pro_lib.runs import Run
from pro_lib.similarities import Similarity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pro_lib.models import Model

# Parameters that strategies have as settings, one or another.
DECODING = ("n_answers", "seed", "temperature", "top_p", "diversity_penalty", "search_alpha", "max_new_tokens", "stop")


@checks.checked
class Settings(Parameters):
    """The parameters of a notebook, and what they ask for."""

    def _check_machine(self) -> None:
        """Raise what would stop the notebook later, as far as it can be known before anything is computed."""
        super()._check_machine()
        if self.records is None and not any(self.generations_dir.glob("*/*/*/run.json")):  # who only reads may go on
            checks.check_writable(self.generations_dir, "generations_dir")
        if self.records is None and self.device not in ("auto", "cpu"):
            from pro_lib import models

            models.find_device(self.device)
        for name in sorted(set(listed(self.similarity)) - {"lexical", "alias"}):
            self._similarity(name, *self.pairs()[0])([["one"]])  # compared with itself alone it needs no weights
        _ = self.choices

    @property
    def choices(self) -> Choices:
        """What makes an answer right, as `correctness` says."""
        counted = self._values("convention", "distinct")
        if self.correctness in evaluation.CORRECTNESS:
            return Choices(correctness=self.correctness, **counted)
        return Choices(labels=imports.read_labels(self.correctness), **counted)

    def pairs(self) -> list[tuple[str, str]]:
        """Return every (model, dataset), model by model, so that each is loaded once; of records their names."""
        if self.records is not None:
            return list(imports.recorded(listed(self.records)))
        return [(model, dataset) for model in listed(self.model) for dataset in listed(self.dataset)]

    def questions(self, dataset: str, *splits: str) -> QuestionSet:
        """Return the questions of the splits named, of a set by name, of a file or of a folder.

        Files without a validation split lend `n_validation` of their questions to one.
        """
        named = dataset in question_sets.NAMES
        where = {"name": dataset} if named else {"path": dataset, "n_validation": self.n_validation or 100}
        return question_sets.load(**where, split=splits or self.split, **self._values("limit", "seed", "n_shots"))

    def run(self, model: str, dataset: str, *splits: str, strategy: str | None = None) -> Run:
        """Return the stored run of these questions, generated where it is missing; or the records, if given."""
        if self.records is not None:
            return self._recorded(model, dataset)
        questions, name = self.questions(dataset, *splits), strategy or self.strategy
        stored = self._stored(model, questions, engine.strategy(name, **self._values(*DECODING)))
        if stored is not None:
            return stored
        from pro_lib import generate

        work, out = self._values("batch_size", "chat", "engine", "n_workers", *DECODING), self.generations_dir
        return generate.generate(self.loaded(model), questions, strategy=name, out=out, **work)

    def both_splits(self, model: str, dataset: str, strategy: str | None = None) -> Run:
        """Return one run of the validation questions and of those reported, so that each is generated once."""
        if self.records is not None:
            return imports.split_records(self._recorded(model, dataset), n_validation=self.n_validation, seed=self.seed)
        return self.run(model, dataset, *dict.fromkeys(("validation", self.split)), strategy=strategy)

    def evaluations(self, model: str, dataset: str, split: str | None, *, methods: str = "own") -> list[Evaluation]:
        """Return the evaluations of a split, one for each protocol; None for all questions.

        `methods`: `own` reads the run of `strategy` alone; `all` reads beams, samples and greedy answers, and judges
        the most probable answer that any of them found.
        """
        return self._evaluated(model, dataset, [split], methods)[0]

    def _evaluated(
        self, model: str, dataset: str, splits: Sequence[str | None], methods: str
    ) -> list[list[Evaluation]]:
        """Return the `evaluations` of each split; runs and similarities are read once for all of them."""
        options = {"protocols": list(PROTOCOLS), "choices": self.choices}
        answers = self.both_splits(model, dataset, BEAMS if methods == "all" else self.strategy)
        if methods == "all":
            options["similarities"] = self.similarities(model, dataset)
            options["samples"] = answers if self.records else self.both_splits(model, dataset, SAMPLES)
            options["others"] = [] if self.records else [self.both_splits(model, dataset, GREEDY)]
        judged = [evaluation.evaluations(answers, split=None if name == "all" else name, **options) for name in splits]
        for name, by_protocol in zip(splits, judged, strict=True):
            for one in by_protocol if self.reported and name != "validation" else ():
                if one.one_class():
                    raise metrics.OneClassError(f"{one.one_class()}, so no score can be told from another on them")
        return judged

    def splits(self, methods: str = "own") -> list[Splits]:
        """Return, for every pair and protocol, the validation questions and those reported; see `evaluations`."""
        drawn = self._values("n_validation", "seed", "alphas")
        made = []
        for pair in self.pairs():
            both = self._evaluated(*pair, ("validation", self.split), methods)
            made += [Splits(pool, reported, **drawn) for pool, reported in zip(*both, strict=True)]
        return made

    def similarities(self, model: str, dataset: str) -> dict[str, Similarity | None]:
        """Return what decides whether answers mean the same, by name; None for `alias` without references."""
        return {Path(name).name: self._similarity(name, model, dataset) for name in listed(self.similarity)}

    def drawn(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a table whose protocol is among `protocol`: those that a figure shows."""
        return table[table["protocol"].str.split(", ").str[0].isin(listed(self.protocol))]

    def store(
        self, table: pd.DataFrame, name: str, figure: Figure | Callable[..., Figure] | None = None
    ) -> pd.DataFrame | Figure | str:
        """Write a table to `figures_dir/<name>.csv`, and the figure drawn from it; return what is to be shown.

        `figure` may be the function that draws the table. Of an empty table nothing is written.
        """
        from pro_lib import panels

        if table.empty:
            return f"{name}: nothing to show, since records hold no search"
        figure = figure(table, columns=self.columns) if callable(figure) else figure
        if figure is None:
            return panels.save_table(table, name, figures_dir=self.figures_dir)
        return panels.save(figure, table, name, figures_dir=self.figures_dir)

    def loaded(self, model: str) -> Model:
        """Return the model, loaded as the parameters say or held since it was (`models.held`)."""
        from pro_lib import models

        return models.held(model, **self._values("device", "dtype"), **(self.loading or {}))

    def _values(self, *names: str) -> dict[str, object]:
        return {name: getattr(self, name) for name in names}

    def _stored(self, model: str, questions: QuestionSet, how: engine.Strategy) -> Run | None:
        """Return a stored run that answers these questions as asked for; the model is not loaded to find out."""
        folder = self.generations_dir / questions.name / bundled.model_folder_name(model)
        folder /= files.named(how.name, how.apart() | questions.apart(chat=self.chat))
        if not store.parts(folder):
            return None
        run = runs.read(folder)
        wanted = {"chat": None} | how.parameters() | questions.parameters(chat=self.chat)
        wanted |= {} if self.dtype == "auto" else {"dtype": self.dtype}
        source = bundled.bundled_models().get(model, Path(model))
        wanted |= {"fingerprint": bundled.fingerprint(source)} if (source / "config.json").is_file() else {}
        same = store.difference(run.info.parameters, wanted, only_known=True) is None
        ids = set(run.questions["question_id"])
        return run.asked_as(questions.table) if same and ids.issuperset(questions.table["question_id"]) else None

    def _recorded(self, model: str, dataset: str) -> Run:
        """Return the records; a question file given as `dataset` says what was asked where they do not."""
        records, dataset = imports.recorded(listed(self.records))[model, dataset], listed(self.dataset)[0]
        is_file = dataset not in question_sets.NAMES and Path(dataset).exists()
        questions = question_sets.load(path=dataset, split=None).table if is_file else None
        if is_file and "validation" not in set(questions["split"]):
            questions = questions.assign(split=None)  # so that one is drawn
        return imports.from_file(records, questions=questions)

    def _similarity(self, name: str, model: str, dataset: str) -> Similarity | None:
        if name == "alias":
            table = self._alias_table(model, dataset)
            return similarities.Alias(table) if table["references"].notna().all() else None
        if name == "lexical":
            return similarities.Lexical()
        chosen = {} if name == "nli" else {"model": name}
        cache = self.generations_dir / Path(dataset).stem / bundled.model_folder_name(model)
        return similarities.Nli(**chosen, device=None if self.device == "auto" else self.device, cache=cache)

    def _alias_table(self, model: str, dataset: str) -> pd.DataFrame:
        if self.records is not None:
            return self._recorded(model, dataset).questions
        if dataset in question_sets.BUNDLED:
            # Of all splits: a wrong answer is often the right one to another question.
            return question_sets.load(dataset, split=None, n_shots=0).table
        return self.questions(dataset, "validation", self.split).table
