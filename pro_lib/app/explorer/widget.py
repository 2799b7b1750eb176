"""The explorer as a widget: the page sends messages, and the kernel replies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pro_lib import runs
from pro_lib.app.experiment import Experiment
from pro_lib.app.explorer.data import appendix_run, comparison_data, run_data
from pro_lib.app.explorer.page_parts import STYLES, error_reply, read_javascript
from pro_lib.app.explorer.search_tree import prefix_tree
from pro_lib.app.parameters import SAMPLES, as_list
from pro_lib.app.single_question import answer_question
from pro_lib.common.catalog import bundled_models, fingerprint, locate, scope
from pro_lib.common.files import RunError
from pro_lib.common.validation import extra
from pro_lib.labels.session import LabelSession, labelled_part
from pro_lib.runs.run import Run

with extra("notebooks", "the explorer in a notebook"):
    import anywidget
    import traitlets
    from IPython.display import display

_APPENDIX = "the paper's appendix"
_FIRST_QUESTION = "person_birth_year/leo_tolstoy"  # a well-known one of world-facts


class Explorer(anywidget.AnyWidget):
    """The explorer of a run in a notebook.

    Attributes:
        data: the run that is shown, as `run_data` returns it.
        alpha: where the slider stands.
        runs: the names of the runs that can be chosen.
    """

    _esm = read_javascript()
    _css = STYLES
    data = traitlets.Dict().tag(sync=True)
    alpha = traitlets.Float().tag(sync=True)
    runs = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, run: Run | None, experiment: Experiment) -> None:
        """Show a run.

        Args:
            run: the run that is shown first; None to show a sentence until `show_run` is called.
            experiment: its parameters `alpha` and `split` decide what is shown first, its folder
                `generations_dir` has the runs that can be chosen, and it loads models.
        """
        self._experiment = experiment
        super().__init__(alpha=experiment.alpha)
        if run is not None:
            self.show_run(run)
        self.on_msg(lambda _widget, message, _buffers: self.send(self._reply(message)))

    def show_run(self, run: Run) -> None:
        """Show a run, and offer the runs that are stored and the paper's appendix."""
        name = f"{run.name} (this notebook)"
        self._sources: dict[str, Run | Path] = {name: run, _APPENDIX: appendix_run()}
        self._sources |= _stored_runs(Path(self._experiment.generations_dir))
        self.runs = list(self._sources)
        self._choose(name)

    def _reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a message of the page, whose kind is the name of a function."""
        functions: dict[str, Any] = {
            "run": self._choose,
            "ask": self._ask,
            "compare": self._compare,
            "label": self._label,
        }
        arguments = {name: value for name, value in message.items() if name != "kind"}
        try:
            return functions[message["kind"]](**arguments) | {"status": ""}
        except Exception as error:
            return message | error_reply(str(message.get("kind")), error)

    def _choose(self, name: str) -> dict[str, Any]:
        """Show the run of this name."""
        source = self._sources[name]
        run = source if isinstance(source, Run) else runs.read_run(source)
        model = self._find_model(run)
        reason = "" if model else f"{run.name} comes without a model to ask; choose another run"
        data = run_data(run, alpha=self._experiment.alpha)
        data |= {
            "label": name,
            "split": self._experiment.split,
            "cannot_ask": reason,
            "scope": scope(run.info.model) if _is_model_of(run, run.info.model) else "",
        }
        if name == _APPENDIX:
            # As the paper counts, so that PRO of the first example is the 0.404 that it prints.
            data |= {"alpha": 0.1, "repeats": True}
        self.data = data
        self._run = run
        self._model = model
        self._label_session: LabelSession | None = None
        return {"kind": "run"}

    def _find_model(self, run: Run) -> Any:
        """Return the name or folder of a run's model, or None if the run has no stored prompt."""
        if "shots" not in run.info.parameters:
            return None
        for name in [*as_list(self._experiment.model), *bundled_models()]:
            if Path(name).name == run.info.model and _is_model_of(run, name):
                return name
        return run.info.provenance.get("source")

    def _ask(self, question: str, search_alpha: float) -> dict[str, Any]:
        """Answer a question by exact search, with the prompt of the run that is shown."""
        if self.data["cannot_ask"]:
            raise RunError(self.data["cannot_ask"])
        model = self._experiment.loaded(self._model)
        run = answer_question(
            model,
            question,
            run_parameters=self._run.info.parameters,
            strategy="threshold",
            search_alpha=search_alpha,
        )
        tree = prefix_tree(run, model.decode).to_dict("records")
        return {"kind": "answer", "data": run_data(run, alpha=self._experiment.alpha), "tree": tree}

    def _compare(self, distinct: bool) -> dict[str, Any]:
        """Compare every method on the run, with stored samples if there are any."""
        alpha = self._experiment.alpha
        samples = self._stored_samples()
        comparison = comparison_data(self._run, samples, alpha=alpha, distinct=distinct)
        return {"kind": "comparison"} | comparison

    def _label(self, **message: Any) -> dict[str, Any]:
        """Label the answers of the run that is shown; the label file is in `generations_dir`."""
        if self._label_session is None:
            split = self._experiment.split
            path = self._experiment.label_path(labelled_part(self._run, split))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._label_session = LabelSession.open(self._run, path, split=split)
        return self._label_session.reply(**message)

    def _stored_samples(self) -> Run | None:
        """Return the samples of the run's questions, or None if they are not stored."""
        info = self._run.info
        folder = Path(self._experiment.generations_dir) / info.dataset / info.model
        # The first of these folders by name has the samples with default settings.
        sample_folder = min(folder.glob(f"{SAMPLES}*"), default=folder / SAMPLES)
        try:
            return runs.read_run(sample_folder, questions=self._run.questions)
        except RunError:
            return None


def show(experiment: Experiment, *, alpha: float | None = None) -> None:
    """Display the explorer of an experiment's run in a notebook, and keep it in view.

    It is displayed before the answers are generated, so that their progress is below it.

    Args:
        experiment: has the model, the dataset and the parameters.
        alpha: where the slider stands first; None for the α of the experiment.
    """
    start = experiment if alpha is None else replace(experiment, alpha=alpha)
    explorer = Explorer(None, start)
    display(explorer)
    try:
        run = experiment.run_of_both_splits(*experiment.pair())
        explorer.show_run(_shuffled(run, experiment.seed))
    except BaseException:
        explorer.close()  # the error stands below it
        raise


def _shuffled(run: Run, seed: int) -> Run:
    """Return a run with its questions, which are ordered by topic, in random order."""
    ids = run.questions["question_id"].to_numpy(object)
    shuffled = np.random.default_rng(seed).permutation(ids)
    return run.select(question_ids=sorted(shuffled, key=lambda name: name != _FIRST_QUESTION))


def _stored_runs(folder: Path) -> dict[str, Path]:
    """Return the run folders below a folder, by their relative paths."""
    run_folders = sorted(path.parent for path in folder.rglob("run.json"))
    return {path.relative_to(folder).as_posix(): path for path in run_folders}


def _is_model_of(run: Run, name: str) -> bool:
    """Return whether a model is the one that made a run, and not another with its name.

    The result is True for a model that is not stored on this machine.
    """
    source = Path(locate(name))
    return not source.exists() or fingerprint(source) == run.info.parameters.get("fingerprint")
