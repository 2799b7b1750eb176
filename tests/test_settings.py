"""The parameters of a notebook, and what they ask for: questions, runs, evaluations."""

import json
import re
from dataclasses import replace

import pandas as pd
import pytest
from conftest import ROOT
from pandas.testing import assert_frame_equal

from pro_lib import metrics, models, store
from pro_lib.checks import SentenceError
from pro_lib.settings import Settings

SMALL = {"model": "facts-1m", "limit": 4, "n_answers": 3, "device": "cpu"}
PAIR = ("facts-1m", "world-facts")


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def judged(n, *, right=lambda n: n % 3 > 0):
    """Records of n questions whose answers are right or wrong as said."""
    answers = ([{"log_prob": -1.0 - k / 100, "text": f"{k}", "correct": right(k)}] for k in range(n))
    return [{"question_id": k, "answers": one} for k, one in enumerate(answers)]


WRONG = {"model": 5, "dataset": "world-fact", "split": "tset", "strategy": "beams", "protocol": "papers"}
WRONG |= {"convention": "all", "alphas": [2.0], "alpha": float("nan"), "target": [1.5], "search_alpha": 0, "columns": 3}
WRONG |= {"n_answers": 2.5, "temperature": 0, "stop": ".", "limit": 0, "seed": -1, "batch_size": 0, "dtype": "float"}
WRONG |= {"engine": "spark", "similarity": "nil", "correctness": "rouge", "records": "nowhere.jsonl"}
TOGETHER = [{"split": "validation", "reported": True}, {"alpha": 0.01, "strategy": "threshold"}, {"model": []}]


@pytest.mark.parametrize("values", [*({name: value} for name, value in WRONG.items()), *TOGETHER], ids=str)
def test_a_parameter_that_cannot_be_is_one_sentence_that_names_it_and_its_value(values):
    (name, value), *_ = values.items()
    shown = repr(value[0] if name in ("alphas", "target") else value)
    with pytest.raises(ValueError, match=rf"^{name}(\[0\])?={re.escape(shown)} [^\n]*$"):
        Settings(**values).pairs()


def test_one_name_or_several_make_pairs_and_records_their_own(tmp_path):
    both = Settings(model=["facts-2m", "facts-1m"], dataset=("world-facts", "nq")).pairs()
    assert both == [(m, d) for m in ("facts-2m", "facts-1m") for d in ("world-facts", "nq")]
    assert len(Settings(records=written(tmp_path / "mine.jsonl", judged(2))).pairs()) == 1


CELL = 'model: str = "facts-1m"  # a model\nalpha: float = 0.4  # the default α'


def notebook(*cells, **constants):
    """What `Settings.of(globals(), ...)` returns in a notebook whose cells so far are these."""
    names = {"In": ["", *cells]}
    for cell in cells:
        exec(cell, names)
    return Settings.of(names, **constants)


def test_what_is_declared_or_injected_counts_and_nothing_else_that_a_cell_leaves():
    made = notebook("seed = 7\nlimit = 3", CELL, "n_answers = 2")
    assert (made.model, made.alpha, made.seed, made.limit, made.n_answers) == ("facts-1m", 0.4, 0, None, 10)
    made = notebook(CELL, "# Parameters\nalpha = 0.3\nbatch_size = 8\n")
    assert (made.alpha, made.batch_size) == (0.3, 8)
    made = notebook(CELL, "# Parameters\nalpha = 0.3\n", CELL.replace("0.4", "0.2"))
    assert made.alpha == 0.2  # the latest parameters cell counts
    assert notebook(CELL, strategy="threshold", reported=True).strategy == "threshold"
    with pytest.raises(SentenceError, match=r"^alhpa is no parameter; the nearest is alpha$"):
        notebook(CELL, "# Parameters\nalhpa = 0.3\n")


FOLDERS = [({"alpha": 0.3, "limit": 200}, "alpha=0.3,limit=200"), ({"seed": 0, "generations_dir": "runs"}, None)]


@pytest.mark.parametrize(("given", "name"), [*FOLDERS, ({"model": ["facts-2m", "facts-1m"], "stop": []}, None)])
def test_figures_of_other_values_have_a_folder_of_their_own(given, name, capsys, tmp_path):
    injected = "# Parameters\n" + "".join(f"{key} = {value!r}\n" for key, value in given.items())
    cell = CELL.replace("facts-1m", "facts-2m")
    folder = ROOT / "figures" / "other" / name if name else ROOT / "figures"
    assert notebook(cell, injected).figures_dir == folder
    assert capsys.readouterr().out == (f"Figures go to {folder}\n" if name else "")
    assert notebook(cell, f"{injected}figures_dir = {str(tmp_path)!r}\n").figures_dir == tmp_path


def test_labels_that_cannot_be_read_end_a_notebook_before_anything_is_made(tmp_path):
    (labels := tmp_path / "labels.csv").write_text("question_id,text\n1,yes\n")
    injected = f"# Parameters\ngenerations_dir = {str(tmp_path / 'runs')!r}\ncorrectness = {str(labels)!r}\n"
    with pytest.raises(ValueError, match=f"^{re.escape(str(labels))}, line 2: correct"):
        notebook(CELL, injected)
    assert list(tmp_path.iterdir()) == [labels]


def test_a_run_is_made_once_and_read_without_the_model(tmp_path, monkeypatch):
    settings = Settings(**SMALL, generations_dir=tmp_path)
    whole = settings.both_splits(*PAIR)
    monkeypatch.setattr(models, "held", None)
    assert_frame_equal(settings.both_splits(*PAIR).answers, whole.answers)
    assert set(settings.run(*PAIR).questions["split"]) == {"test"}
    for more in ({"limit": 5}, {"dtype": "bfloat16"}):
        with pytest.raises(TypeError, match="'NoneType' object is not callable"):  # the model is asked
            replace(settings, **more).run(*PAIR)


APART = [("multinomial", "temperature", 0.7), ("greedy", "n_shots", 1), ("threshold", "search_alpha", 0.1)]


@pytest.mark.parametrize(("strategy", "name", "value"), APART)
def test_what_decides_the_answers_has_a_folder_where_it_is_found(strategy, name, value, tmp_path, monkeypatch):
    usual = Settings(model="facts-1m", limit=2, strategy=strategy, generations_dir=tmp_path, device="cpu")
    other = replace(usual, **{name: value})
    runs = [settings.run(*PAIR) for settings in (usual, other)]
    folders = sorted(path.name for path in (tmp_path / "world-facts" / "facts-1m").iterdir())
    assert [folder.partition("=")[0] for folder in folders] == [strategy, f"{strategy},{name}"]
    assert store.difference(*(run.info.parameters for run in runs)) is not None
    monkeypatch.setattr(models, "held", None)
    assert_frame_equal(other.run(*PAIR).answers, runs[1].answers)


@pytest.mark.parametrize(("n_validation", "pool", "chosen"), [(8, 40, 8), (None, 45, 45)])
def test_records_without_splits_are_split_once_for_each_protocol(n_validation, pool, chosen, tmp_path):
    settings = Settings(records=written(tmp_path / "mine.jsonl", judged(90)), n_validation=n_validation)
    splits = settings.splits()
    assert [one.reported.protocol.split(", ")[0] for one in splits] == ["paper", "workbench"]
    for one in splits:
        sizes = [len(part.correct) for part in (one.pool, one.validation, one.reported)]
        assert sizes == [pool, chosen, 90 - pool]


def test_splits_of_all_methods_read_beams_samples_and_greedy_answers(tmp_path):
    settings = Settings(**SMALL | {"limit": 30}, generations_dir=tmp_path, n_validation=None)
    own, every = settings.splits(), settings.splits(methods="all")
    assert "SE, lexical" not in own[0].reported.baselines
    assert {"NLL", "PE", "NE", "SE, lexical", "Deg, lexical"} <= {*every[0].reported.baselines}
    assert {path.name.split(",")[0] for path in tmp_path.glob("*/*/*")} == {"diverse_beam", "multinomial", "greedy"}


def test_a_question_file_beside_records_says_what_was_asked(tmp_path):
    rows = [{"question_id": f"q{n}", "question": f"{n}?", "references": ["yes"]} for n in range(4)]
    content = {"content": [{"token": "yes", "logprob": -0.5}]}
    response = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop", "logprobs": content}]}
    records = written(tmp_path / "responses.jsonl", [{"question_id": f"q{n}", "response": response} for n in range(4)])
    bare = Settings(records=records)
    assert bare.run(*bare.pairs()[0]).questions["references"].isna().all()
    beside = Settings(records=records, dataset=written(tmp_path / "mine.jsonl", rows))
    assert list(beside.run(*beside.pairs()[0]).questions["references"]) == [["yes"]] * 4
    assert Settings(similarity="alias", records=records).similarities(*bare.pairs()[0]) == {"alias": None}


def test_a_reported_split_of_one_class_is_refused_by_name(tmp_path):
    path = written(tmp_path / "mine.jsonl", judged(90, right=lambda _: False))
    settings = Settings(records=path, n_validation=None)
    assert settings.evaluations(*settings.pairs()[0], None)[0].one_class()
    with pytest.raises(metrics.OneClassError, match=r"mine.*wrong"):
        replace(settings, reported=True).evaluations(*settings.pairs()[0], "test")


def test_similarities_are_named_and_kept_beside_the_runs(tmp_path):
    (tmp_path / "my-nli").mkdir()
    settings = Settings(similarity=["lexical", "alias", str(tmp_path / "my-nli")], generations_dir=tmp_path)
    similarities = settings.similarities("Gemma-2B", "world-facts")
    assert list(similarities) == ["lexical", "alias", "my-nli"]
    assert set(similarities["alias"].table["split"]) == {"train_shots", "validation", "test"}
    assert similarities["my-nli"].cache == tmp_path / "world-facts" / "gemma-2b"


def test_a_figure_shows_the_protocols_asked_for_and_its_table_all(tmp_path):
    table = pd.DataFrame({"protocol": ["paper", "workbench, ROUGE-L"], "alpha": [0.4, 1 / 3]})
    assert [len(Settings(protocol=p).drawn(table)) for p in ("paper", "workbench", ["paper", "workbench"])] == [1, 1, 2]
    settings = Settings(figures_dir=tmp_path / "mine")
    assert settings.store(table, "both") is table
    assert (tmp_path / "mine" / "both.csv").read_text().splitlines()[2] == '"workbench, ROUGE-L",0.333333'
    assert "nothing to show" in settings.store(table.head(0), "none")
    assert not (tmp_path / "mine" / "none.csv").exists()
