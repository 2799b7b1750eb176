"""The explorer as a widget: the page asks by messages, the kernel answers; draws nothing and computes no score."""

from pathlib import Path
from typing import Any

from pro_lib import runs
from pro_lib.app.ask import answer_question
from pro_lib.app.experiment import Experiment
from pro_lib.app.explorer.page import (
    JAVASCRIPT,
    STYLES,
    appendix_run,
    comparison_data,
    prefix_tree,
    run_data,
)
from pro_lib.app.parameters import SAMPLES, as_list
from pro_lib.common.catalog import bundled_models, fingerprint, locate, scope
from pro_lib.common.files import RunError
from pro_lib.common.validation import extra
from pro_lib.runs.run import Run

with extra("notebooks", "the explorer in a notebook"):
    import anywidget
    import traitlets

APPENDIX = "the paper's appendix"


class Explorer(anywidget.AnyWidget):
    """The explorer of a run: what is shown is `data`, the slider stands at `alpha`, and `runs` can be chosen."""

    _esm, _css = JAVASCRIPT, STYLES
    data = traitlets.Dict().tag(sync=True)
    alpha = traitlets.Float().tag(sync=True)
    runs = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, run: Run, experiment: Experiment):
        self._experiment = experiment
        folder = Path(experiment.generations_dir)
        name, folders = (
            f"{run.name} (this notebook)",
            sorted(path.parent for path in folder.rglob("run.json")),
        )
        stored = {path.relative_to(folder).as_posix(): path for path in folders}
        self._sources = {name: run, APPENDIX: appendix_run()} | stored
        super().__init__(alpha=experiment.alpha, runs=list(self._sources))
        self._choose(name)
        self.on_msg(lambda _, message, __: self.send(self._reply(message)))

    def _reply(self, message: dict) -> dict:
        """Return an answer to a message, or one sentence, for a traceback would land where nobody looks."""
        kinds: dict[str, Any] = {"run": self._choose, "ask": self._ask, "compare": self._compare}
        try:
            answer = kinds[message["kind"]](
                **{name: value for name, value in message.items() if name != "kind"}
            )
        except Exception as error:
            text = (
                str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            )
            return message | {"kind": "error", "of": message.get("kind"), "status": text}
        return answer | {"status": ""}

    def _choose(self, name: str) -> dict:
        chosen = self._sources[name]
        run = chosen if isinstance(chosen, Run) else runs.read_run(chosen)
        names = [*as_list(self._experiment.model), *bundled_models()]
        own = (
            name for name in names if Path(name).name == run.info.model and _is_model_of(run, name)
        )
        source = run.info.provenance.get("source")
        # What to load to ask the model; nothing where it is not known how it was asked.
        model: Any = next(own, source) if "shots" in run.info.parameters else None
        why = "" if model else f"{run.name} comes without a model to ask; choose another run"
        data = run_data(run, alpha=self._experiment.alpha)
        about = scope(run.info.model) if _is_model_of(run, run.info.model) else ""
        data |= {"label": name, "split": self._experiment.split, "cannot_ask": why, "scope": about}
        if (
            name == APPENDIX
        ):  # as the paper counts, so that the first example's PRO is the 0.404 it prints
            data |= {"alpha": 0.1, "repeats": True}
        self.data, self._run, self._model = data, run, model
        return {"kind": "run"}

    def _ask(self, question: str, search_alpha: float) -> dict:
        if self.data["cannot_ask"]:
            raise RunError(self.data["cannot_ask"])
        model, parameters = self._experiment.loaded(self._model), self._run.info.parameters
        run = answer_question(
            model,
            question,
            run_parameters=parameters,
            strategy="threshold",
            search_alpha=search_alpha,
        )
        tree = prefix_tree(run, model.decode).to_dict("records")
        return {"kind": "answer", "data": run_data(run, alpha=self._experiment.alpha), "tree": tree}

    def _compare(self, distinct: bool) -> dict:
        """Compare every method on the run, with stored samples of its questions where there are some."""
        folder = (
            Path(self._experiment.generations_dir) / self._run.info.dataset / self._run.info.model
        )
        try:
            # Those by default, if there
            samples = runs.read_run(min(folder.glob(f"{SAMPLES}*"), default=folder / SAMPLES))
            samples = samples.select(question_ids=list(self._run.questions["question_id"]))
        except RunError:
            samples = None
        return {"kind": "comparison"} | comparison_data(self._run, samples, distinct=distinct)


def _is_model_of(run: Run, name: str) -> bool:
    """Return whether a model is the run's, and not another of that name; one not stored here is taken to be."""
    source = Path(locate(name))
    return not source.exists() or fingerprint(source) == run.info.parameters.get("fingerprint")
