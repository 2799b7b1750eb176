"""Write the logs in this folder: `python tests/golden/logs.py`, with lm_eval 0.4.13.

The package asks a substitute for a model two questions of this project, three times each. The logs
do not contain the text of others.
"""

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

FOLDER = Path(__file__).parent / "logs"
SAID = {
    "Capital of Peru?": ["Lima", "Cusco", "Lima"],
    "Capital of Chad?": ["Sarh", "N'Djamena", "N'Djamena"],
}


class Harness(LM):
    """A model that says what is in `SAID`, one answer after the other."""

    def generate_until(self, requests, disable_tqdm=False):
        turns, texts = Counter(), []
        for request in requests:
            question = request.args[0].removeprefix("Q: ").removesuffix("\nA:")
            texts.append(SAID[question][turns[question]])
            turns[question] += 1
        return texts

    def loglikelihood(self, requests, disable_tqdm=False):
        values = {" Lima": -0.25, " Cusco": -2.0, " Sarh": -1.5, " N'Djamena": -0.75}
        return [(values[request.args[1]], request.args[1] == " Lima") for request in requests]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError


def make_harness(folder):
    rows = [
        {"question": "Capital of Peru?", "answer": "Lima", "choices": ["Lima", "Cusco"], "label": 0}
    ]
    rows += [
        {
            "question": "Capital of Chad?",
            "answer": "N'Djamena",
            "choices": ["Sarh", "N'Djamena"],
            "label": 1,
        }
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}},
    }
    common |= {"test_split": "test", "doc_to_text": "Q: {{question}}\nA:"}
    texts = {
        "output_type": "generate_until",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "exact_match"}],
    }
    texts |= {"generation_kwargs": {"until": ["\n"]}}
    names = {"first": ["take_first"], "most": ["majority_vote", "take_first"]}
    filters = [
        {"name": name, "filter": [{"function": part} for part in parts]}
        for name, parts in names.items()
    ]
    choices = {
        "output_type": "multiple_choice",
        "doc_to_target": "label",
        "metric_list": [{"metric": "acc"}],
    }
    tasks = {"texts": texts, "samples": texts | {"repeats": 3, "filter_list": filters}}
    tasks["choices"] = choices | {"doc_to_choice": "choices"}
    tracker = EvaluationTracker(output_path=str(folder))
    for name, task in tasks.items():
        config, manager = {"task": name} | common | task, TaskManager(include_defaults=False)
        results = simple_evaluate(
            Harness(), tasks=[config], task_manager=manager, log_samples=True, bootstrap_iters=0
        )
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        tracker.save_results_samples(task_name=name, samples=samples[name])
        shutil.copy(next(folder.rglob(f"samples_{name}_*.jsonl")), FOLDER / f"lm_eval_{name}.jsonl")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        make_harness(Path(temporary))
