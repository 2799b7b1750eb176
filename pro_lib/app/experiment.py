"""An experiment: the questions, runs, evaluations and figures that its parameters ask for."""

from __future__ import annotations

from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pro_lib import evaluation, metrics, scoring
from pro_lib.app.correctness import Correctness, read_correctness
from pro_lib.app.made_from import file_digests, named_paths, note_figure, run_digest, run_name
from pro_lib.app.notebook_parameters import notebook_values
from pro_lib.app.parameters import (
    GREEDY,
    SAMPLES,
    Parameters,
    as_list,
    changed_values,
    dataset_label,
    default_values,
)
from pro_lib.app.recorded_answers import read_records, select_records
from pro_lib.common import catalog, files
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.evaluation.p_true import P_TRUE, with_p_true
from pro_lib.generation.decoding.strategies import own_settings
from pro_lib.generation.stored_runs import stored_run
from pro_lib.labels.estimates import LabelledSplits, LabelSample
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.questions import question_sets
from pro_lib.runs.run import Run
from pro_lib.scoring.similarity import SIMILARITIES, Similarity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pro_lib import plots
    from pro_lib.generation.models import Model


class Experiment(Parameters):
    """Models, datasets and strategies, with the runs and evaluations made from them.

    An experiment takes the parameters of `Parameters`. A parameter that is wrong, or contradicts
    another, raises a `SentenceError` that names it. Answers that are not stored are generated when
    they are needed. The modules of `plots` make tables and figures from `splits()`.

    Example:
        experiment = Experiment(model="facts-2m", dataset="world-facts", n_answers=10)
        table = plots.fixed_k.table(experiment.splits())
        figure = plots.fixed_k.draw(table)
    """

    def __init__(self, *, notebook: str | None = None, **parameters: Any) -> None:
        """Check the parameters.

        Args:
            notebook: the shipped notebook that makes the experiment. Parameters that papermill has
                injected into it and that its parameters cell does not have are then used, too. If
                its user has changed parameters, its figures go to a folder of their own in
                `figures/custom/`, unless `figures_dir` is given.
            parameters: the parameters of `Parameters`, by name. `model` may also be a model that
                `load_model` returned, and `correctness` a function of texts and their references
                (`metrics.AnswerRules`).

        Raises:
            SentenceError: if a value is wrong, or contradicts another.
        """
        values = _with_model_names(parameters)
        original = default_values()
        if notebook is not None:
            values, original = notebook_values(notebook, values)
        changed = changed_values(values, original)
        parts = {name: value for name, value in changed.items() if not name.endswith("_dir")}
        has_own_folder = notebook and parts and values.get("figures_dir") is None
        if has_own_folder:
            values["figures_dir"] = catalog.HOME / "figures" / "custom" / files.folder_name(**parts)
        super().__init__(**values)
        self.check_contradictions(changed)
        _ = self._correctness  # an error in it is raised here
        if has_own_folder:
            print(f"Figures go to {self.figures_dir}")

    @cached_property
    def _correctness(self) -> Correctness:
        correctness = read_correctness(self.correctness, **self._values("convention", "distinct"))
        if correctness.log_metric and self.records is None:
            raise SentenceError(f"correctness={self.correctness!r} needs a log as records")
        return correctness

    @property
    def rules(self) -> AnswerRules:
        """The rules of an evaluation: which answers are right, and which probability each has.

        If `correctness` has labels of a sample, ROUGE-L judges the answers, and the labels are in
        `label_sample`.
        """
        return self._correctness.rules

    @property
    def label_sample(self) -> LabelSample | None:
        """The labels of a sample that `correctness` names; None for another rule or file."""
        return self._correctness.sample

    def pairs(self) -> list[tuple[str, str]]:
        """Return every (model, dataset), or those of the records.

        The pairs of one model follow each other, so that each model is loaded once.
        """
        if self.records is not None:
            return list(self.record_files())
        return list(product(as_list(self.model), as_list(self.dataset)))

    def pair(self) -> tuple[str, str]:
        """Return the model and the dataset of an experiment that has one of each.

        Raises:
            SentenceError: if there are several models, datasets or files of records.
        """
        pairs = self.pairs()
        if len(pairs) > 1:
            names = ("model", "dataset") if self.records is None else ("records",)
            name = next(name for name in names if len(as_list(getattr(self, name))) > 1)
            problem = f"has several values, but this notebook takes one {name}; give one"
            raise SentenceError(f"{name}={getattr(self, name)!r} {problem}")
        return pairs[0]

    def questions(self, dataset: str, *splits: str) -> question_sets.QuestionSet:
        """Return the questions of some splits.

        Without `splits`, these are the questions of `split`.

        If a question file has no validation split, `n_validation` of its questions become one.
        """
        source: dict[str, Any]
        if dataset in question_sets.NAMES:
            source = {"name": dataset}
        else:
            source = {"path": dataset, "n_validation": self.n_validation or 100}
            source |= self._values("columns", "strict")
        prompt = self._values("limit", "seed", "n_shots", "header", "template")
        return question_sets.load_questions(**source, split=splits or self.split, **prompt)

    def run(self, model: str, dataset: str, *splits: str, strategy: str | None = None) -> Run:
        """Return the run of the questions of some splits.

        Without `splits`, these are the questions of `split`.

        A run that is not stored is generated. With `records`, the run consists of the records of
        these splits, and the split `all` has every question. Records without splits are split at
        random into validation and test. `limit` applies to each split, as it does in question
        sets. `n_answers` keeps the first answers of each question, which are the most probable
        ones if the records list answers by probability.
        """
        if self.records is not None:
            records = self._records(model, dataset)
            return self._noted(select_records(self, records, splits or (self.split,)))
        questions = self.questions(dataset, *splits)
        name = strategy or self.strategy
        options = own_settings(name, vars(self)) | self._values("chat")
        options |= {"strategy": name, "out": self.generations_dir}
        run = None
        if not self.loading:
            known_model = self.loaded_models.get(model, model)
            loading = self._values("dtype", "device")
            run = stored_run(known_model, questions, **options, **loading)
        if run is None:
            from pro_lib import generation

            options |= self._values("batch_size", "engine", "n_workers")
            run = generation.generate(self.loaded(model), questions, **options)
        return self._noted(run)

    def run_of_both_splits(self, model: str, dataset: str, strategy: str | None = None) -> Run:
        """Return one run of the validation questions and those of `split`.

        Each question is generated once, even if `split` is the validation split.
        """
        return self.run(model, dataset, *self.both_split_names, strategy=strategy)

    @property
    def both_split_names(self) -> tuple[str, ...]:
        """The names of the validation split and of `split`, each once."""
        return tuple(dict.fromkeys(("validation", self.split)))

    def evaluations(
        self,
        model: str,
        dataset: str,
        *splits: str | None,
        methods: str = "own",
    ) -> list[list[Evaluation]]:
        """Return for each split its evaluations, one for each of `protocol`.

        Labels of a sample are the judgement of the reported splits. The validation questions are
        judged by ROUGE-L, because α is chosen without the labels.

        Args:
            model: a model of the experiment.
            dataset: a dataset of the experiment.
            splits: names of splits; None or `all` stands for all questions.
            methods: `own` evaluates the scores of the run's answers. `all` also evaluates methods
                that need samples, on the most probable answer of all runs.
        """
        options: dict[str, Any] = {"protocols": as_list(self.protocol), "rules": self.rules}
        answers = self.run_of_both_splits(model, dataset, self.strategy)
        if methods == "all":
            options["similarities"] = self.similarities(model, dataset)
            options["samples"] = answers
            options["others"] = []
            if not self.records:
                options["samples"] = self.run_of_both_splits(model, dataset, SAMPLES)
                options["others"] = [self.run_of_both_splits(model, dataset, GREEDY)]
            if P_TRUE in as_list(self.methods):
                answers = with_p_true(
                    answers,
                    options["samples"],
                    options["others"],
                    convention=self.convention,
                    model=self.loaded(model),
                    cache=self._cache_folder(model, dataset) / "p_true.jsonl",
                )
        evaluations = []
        for name in splits:
            split = None if name == "all" else name
            judged = evaluation.evaluations(answers, split=split, **options)
            if self.label_sample is not None and split != "validation":
                judged = [self.label_sample.with_labels(each) for each in judged]
            evaluations.append(judged)
        return evaluations

    def splits(self, methods: str = "own") -> list[Splits]:
        """Return the validation and the reported questions of every pair and protocol.

        Each call returns the same objects. `methods` is explained in `evaluations`.

        Raises:
            SentenceError: if `split` has the validation questions, on which α is chosen.
            OneClassError: if all answers of a reported split are correct, or all are wrong.
        """
        if self.split in ("validation", "all"):
            reason = "has the questions on which alpha is chosen; report on another split"
            raise SentenceError(f"split={self.split!r} {reason}")
        if methods not in self._known_splits:
            pairs = [self._splits_of(pair, methods) for pair in self.pairs()]
            self._known_splits[methods] = list(chain.from_iterable(pairs))
        return self._known_splits[methods]

    @cached_property
    def _known_splits(self) -> dict[str, list[Splits]]:
        return {}

    def _splits_of(self, pair: tuple[str, str], methods: str) -> list[Splits]:
        """Return the validation questions and the reported ones of one pair, by protocol."""
        options = self._values("n_validation", "seed", "alphas")
        both_splits = self.evaluations(*pair, "validation", self.split, methods=methods)
        splits = []
        for pool, reported in zip(*both_splits, strict=True):
            one_class = reported.without_labels().one_class()
            if one_class:
                raise metrics.OneClassError(f"{one_class}, so scores cannot be compared")
            # A method may be left out on the questions of one split only.
            both = pool.with_methods_of(reported), reported.with_methods_of(pool)
            splits.append(Splits(*both, **options))
        return splits

    def similarities(self, model: str, dataset: str) -> dict[str, Similarity | None]:
        """Return the similarities that decide whether answers mean the same, by name.

        The value of `alias` is None if the questions have no references.
        """
        similarities = {}
        for name in as_list(self.similarity):
            similarities[Path(name).name] = self._similarity(name, model, dataset)
        return similarities

    @cached_property
    def single_run(self) -> Run:
        """The run of the only model and dataset, for the questions of `split`."""
        return self.run(*self.pair())

    @cached_property
    def runs(self) -> list[Run]:
        """The run of every pair, for the questions of `split`.

        Runs that are not stored are generated.
        """
        return [self.run(*pair) for pair in self.pairs()]

    @cached_property
    def labelled_splits(self) -> list[LabelledSplits]:
        """The splits of every pair for all methods, with the labels of a sample.

        The labels are those of the file `correctness`; or those of the tab Label, in
        `generations_dir`; or the bundled example labels, if they are for these answers. Otherwise
        there are none.
        """
        labelled = []
        for pair in self.pairs():
            for splits in self._splits_of(pair, "all"):
                sample = self._label_sample_of(pair, splits.reported)
                labelled.append(LabelledSplits(splits, sample))
        return labelled

    @cached_property
    def reported_evaluations(self) -> list[Evaluation]:
        """The evaluations of `split`, for every pair and protocol."""
        evaluations = [self.evaluations(*pair, self.split)[0] for pair in self.pairs()]
        return list(chain.from_iterable(evaluations))

    def save(
        self,
        name: str,
        figure: Figure | None = None,
        table: pd.DataFrame | None = None,
        caption: str = "",
    ) -> plots.SavedFigure | pd.DataFrame:
        """Write a figure, its table and its caption to `figures_dir`, and return what to display.

        Files that would not change are kept as they are, as `plots.save_figure` explains. The
        folder's `made_from.json` gets the parameters, and digests of the files and runs.

        Args:
            name: the name of the files, which begins with the number of the notebook.
            figure: the figure, or None for a table without one.
            table: the numbers of the figure.
            caption: the caption, which a notebook shows below the figure.
        """
        from pro_lib import plots

        if table is None:
            raise SentenceError(f"save({name!r}) needs table=, the numbers that the figure shows")
        options: dict[str, Any] = {"figures_dir": self.figures_dir, "inputs": named_paths(self)}
        plots.save_figure(figure, table, name, caption=caption, **options)
        note_figure(name, self, self._digests, figures_dir=self.figures_dir)
        return table if figure is None else plots.SavedFigure(figure, caption)

    def label_path(self, run: Run) -> Path:
        """Return the label file of the tab Label, in the folder `labels` of the folder of runs.

        Its name has the number of questions, because a plan is for all answers of a run or of a
        part. It has no spaces, which a shell would divide.
        """
        name = f"{run.name}-{len(run.questions)}-questions".replace("/", "-").replace(" ", "_")
        return self.generations_dir / "labels" / f"{name}.labels.jsonl"

    def loaded(self, model: str) -> Model:
        """Return a model, loaded with `device`, `dtype` and `loading`, or the one in memory."""
        from pro_lib.generation import models

        if model in self.loaded_models:
            return self.loaded_models[model]
        try:
            return models.cached_model(
                model, **self._values("device", "dtype"), **(self.loading or {})
            )
        except FileNotFoundError as error:
            if self.loading and isinstance(error.__cause__, TypeError):
                raise SentenceError(
                    f"loading={self.loading!r} has an option that transformers does not accept "
                    f"for this model ({error.__cause__}); remove it"
                ) from error
            raise

    def _label_sample_of(self, pair: tuple[str, str], reported: Evaluation) -> LabelSample:
        """Return the labels of a pair; without any label if nobody has labelled its answers."""
        if self.label_sample is not None:
            return self.label_sample
        path = self.label_path(self.run(*pair))
        has_own_labels = path.exists()
        if not has_own_labels:
            path = catalog.EXAMPLE_LABELS
        sample = LabelSample.read(path)
        if not has_own_labels and not sample.covers(reported):
            return LabelSample.without_labels(reported)
        self._digests |= file_digests([path])
        return sample

    def _cache_folder(self, model: str, dataset: str) -> Path:
        """Return the folder of what models have said about the answers of a pair."""
        return self.generations_dir / dataset_label(dataset) / catalog.model_folder_name(model)

    @cached_property
    def _digests(self) -> dict[str, str]:
        """Digests of the files and runs that have been used, by their names."""
        return file_digests(path for path in named_paths(self) if path.is_file())

    def _records(self, model: str, dataset: str) -> Run:
        return read_records(self, model, dataset, log_metric=self._correctness.log_metric)

    def _noted(self, run: Run) -> Run:
        self._digests[run_name(run)] = run_digest(run)
        return run

    def _values(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def _similarity(self, name: str, model: str, dataset: str) -> Similarity | None:
        if name in SIMILARITIES and name not in ("alias", "nli"):
            return SIMILARITIES[name]
        if name == "alias":
            table = self._alias_questions(model, dataset)
            return scoring.Alias(table) if table["references"].notna().all() else None
        options: dict[str, Any] = {} if name == "nli" else {"model": name}
        device = None if self.device == "auto" else self.device
        return scoring.Nli(**options, device=device, cache=self._cache_folder(model, dataset))

    def _alias_questions(self, model: str, dataset: str) -> pd.DataFrame:
        """Return the questions whose references are aliases of each other."""
        if self.records is not None:
            return self._records(model, dataset).questions
        if dataset in question_sets.BUNDLED:
            # All splits, because a wrong answer is often the right one to another question.
            return question_sets.load_questions(dataset, split=None, n_shots=0).table
        return self.questions(dataset, "validation", self.split).table


def _with_model_names(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with the names of models that are in memory, and these by their names."""
    given = parameters.get("model")
    models: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    loaded = {model.name: model for model in models if hasattr(model, "tokenizer")}
    if not loaded:
        return parameters
    names = [getattr(model, "name", model) for model in models]
    return {**parameters, "model": names, "loaded_models": loaded}
