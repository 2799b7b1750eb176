import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from pro_lib import metrics
from pro_lib.base import bundled
from pro_lib.evaluation import Evaluation
from pro_lib.models import UnsupportedModelError
from pro_lib.settings import Settings
from pro_lib.storage import RunError


def test_a_setting_of_the_paper_is_found_under_our_names():
    ours = pd.DataFrame({"dataset": ["trivia_qa", "mine"], "model": ["gemma-2b", "gemma-2b"]})
    cells = bundled.paper("main_table", ours)
    assert set(zip(cells["dataset"], cells["model"], strict=True)) == {("trivia_qa", "gemma-2b")}
    assert cells.set_index("method")["auroc"]["PRO"] == 0.819
    assert len(bundled.paper("main_table")) == 120
    assert bundled.paper("main_table", pd.DataFrame({"dataset": ["world-facts"], "model": ["facts-2m"]})).empty


def test_the_alias_table_of_a_bundled_set_has_all_splits_and_records_without_references_have_none(tmp_path):
    similarities = Settings(similarity=["lexical", "alias"]).similarities("facts-2m", "world-facts")
    assert list(similarities) == ["lexical", "alias"]
    assert set(similarities["alias"].table["split"]) == {"train_shots", "validation", "test"}
    path = tmp_path / "answers.jsonl"
    path.write_text('{"question_id": 1, "answers": [{"log_prob": -1.0, "text": "yes", "correct": true}]}')
    assert Settings(similarity="alias", records=str(path)).similarities("records", "answers") == {"alias": None}


def test_an_nli_model_is_named_by_its_folder_and_keeps_its_pairs_beside_the_runs(tmp_path):
    (tmp_path / "my-nli").mkdir()
    settings = Settings(similarity=str(tmp_path / "my-nli"), generations_dir=tmp_path / "runs")
    measure = settings.similarities("facts-2m", "world-facts")["my-nli"]
    assert measure.cache == tmp_path / "runs" / "world-facts" / "facts-2m"
    assert (
        Settings(similarity="nli").similarities("facts-2m", "world-facts")["nli"].model
        == "microsoft/deberta-large-mnli"
    )


def test_one_name_or_several_are_always_a_list():
    assert Settings(model="facts-2m").models == ["facts-2m"]
    assert Settings(dataset=["world-facts", "world-facts-reworded"]).datasets == ["world-facts", "world-facts-reworded"]
    assert len(Settings(model=["facts-2m", "facts-1m"]).pairs()) == 2


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"model": []}, r"model=\[\] must be a name or a list of names"),
        ({"alpha": "0.4"}, r"alpha='0.4' must lie in \[0, 1\]"),
        ({"alpha": float("nan")}, r"alpha=nan must lie in \[0, 1\]"),
        ({"strategy": "beams"}, "strategy='beams' is unknown; choose greedy, multinomial, diverse_beam"),
        ({"n_answers": 2.5}, "n_answers=2.5 must be a positive whole number"),
        ({"columns": 3}, "columns=3 must be 1 or 2, the columns of a paper that a figure spans"),
        ({"batch_size": 0}, "batch_size=0 must be a positive whole number or None"),
        ({"split": "validation", "reported": True}, "split='validation' is where alpha is chosen"),
        (
            {"similarity": "nil"},
            "similarity='nil' is neither lexical, alias, nli, embedding, nor an NLI model's folder",
        ),
        ({"correctness": "rouge"}, "correctness='rouge' is neither rouge_l, exact_match, alias_match, nor a file"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings(**parameters)


def test_results_go_to_the_repository_wherever_a_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings, root = Settings(), Path(__file__).resolve().parents[1]
    assert (settings.generations_dir, settings.figures_dir) == (root / "data" / "generations", root / "figures")
    table = pd.DataFrame({"alpha": [0.4, 1 / 3], "model": ["a", "b"]})
    assert Settings(figures_dir="mine/figures").store(table, "chosen") is table
    assert (tmp_path / "mine" / "figures" / "chosen.csv").read_text() == "alpha,model\n0.4,a\n0.333333,b\n"


def test_a_stored_run_is_read_without_the_model_and_made_with_it(tmp_path, monkeypatch):
    settings = Settings(model="facts-1m", limit=6, n_answers=3, generations_dir=tmp_path, device="cpu")
    made = settings.run("facts-1m", "world-facts")
    monkeypatch.setattr(Settings, "loaded", lambda *_: pytest.fail("generated again"))
    read = settings.run("facts-1m", "world-facts")
    assert list(read.answers["text"]) == list(made.answers["text"])
    fewer = Settings(model="facts-1m", limit=6, n_answers=3, generations_dir=tmp_path, seed=0)
    assert len(fewer.run("facts-1m", "world-facts").questions) == 6
    # Who does not say how weights are to be quantised takes what is there; who does, gets that.
    quantised = Settings(model="facts-1m", limit=6, n_answers=3, generations_dir=tmp_path, quantization="8bit")
    with pytest.raises(pytest.fail.Exception, match="generated again"):
        quantised.run("facts-1m", "world-facts")


def test_another_number_of_answers_is_refused_by_name(tmp_path):
    options = {"model": "facts-1m", "limit": 3, "generations_dir": tmp_path, "device": "cpu"}
    Settings(n_answers=2, **options).run("facts-1m", "world-facts")
    with pytest.raises(RunError, match="was made with n_answers=2, now n_answers=3 is asked for"):
        Settings(n_answers=3, **options).run("facts-1m", "world-facts")


def test_a_question_file_beside_records_says_what_was_asked(tmp_path):
    questions = tmp_path / "mine.jsonl"
    questions.write_text("".join(json.dumps({"question": f"{n}?", "references": ["yes"]}) + "\n" for n in range(4)))
    choice = {"message": {"content": "yes"}, "finish_reason": "stop"}
    choice["logprobs"] = {"content": [{"token": "yes", "logprob": -0.5}]}
    path = tmp_path / "responses.jsonl"
    path.write_text("".join(json.dumps({"choices": [choice]}) + "\n" for _ in range(4)))
    run = Settings(records=str(path), dataset=str(questions)).run("records", "responses")
    assert list(run.questions["references"]) == [["yes"]] * 4
    assert Settings(records=str(path)).run("records", "responses").questions["references"].isna().all()


def test_the_papers_models_are_asked_for_by_name_and_kept_under_the_name_of_their_id(tmp_path):
    settings = Settings(model="Gemma-2B", similarity="nli", generations_dir=tmp_path)
    assert settings.similarities("Gemma-2B", "world-facts")["nli"].cache == tmp_path / "world-facts" / "gemma-2b"


def test_a_set_of_the_hub_and_a_file_are_datasets_too(tmp_path):
    assert Settings(dataset=["sciq", "nq", "trivia_qa"]).datasets == ["sciq", "nq", "trivia_qa"]
    path = tmp_path / "mine.csv"
    path.write_text("question,references\n" + "".join(f"Question {n}?,answer {n}\n" for n in range(8)))
    asked = Settings(dataset=str(path), n_validation=3, fraction=0.5, n_shots=1).questions(
        str(path), "validation", "test"
    )
    assert asked.table["split"].value_counts().to_dict() == {"validation": 2, "test": 2}
    assert len(asked.shots) == 1


def test_a_stored_run_in_a_chat_template_is_not_one_without(tmp_path):
    settings = Settings(model="facts-1m", limit=2, n_answers=2, generations_dir=tmp_path, device="cpu")
    settings.run("facts-1m", "world-facts")
    with pytest.raises(UnsupportedModelError, match="has no chat template"):
        replace(settings, chat=True).run("facts-1m", "world-facts")


def test_a_reported_split_of_one_class_is_refused_by_name():
    answers = pd.DataFrame({"question_id": list("abc"), "text": "no", "correct": False})
    baselines = pd.DataFrame({"NLL": [1.0, 2.0, 3.0]})
    used = metrics.usable(baselines, answers["correct"])
    wrong = Evaluation("none", "toy", "test", answers, -baselines.to_numpy(), baselines, used, ())
    with pytest.raises(metrics.OneClassError, match="toy, none, test: all 3 judged answers are wrong, so no score"):
        Settings(reported=True)._drawn(wrong)
    assert Settings()._drawn(wrong) is wrong
