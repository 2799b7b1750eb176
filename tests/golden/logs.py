"""Write the logs in this folder: `python tests/golden/logs.py`, with inspect_ai and lm_eval.

The versions are inspect_ai 0.3.285 and lm_eval 0.4.13. Both packages ask a substitute for a model
two questions of this project, three times each. The logs do not contain the text of others.
"""

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from inspect_ai import Task, model
from inspect_ai import eval as inspect
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import includes
from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

FOLDER = Path(__file__).parent / "logs"
SAID = {
    "Capital of Peru?": [
        [("Li", -0.25), ("ma", -0.5)],
        [("Cusco", -2.0)],
        [("Li", -0.25), ("ma", -0.5)],
    ],
    "Capital of Chad?": [
        [("Sarh", -1.0)],
        [("N'", -0.5), ("Djamena", -0.125)],
        [("N'", -0.5), ("Djamena", -0.125)],
    ],
}
TARGETS = {"Capital of Peru?": ["Lima", "Ciudad de los Reyes"], "Capital of Chad?": ["N'Djamena"]}


def stand_in(name, *, with_log_probs):
    """Register a model of inspect_ai that says what is in `SAID`, one answer after the other."""
    turns = Counter()

    @model.modelapi(name=name)
    class StandIn(model.ModelAPI):
        async def generate(self, input, tools, tool_choice, config):
            tokens = SAID[input[-1].text][turns[input[-1].text]]
            turns[input[-1].text] += 1
            content = [
                model.Logprob(token=token, logprob=value, bytes=[*token.encode()])
                for token, value in tokens
            ]
            message = model.ChatMessageAssistant(content="".join(token for token, _ in tokens))
            numbers = {"logprobs": model.Logprobs(content=content)} if with_log_probs else {}
            choice = model.ChatCompletionChoice(message=message, stop_reason="stop", **numbers)
            return model.ModelOutput(
                model=name, choices=[choice], usage=model.ModelUsage(total_tokens=2)
            )


class Harness(LM):
    """The same of lm-evaluation-harness."""

    def generate_until(self, requests, disable_tqdm=False):
        turns, texts = Counter(), []
        for request in requests:
            question = request.args[0].removeprefix("Q: ").removesuffix("\nA:")
            texts.append("".join(token for token, _ in SAID[question][turns[question]]))
            turns[question] += 1
        return texts

    def loglikelihood(self, requests, disable_tqdm=False):
        values = {" Lima": -0.25, " Cusco": -2.0, " Sarh": -1.5, " N'Djamena": -0.75}
        return [(values[request.args[1]], request.args[1] == " Lima") for request in requests]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError


def make_inspect(folder):
    samples = [Sample(id=text[11:15].lower(), input=text, target=TARGETS[text]) for text in SAID]
    for name, with_log_probs in (("log_probs", True), ("texts", False)):
        stand_in(name, with_log_probs=with_log_probs)
        task = Task(
            dataset=MemoryDataset(samples, name="capitals"), scorer=includes(), name="capitals"
        )
        inspect(
            task,
            model=f"{name}/m",
            epochs=3,
            log_dir=str(folder / name),
            display="none",
            log_realtime=False,
        )
        shutil.copy(next((folder / name).glob("*.eval")), FOLDER / f"inspect_{name}.eval")


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
        make_inspect(Path(temporary))
        make_harness(Path(temporary))
