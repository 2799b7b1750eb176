"""What the parameters of a notebook ask for: questions, runs, evaluations; read where they are stored, else made.

It knows names, splits and folders; it does not know a score by its formula, and it does not draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pro_lib import bundled, checks, evaluation, imports, metrics, notebook, runs, similarities, store
from pro_lib import questions as question_sets
from pro_lib.engine.strategies import Strategy, strategy
from pro_lib.evaluation import Choices, Evaluation, Splits
from pro_lib.parameters import BEAMS, EXACT, GREEDY, SAMPLES, Parameters, listed
from pro_lib.questions import QuestionSet
from pro_lib.runs import Run
from pro_lib.similarities import Similarity
from pro_lib.tables import Searched, searched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pro_lib.models import Model


# Parameters that strategies have as settings, one or another.
DECODING = ("n_answers", "seed", "temperature", "top_p", "diversity_penalty", "search_alpha", "max_new_tokens", "stop")
# What notebooks come with, beside the defaults.
_COME_WITH = {
    "model": (["facts-2m", "facts-1m"], ["facts-2m"]),
    "dataset": (["world-facts", "world-facts-reworded"], ["world-facts"]),
    "similarity": (["lexical", "alias"], ["alias"]),
    "protocol": (["paper", "workbench"],),
    "search_alpha": (0.005,),
    "stop": ([],),
    "target": ([0.7, 0.8, 0.9],),
}


@checks.checked
class Settings(Parameters):
    """The parameters of a notebook, and what they ask for."""

    @classmethod
    def from_notebook(cls, cells: Iterable[str] | None = None, **constants: object) -> Settings:
        """What a notebook's parameters cell declares and papermill has replaced, and `constants` of the notebook.

        Figures of other parameters than those the notebooks come with go to `figures/other/`, each trial to a folder of
        its own, unless `figures_dir` is given. `cells` are the sources of those that were run; None for this kernel's.

        Raises:
            ValueError: as `Settings`; a name is no parameter; or this machine lacks the device or the NLI model, or
                cannot write results, as far as that can be known before anything is computed.
        """
        declared, replaced = notebook.parameters(cells, first="model")
        values = declared | replaced
        made = cls(**values | constants)
        usual = {field.name: (field.default, *_COME_WITH.get(field.name, ())) for field in fields(cls)}
        differs = {name: value for name, value in values.items() if value != declared[name] or value not in usual[name]}
        apart = {name: value for name, value in differs.items() if name not in ("generations_dir", "figures_dir")}
        if apart and values.get("figures_dir") is None:
            made = replace(made, figures_dir=made.figures_dir / "other" / notebook.trial(apart))
            print(f"Figures go to {made.figures_dir}")
        checks.check_writable(made.figures_dir, "figures_dir")
        if made.records is None and not any(made.generations_dir.glob("*/*/*/run.json")):  # who only reads may go on
            checks.check_writable(made.generations_dir, "generations_dir")
        if made.records is None and made.device not in ("auto", "cpu"):
            from pro_lib import models

            models.find_device(made.device)
        compared = set(listed(made.similarity)) - {"lexical", "alias"}
        for name in sorted(compared):
            made._similarity(name, *made.pairs()[0])([["one"]])  # compared with itself alone it needs no weights
        _ = made.choices
        return made

    @property
    def choices(self) -> Choices:
        """What makes an answer right, as `correctness` says."""
        counted = self._of("convention", "distinct")
        if self.correctness in evaluation.CORRECTNESS:
            return Choices(correctness=self.correctness, **counted)
        return Choices(labels=imports.read_labels(self.correctness), **counted)

    def pairs(self) -> list[tuple[str, str]]:
        """Every (model, dataset), model by model, so that each is loaded once; of records what they are called."""
        if self.records is not None:
            return list(imports.recorded(listed(self.records)))
        return [(model, dataset) for model in listed(self.model) for dataset in listed(self.dataset)]

    def questions(self, dataset: str, *splits: str) -> QuestionSet:
        """The questions of a set by name, of a file or of a folder, of the splits named.

        Files without a validation split lend `n_validation` of their questions to one.
        """
        named = dataset in question_sets.NAMES
        where = {"name": dataset} if named else {"path": dataset, "n_validation": self.n_validation or 100}
        drawn = self._of("limit", "seed", "n_shots")
        return question_sets.load(**where, split=splits or self.split, **drawn)

    def run(self, model: str, dataset: str, *splits: str, strategy: str | None = None) -> Run:
        """The stored run of these questions, generated where it is missing; or the records, if they are given."""
        if self.records is not None:
            return self._recorded(model, dataset)
        return self._answers(model, self.questions(dataset, *splits), strategy or self.strategy)

    def judged(self, model: str, dataset: str, *splits: str) -> list[Evaluation]:
        """The answers of one strategy, the most probable one of each question judged: each split, by protocol."""
        return self._evaluated(splits, self._both_splits(model, dataset, self.strategy))

    def compared(self, model: str, dataset: str, *splits: str) -> list[Evaluation]:
        """Every method: beams, samples and greedy answers, one of each question judged: each split, by protocol."""
        beams, samples, others = self.runs_compared(model, dataset)
        options = {"similarities": self.similarities(model, dataset), "samples": samples, "others": others}
        return self._evaluated(splits, beams, **options)

    def splits(self, evaluated: Callable[..., list[Evaluation]]) -> list[Splits]:
        """For every pair and protocol the validation questions and those reported, as `judged` or `compared` does."""
        both, drawn = ("validation", self.split), (self.n_validation, self.seed, self.alphas)
        made = (iter(evaluated(*pair, *both)) for pair in self.pairs())
        return [Splits(*each, *drawn) for of_pair in made for each in zip(of_pair, of_pair, strict=True)]

    def runs_compared(self, model: str, dataset: str) -> tuple[Run, Run, list[Run]]:
        """Beams, samples and further runs of the validation split and of the one reported."""
        beams = self._both_splits(model, dataset, BEAMS)
        if self.records is not None:
            return beams, beams, []
        return beams, self._both_splits(model, dataset, SAMPLES), [self._both_splits(model, dataset, GREEDY)]

    def similarities(self, model: str, dataset: str) -> dict[str, Similarity | None]:
        """What decides whether answers mean the same, by name; None for `alias` where questions lack references."""
        return {Path(name).name: self._similarity(name, model, dataset) for name in listed(self.similarity)}

    def searched(self, model: str, dataset: str, *splits: str) -> list[Searched]:
        """An exact search at `search_alpha` beside beams, for each split named; of `validation` the questions drawn."""
        exact, beams, *more = (self._both_splits(model, dataset, name) for name in (EXACT, BEAMS, GREEDY, SAMPLES))
        beside = {"others": more[:1], "samples": more[1], "similarities": self.similarities(model, dataset)}
        lined_up = [searched(exact, beams, split=split, **beside) for split in splits]
        return [each.only(self._drawn(each.judged).answers["question_id"]) for each in lined_up]

    def searches(self, *splits: str) -> list[Run]:
        """Exact searches at `search_alpha`, one a pair, of the splits named; none of records, which hold no search."""
        pairs = self.pairs() if self.records is None else []
        return [self.run(*pair, *splits, strategy=EXACT) for pair in pairs]

    def _drawn(self, judged: Evaluation) -> Evaluation:
        if judged.split != "validation":
            return self._reportable(judged)
        return Splits(judged, judged, self.n_validation, self.seed).validation

    def remainders(self, model: str, dataset: str) -> Run:
        """An exact search of `entropy_questions` of the reported split, drawn with the seed, with `entropy_draws`."""
        questions = self.questions(dataset)
        n = min(self.entropy_questions, len(questions))
        table = questions.table.sample(n, random_state=self.seed).sort_index()
        asked = replace(questions, table=table.reset_index(drop=True))
        return self._answers(model, asked, EXACT, entropy_draws=self.entropy_draws)

    def store(
        self, table: pd.DataFrame, name: str, figure: Figure | Callable[..., Figure] | None = None
    ) -> pd.DataFrame | Figure | str:
        """Write a table to `figures_dir/<name>.csv`, and the figure drawn from it; return what is to be shown.

        `figure` may be the function that draws the table. Of an empty table, as of searches that records do not hold,
        nothing is written.
        """
        from pro_lib import figures

        if table.empty:
            return f"{name}: nothing to show, since records hold no search"
        figure = figure(table, columns=self.columns) if callable(figure) else figure
        if figure is None:
            return figures.save_table(table, name, figures_dir=self.figures_dir)
        note = imports.note(self.records) if "dataset" in table else ""  # else it is of no data, as simulations are
        return figures.save(figure, table, name, figures_dir=self.figures_dir, note=note)

    def loaded(self, model: str) -> Model:
        """The model, loaded as the parameters say or held since it was (`models.held`)."""
        from pro_lib import models

        return models.held(model, **self._of("device", "dtype", "quantization", "device_map", "trust_remote_code"))

    def _of(self, *names: str) -> dict[str, object]:
        return {name: getattr(self, name) for name in names}

    def _answers(self, model: str, questions: QuestionSet, name: str, **more: object) -> Run:
        decoding = self._of(*DECODING) | more
        stored = self._stored(model, questions, strategy(name, **decoding))
        if stored is not None:
            return stored
        from pro_lib import generate

        work, out = self._of("batch_size", "chat", "engine", "n_workers"), self.generations_dir
        return generate.generate(self.loaded(model), questions, strategy=name, out=out, **work, **decoding)

    def _stored(self, model: str, questions: QuestionSet, how: Strategy) -> Run | None:
        """A stored run that answers these questions as asked for; the model is not loaded to find out."""
        folder = self.generations_dir / questions.name / bundled.model_folder_name(model)
        folder /= store.named(how.name, how.apart() | questions.apart(chat=self.chat))
        if not store.has_parts(folder):
            return None
        run = runs.read(folder)
        asked = {"chat": None} | how.parameters() | questions.parameters(chat=self.chat)
        asked |= {} if self.dtype == "auto" else {"dtype": self.dtype}
        asked |= {} if self.quantization is None else {"quantization": self.quantization}
        source = bundled.bundled_models().get(model, Path(model))
        asked |= {"fingerprint": bundled.fingerprint(source)} if (source / "config.json").is_file() else {}
        same = store.difference(run.info.parameters, asked, only_known=True) is None
        held = set(run.questions["question_id"])
        return run.asked_as(questions.table) if same and held.issuperset(questions.table["question_id"]) else None

    def _both_splits(self, model: str, dataset: str, strategy: str) -> Run:
        """One run of the validation questions and of those reported, so that each is generated once."""
        if self.records is not None:
            return imports.split_records(self._recorded(model, dataset), n_validation=self.n_validation, seed=self.seed)
        return self.run(model, dataset, *dict.fromkeys(("validation", self.split)), strategy=strategy)

    def _recorded(self, model: str, dataset: str) -> Run:
        """The records; a question file given as `dataset` says what was asked where they do not."""
        records, dataset = imports.recorded(listed(self.records))[model, dataset], listed(self.dataset)[0]
        file = dataset not in question_sets.NAMES and Path(dataset).exists()
        questions = question_sets.load(path=dataset, split=None).table if file else None
        if file and "validation" not in set(questions["split"]):
            questions = questions.assign(split=None)  # so that one is drawn
        return imports.from_file(records, questions=questions)

    def _evaluated(self, splits: Iterable[str], answers: Run, **options: object) -> list[Evaluation]:
        options |= {"protocols": listed(self.protocol), "choices": self.choices}
        asked = (None if split == "all" else split for split in splits)  # only records have questions of no split
        by_split = [evaluation.evaluations(answers, split=split, **options) for split in asked]
        return [self._reportable(each) for of_protocol in zip(*by_split, strict=True) for each in of_protocol]

    def _reportable(self, judged: Evaluation) -> Evaluation:
        if self.reported and judged.split != "validation" and judged.one_class():
            raise metrics.OneClassError(f"{judged.one_class()}, so no score can be told from another on them")
        return judged

    def _similarity(self, name: str, model: str, dataset: str) -> Similarity | None:
        if name == "alias":
            table = self._alias_table(model, dataset)
            return similarities.Alias(table) if table["references"].notna().all() else None
        if name in similarities.SIMILARITIES and name != "nli":
            return similarities.similarity(name)
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
