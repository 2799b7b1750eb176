"""The explorer as a widget: the page asks by messages, the kernel answers; draws nothing and computes no score."""

import warnings
from pathlib import Path

import anywidget
import traitlets

from pro_lib import asking, runs
from pro_lib import questions as question_sets
from pro_lib.bundled import bundled_models
from pro_lib.explorer.data import appendix_run, compared, run_data, stored_runs
from pro_lib.explorer.page import JAVASCRIPT, STYLES
from pro_lib.explorer.tree import prefix_tree
from pro_lib.files import RunError
from pro_lib.parameters import SAMPLES, listed
from pro_lib.runs import Run
from pro_lib.settings import Settings

_PAPER = "the paper's appendix"


class Explorer(anywidget.AnyWidget):
    """The widget of `explore`. What is shown is `data`, the slider stands at `alpha`, and `runs` can be chosen."""

    _esm, _css = JAVASCRIPT, STYLES
    data = traitlets.Dict().tag(sync=True)
    alpha = traitlets.Float().tag(sync=True)
    runs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    paper = traitlets.Unicode(_PAPER).tag(sync=True)

    def __init__(self, run: Run, settings: Settings):
        self._settings, self._run = settings, run
        self._known = {f"{run.name} (this notebook)": run, _PAPER: appendix_run()}
        self._known |= stored_runs(settings.generations_dir)
        name = next(iter(self._known))
        super().__init__(data=self._data(name, run), alpha=settings.alpha, runs=list(self._known))
        self.on_msg(lambda _, message, __: self.send(self._answered(message)))

    def __repr__(self) -> str:  # what a viewer without a kernel shows
        return f"The explorer of {self._run.name}: run the cell, or write a page with explorer.to_html(run, 'run.html')"

    def _answered(self, message: dict) -> dict:
        """What is said to a message: an answer or one sentence, for a traceback would land where nobody looks."""
        kinds = {"run": self._choose, "ask": self._ask, "compare": self._compare}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            try:
                answer = kinds[message["kind"]](**{name: value for name, value in message.items() if name != "kind"})
            except Exception as error:
                text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                return message | {"kind": "error", "of": message.get("kind"), "status": text}
        # A violated premise is said question by question; what else there is, is said here.
        said = {str(warning.message): None for warning in caught if warning.category is UserWarning}
        return answer | {"status": " ".join(said)}

    def _data(self, name: str, run: Run) -> dict:
        cannot_ask = None if self._asked_by(run) else f"{run.name} comes without a model to ask; choose another run"
        how = {"alpha": self._settings.alpha, "split": self._settings.split}
        return run_data(run, **how, label=name, cannot_ask=cannot_ask)

    def _choose(self, name: str) -> dict:
        known = self._known[name]
        run = known if isinstance(known, Run) else runs.read(known)
        self.data, self._run = self._data(name, run), run
        return {"kind": "run"}

    def _ask(self, question: str, search_alpha: float) -> dict:
        if self.data["cannot_ask"]:
            raise RunError(self.data["cannot_ask"])
        model, parameters = self._settings.loaded(self._asked_by(self._run)), self._run.info.parameters
        questions = question_sets.like(parameters, name=self._run.info.dataset)
        how = {"strategy": "threshold", "search_alpha": search_alpha}
        run = asking.answered(model, question, questions=questions, like=parameters, **how)
        tree = prefix_tree(run, model.decode).to_dict("records")
        return {"kind": "asked", "data": run_data(run, alpha=self._settings.alpha), "tree": tree}

    def _compare(self, distinct: bool) -> dict:
        """Every method on the run, with stored samples of its questions where there are some."""
        info = self._run.info
        try:
            folder = Path(self._settings.generations_dir) / info.dataset / info.model
            samples = runs.read(min(folder.glob(f"{SAMPLES}*"), default=folder / SAMPLES))  # those by default, if there
            samples = samples.select(question_ids=list(self._run.questions["question_id"]))
        except RunError:
            samples = None
        return {"kind": "compared"} | compared(self._run, samples, distinct=distinct)

    def _asked_by(self, run: Run) -> str | None:
        """What to load to ask the model of a run; None where it was not said how it was asked."""
        named = [name for name in listed(self._settings.model) if Path(name).name == run.info.model]
        source = run.info.model if run.info.model in bundled_models() else run.info.provenance.get("source")
        return (*named, source)[0] if "shots" in run.info.parameters else None
