import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from pro_lib import bundled, metrics, packs, store
from pro_lib.evaluation import Evaluation
from pro_lib.files import RunError
from pro_lib.generate import generate
from pro_lib.models import UnsupportedModelError
from pro_lib.settings import Settings
from pro_lib.store import RunFolder


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


def test_one_name_or_several_make_pairs():
    assert Settings(model="facts-2m").pairs() == [("facts-2m", "world-facts")]
    both = Settings(dataset=("world-facts", "world-facts-reworded")).pairs()
    assert both == [("facts-2m", "world-facts"), ("facts-2m", "world-facts-reworded")]
    assert len(Settings(model=["facts-2m", "facts-1m"]).pairs()) == 2


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"model": 5}, "^model=5 must be a name or a list of names$"),
        (
            {"model": "facts-2m/"},
            r"model='facts-2m/' is neither bundled \(facts-1m, facts-2m, facts-long\), nor one of the paper's",
        ),
        ({"dtype": "float"}, "dtype='float' "),
        ({"alhpa": 0.3}, "^alhpa is no parameter; the nearest is alpha$"),
        ({"stop": "."}, r"stop='\.' "),
        ({"model": []}, r"model=\[\] must be a name or a list of names"),
        ({"alpha": "0.4"}, r"alpha='0.4' "),
        ({"alpha": float("nan")}, r"alpha=nan "),
        ({"strategy": "beams"}, "strategy='beams' "),
        ({"n_answers": 2.5}, "n_answers=2.5 "),
        ({"columns": 3}, "columns=3 must be 1 or 2, the columns of a paper that a figure spans"),
        ({"batch_size": 0}, "batch_size=0 "),
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


def test_what_is_asked_otherwise_has_a_folder_of_its_own_and_is_found_there_again(tmp_path, monkeypatch):
    options = {"model": "facts-1m", "limit": 2, "generations_dir": tmp_path, "device": "cpu", "strategy": "multinomial"}
    asked = [{}, {"n_answers": 3, "seed": 5}, {"n_shots": 1}, {"temperature": 2, "stop": ["a"]}]
    made = [Settings(**options, **others).run("facts-1m", "world-facts") for others in asked]
    folders = {path.name for path in (tmp_path / "world-facts" / "facts-1m").iterdir()}
    stop = hashlib.sha256(b'["a"]').hexdigest()[:8]
    assert folders == {
        "multinomial",
        "multinomial,n_answers=3,seed=5",
        "multinomial,n_shots=1",
        f"multinomial,stop={stop},temperature=2",
    }
    monkeypatch.setattr(Settings, "loaded", lambda *_: pytest.fail("generated again"))
    for run, others in zip(made, asked, strict=True):
        assert_frame_equal(Settings(**options, **others).run("facts-1m", "world-facts").answers, run.answers)


def test_another_model_under_the_name_of_a_stored_run_is_refused_as_before(tmp_path, facts_2m):
    settings = Settings(limit=2, n_answers=2, generations_dir=tmp_path, device="cpu")
    settings.run("facts-2m", "world-facts")
    questions = settings.questions("world-facts", "test")
    other = replace(facts_2m, fingerprint="another")
    with pytest.raises(RunError, match="was made with fingerprint="):
        generate(other, questions, n_answers=2, out=tmp_path, progress=False)


def response(text, log_prob):
    """A line of a file of OpenAI's responses."""
    logprobs = {"content": [{"token": text, "logprob": log_prob}]}
    choice = {"message": {"content": text}, "finish_reason": "stop", "logprobs": logprobs}
    return json.dumps({"choices": [choice]})


def test_a_question_file_beside_records_says_what_was_asked(tmp_path):
    questions = tmp_path / "mine.jsonl"
    questions.write_text("".join(json.dumps({"question": f"{n}?", "references": ["yes"]}) + "\n" for n in range(4)))
    path = tmp_path / "responses.jsonl"
    path.write_text("".join(response("yes", -0.5) + "\n" for _ in range(4)))
    run = Settings(records=str(path), dataset=str(questions)).run("records", "responses")
    assert list(run.questions["references"]) == [["yes"]] * 4
    assert Settings(records=str(path)).run("records", "responses").questions["references"].isna().all()


def test_the_papers_models_are_asked_for_by_name_and_kept_under_the_name_of_their_id(tmp_path):
    settings = Settings(model="Gemma-2B", similarity="nli", generations_dir=tmp_path)
    assert settings.similarities("Gemma-2B", "world-facts")["nli"].cache == tmp_path / "world-facts" / "gemma-2b"


def test_a_set_of_the_hub_and_a_file_are_datasets_too(tmp_path):
    assert [name for _, name in Settings(dataset=["sciq", "nq", "trivia_qa"]).pairs()] == ["sciq", "nq", "trivia_qa"]
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
        Settings(reported=True)._reportable(wrong)
    assert Settings()._reportable(wrong) is wrong


def declared(**parameters):
    """The cells of a notebook with these parameters."""
    return ["\n".join(f"{name}: object = {value!r}" for name, value in ({"model": "facts-1m"} | parameters).items())]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("device", "cuda:99", "device='cuda:99' is no device that this torch sees; choose cpu or auto"),
        ("figures_dir", "{here}/file/in", "figures_dir='{here}/file/in' cannot be written: Not a directory"),
        ("generations_dir", "{here}/file/in", "generations_dir='{here}/file/in' cannot be written: Not a directory"),
        ("similarity", "nli", "NLI model 'microsoft/deberta-large-mnli' could not be loaded: "),
        ("similarity", "nobody/nli", "NLI model 'nobody/nli' could not be loaded: "),
        ("correctness", "{here}/labels.csv", "{here}/labels.csv, line 2: correct is missing"),
    ],
)
def test_what_this_machine_cannot_do_is_said_with_the_parameters_before_anything_is_made(tmp_path, name, value, said):
    (tmp_path / "file").touch()
    (tmp_path / "labels.csv").write_text("question_id,text\n1,yes\n")
    given = {"generations_dir": str(tmp_path / "runs"), name: value.format(here=tmp_path)}
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the sentence is asserted below)
        Settings.from_notebook(declared(**given))
    assert str(raised.value).startswith(said.format(here=tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "labels.csv"]


def test_runs_that_are_there_may_lie_where_nothing_can_be_written(tmp_path, monkeypatch):
    folder = tmp_path / "runs"
    refused = {folder}

    def check(path, name):
        if path in refused:
            raise PermissionError(name)

    monkeypatch.setattr("pro_lib.checks.check_writable", check)
    given = declared(generations_dir=str(folder))
    with pytest.raises(PermissionError, match="generations_dir"):
        Settings.from_notebook(given)
    (folder / "world-facts" / "facts-1m" / "greedy").mkdir(parents=True)
    (folder / "world-facts" / "facts-1m" / "greedy" / "run.json").touch()
    assert Settings.from_notebook(given).generations_dir == folder


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("multinomial", {"temperature": 0.7}),
        ("multinomial", {"top_p": 0.8}),
        ("diverse_beam", {"diversity_penalty": 0.5}),
        ("greedy", {"max_new_tokens": 3}),
        ("greedy", {"stop": ("a",)}),
    ],
)
def test_what_decides_the_answers_reaches_the_strategy_and_the_identity_of_the_run(name, parameters, tmp_path):
    ((parameter, value),) = parameters.items()
    options = {"limit": 2, "n_answers": 2, "strategy": name, "generations_dir": tmp_path, "device": "cpu"}
    run = Settings(**options, **parameters).run("facts-1m", "world-facts")
    stored = run.info.parameters[parameter]
    assert stored == (list(value) if parameter == "stop" else value)
    others = Settings(**options).run("facts-1m", "world-facts")  # in a folder of their own
    assert store.difference(run.info.parameters, others.info.parameters).startswith(f"{parameter}=")


def test_entropies_are_estimated_from_as_many_questions_and_draws_as_asked(tmp_path):
    entropy = {"entropy_questions": 1, "entropy_draws": 3}
    settings = Settings(limit=2, generations_dir=tmp_path, device="cpu", **entropy)
    run = settings.remainders("facts-1m", "world-facts")
    assert run.questions["remainder_draws"].str.len().tolist() == [3]


class Killed(BaseException):
    pass


@pytest.mark.filterwarnings("ignore:.* of the 6 questions planned")
@pytest.mark.parametrize("kills", [(0,), (1,), (0, 1), (1, 1)])
def test_a_run_killed_in_any_part_goes_on_to_the_tables_of_an_unbroken_one(tmp_path, monkeypatch, kills):
    """As a notebook asks for it; the parts that each life of the run leaves are counted in `kills`."""
    monkeypatch.setattr("pro_lib.generate.QUESTIONS_PER_PART", 2)
    options = {"limit": 6, "n_answers": 2, "batch_size": 2, "device": "cpu"}
    whole = Settings(generations_dir=tmp_path / "whole", **options).run("facts-1m", "world-facts")
    settings, write = Settings(generations_dir=tmp_path / "killed", **options), RunFolder.write_part
    for survivors in kills:
        left = iter(range(survivors))

        def dies(self, *part, left=left):
            if next(left, None) is None:
                raise Killed
            write(self, *part)

        monkeypatch.setattr(RunFolder, "write_part", dies)
        with pytest.raises(Killed):
            settings.run("facts-1m", "world-facts")
    monkeypatch.setattr(RunFolder, "write_part", write)
    run = settings.run("facts-1m", "world-facts")
    assert_frame_equal(run.answers, whole.answers, check_exact=True)
    assert_frame_equal(run.questions, whole.questions, check_exact=True)


def test_the_only_part_of_a_run_is_made_again_when_it_is_deleted_as_told(tmp_path):
    settings = Settings(limit=2, n_answers=2, generations_dir=tmp_path, device="cpu")
    whole = settings.run("facts-1m", "world-facts")
    (part,) = tmp_path.glob("*/*/*/part-*.parquet")
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(RunError, match="delete it to make the part again"):
        settings.run("facts-1m", "world-facts")
    part.unlink()
    assert_frame_equal(settings.run("facts-1m", "world-facts").answers, whole.answers, check_exact=True)


def test_without_git_a_run_says_that_it_knows_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packs, "_software", packs._software.__wrapped__)  # what was looked up before is kept
    settings = Settings(limit=2, n_answers=2, generations_dir=tmp_path, device="cpu")
    assert settings.run("facts-1m", "world-facts").info.provenance["commit"] is None


@pytest.mark.filterwarnings("ignore:.* are taken for one")
def test_records_are_split_though_the_questions_beside_them_are_not(tmp_path):
    """A file without a split column is one test split; the records then say no split, and one is drawn."""
    questions, path = tmp_path / "mine.jsonl", tmp_path / "responses.jsonl"
    row = json.dumps({"question": "Is it?", "references": ["yes"]}) + "\n"
    questions.write_text("".join(row.replace("it", f"it {n}") for n in range(202)))
    path.write_text("".join(response(("yes", "no")[n % 2], -0.1 * (n % 3)) + "\n" for n in range(202)))
    settings = Settings(records=str(path), dataset=str(questions))
    sizes = [len(each.correct) for each in settings.judged(*settings.pairs()[0], "validation", "test")]
    assert sizes[0] == 101
    assert sizes[1] in (101, 102)


def test_records_without_splits_choose_alpha_on_as_many_as_asked_for_and_can_be_redrawn(tmp_path):
    lines = [
        json.dumps({"question_id": n, "answers": [{"log_prob": -1.0 - n / 100, "correct": n % 3 > 0}]})
        for n in range(90)
    ]
    (tmp_path / "answers.jsonl").write_text("\n".join(lines))
    for n_validation, pool, chosen in [(8, 40, 8), (None, 45, 45)]:
        settings = Settings(records=str(tmp_path / "answers.jsonl"), n_validation=n_validation)
        splits, _ = settings.splits(settings.judged)
        sizes = len(splits.pool.correct), len(splits.validation.correct), len(splits.reported.correct)
        assert sizes == (pool, chosen, 90 - pool)
