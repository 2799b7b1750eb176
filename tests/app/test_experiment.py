"""The questions, runs and evaluations of an experiment."""

from contextlib import nullcontext
from dataclasses import replace

import pandas as pd
import pytest
from commands import answer, record, typed
from pandas.testing import assert_frame_equal
from parameter_values import (
    FOR_CELLS,
    PARAMETERS,
    STRATEGIES,
    other_value,
    total,
    write_files,
    write_lines,
    write_records,
)

from pro_lib import generation, metrics
from pro_lib.app.experiment import Experiment
from pro_lib.common.files import RunError
from pro_lib.common.validation import SentenceError
from pro_lib.generation import models
from pro_lib.generation.models import Model
from pro_lib.labels import LabelPlan, PlannedAnswers, append_label, plan_path
from pro_lib.plots import fixed_k
from pro_lib.plots.settings import overview


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


SEEN_PARAMETERS = [name for name in PARAMETERS if name not in FOR_CELLS]

SMALL = {"model": "facts-1m", "limit": 4, "n_answers": 3, "device": "cpu"}
PAIR = ("facts-1m", "world-facts")


def judged(n, *, right=lambda n: n % 3 > 0):
    """Records of n questions whose answers are right or wrong as said."""
    return [
        record(k, {"log_prob": -1.0 - k / 100, "text": f"{k}", "correct": right(k)})
        for k in range(n)
    ]


def test_pairs_are_those_of_models_and_datasets_or_of_records(tmp_path):
    both = Experiment(model=["facts-2m", "facts-1m"], dataset=("world-facts", "nq")).pairs()
    assert both == [(m, d) for m in ("facts-2m", "facts-1m") for d in ("world-facts", "nq")]
    assert len(Experiment(records=write_lines(tmp_path / "mine.jsonl", judged(2))).pairs()) == 1


def test_a_stored_run_is_read_without_the_model(tmp_path, monkeypatch):
    experiment = Experiment(**SMALL, generations_dir=tmp_path)
    whole = experiment.both_splits(*PAIR)
    monkeypatch.setattr(models, "cached_model", None)
    assert_frame_equal(experiment.both_splits(*PAIR).answers, whole.answers)
    assert set(experiment.run(*PAIR).questions["split"]) == {"test"}
    for more in ({"limit": 5}, {"dtype": "bfloat16"}):
        with pytest.raises(
            TypeError, match="'NoneType' object is not callable"
        ):  # the model is asked
            replace(experiment, **more).run(*PAIR)


def test_a_run_of_another_precision_is_not_that_of_dtype_auto(tmp_path):
    experiment = Experiment(**SMALL, generations_dir=tmp_path)
    half = replace(experiment, dtype="bfloat16")
    first = half.run(*PAIR)
    words = "dtype='bfloat16', but dtype='auto' is float32 here; set dtype='bfloat16' to read it"
    with pytest.raises(RunError, match=words):
        experiment.run(*PAIR)
    assert_frame_equal(half.run(*PAIR).answers, first.answers)
    elsewhere = replace(experiment, generations_dir=tmp_path / "fresh")
    assert elsewhere.run(*PAIR).info.parameters["dtype"] == "float32"


@pytest.mark.parametrize("setting", ["quantization", "server"])
def test_a_run_whose_model_was_loaded_otherwise_is_not_read(tmp_path, monkeypatch, setting):
    experiment = Experiment(**SMALL, generations_dir=tmp_path)
    parameters = Model.parameters
    with monkeypatch.context() as earlier:
        earlier.setattr(Model, "parameters", lambda model: parameters(model) | {setting: "other"})
        experiment.run(*PAIR)
    with pytest.raises(RunError, match=f"requested: {setting}='other'.* now {setting}=None"):
        experiment.run(*PAIR)


def test_a_run_of_another_revision_of_a_hub_model_is_not_read(tmp_path, monkeypatch):
    cache = tmp_path / "cache" / "models--no--such"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache.parent))
    experiment = Experiment(**SMALL | {"model": "no/such"}, generations_dir=tmp_path)
    first = replace(models.load_model("facts-1m", device="cpu"), name="such", fingerprint="a" * 40)
    monkeypatch.setattr(models, "cached_model", lambda *_, **__: first)
    experiment.run("no/such", "world-facts")
    monkeypatch.setattr(models, "cached_model", None)
    for commit in (None, "a" * 40, "b" * 40):
        if commit is not None:
            snapshot = cache / "snapshots" / commit
            snapshot.mkdir(parents=True)
            (snapshot / "config.json").write_text("{}")
            (cache / "refs").mkdir(exist_ok=True)
            (cache / "refs" / "main").write_text(commit)
        is_other = commit == "b" * 40
        with pytest.raises(TypeError) if is_other else nullcontext():  # the model is asked
            experiment.run("no/such", "world-facts")


def test_options_that_change_the_configuration_are_parameters_of_a_run(tmp_path):
    experiment = Experiment(**SMALL, generations_dir=tmp_path)
    experiment.run(*PAIR)
    changed = replace(experiment, loading={"rms_norm_eps": 0.5, "attn_implementation": "eager"})
    words = r"requested: loading=None, now loading=\{'rms_norm_eps': 0.5\}"
    with pytest.raises(RunError, match=words):
        changed.run(*PAIR)


@pytest.mark.parametrize(("n_validation", "pool", "chosen"), [(8, 40, 8), (None, 45, 45)])
def test_records_without_splits_are_split_once_for_each_protocol(
    n_validation, pool, chosen, tmp_path
):
    experiment = Experiment(
        records=write_lines(tmp_path / "mine.jsonl", judged(90)),
        n_validation=n_validation,
        protocol=["paper", "workbench"],
    )
    splits = experiment.splits()
    assert [one.reported.protocol.split(", ")[0] for one in splits] == ["paper", "workbench"]
    for one in splits:
        sizes = [len(part.correct) for part in (one.pool, one.validation, one.reported)]
        assert sizes == [pool, chosen, 90 - pool]


def test_splits_of_all_methods_read_beams_samples_and_greedy_answers(tmp_path):
    experiment = Experiment(**SMALL | {"limit": 30}, generations_dir=tmp_path, n_validation=None)
    own, every = experiment.splits(), experiment.splits(methods="all")
    assert "SE, lexical" not in own[0].reported.baselines
    assert {"NLL", "PE", "NE", "SE, lexical", "Deg, lexical"} <= {*every[0].reported.baselines}
    assert {path.name.split(",")[0] for path in tmp_path.glob("*/*/*")} == {
        "diverse_beam",
        "multinomial",
        "greedy",
    }


def test_a_question_file_completes_the_questions_of_records(tmp_path):
    rows = [{"question_id": f"q{n}", "question": f"{n}?", "references": ["yes"]} for n in range(4)]
    given = [record(n, answer("yes", 0.5)) for n in range(4)]
    records = write_lines(tmp_path / "records.jsonl", given)
    bare = Experiment(records=records)
    assert bare.run(*bare.pairs()[0], "all").questions["references"].isna().all()
    beside = Experiment(records=records, dataset=write_lines(tmp_path / "mine.jsonl", rows))
    assert list(beside.run(*beside.pairs()[0], "all").questions["references"]) == [["yes"]] * 4
    assert Experiment(similarity="alias", records=records).similarities(*bare.pairs()[0]) == {
        "alias": None
    }


def test_a_reported_split_of_one_class_is_refused_by_name(tmp_path):
    path = write_lines(tmp_path / "mine.jsonl", judged(90, right=lambda _: False))
    experiment = Experiment(records=path, n_validation=None)
    assert experiment.evaluations(*experiment.pairs()[0], None)[0].one_class()
    with pytest.raises(metrics.OneClassError, match=r"mine.*wrong"):
        experiment.splits()


def test_the_questions_that_choose_alpha_are_not_reported():
    with pytest.raises(SentenceError, match=r"^split='validation' is used to choose alpha"):
        Experiment(split="validation").splits()


def test_similarities_have_names_and_are_stored_beside_the_runs(tmp_path):
    (tmp_path / "my-nli").mkdir()
    experiment = Experiment(
        similarity=["lexical", "alias", str(tmp_path / "my-nli")], generations_dir=tmp_path
    )
    similarities = experiment.similarities("Gemma-2B", "world-facts")
    assert list(similarities) == ["lexical", "alias", "my-nli"]
    assert set(similarities["alias"].table["split"]) == {"train_shots", "validation", "test"}
    assert similarities["my-nli"].cache == tmp_path / "world-facts" / "gemma-2b"


@pytest.fixture
def work(monkeypatch):
    """Record the options with which models are loaded and runs are generated."""
    seen = []
    load, make = models.cached_model, generation.generate

    def held(model, **options):
        if not isinstance(model, str):
            return model
        seen.append(options)
        return load(model, device="cpu", dtype=options["dtype"])

    def generated(model, questions, *, engine, n_workers, **options):
        seen.append({"engine": engine, "n_workers": n_workers if engine == "ray" else None})
        return make(model, questions, progress=False, **options)

    monkeypatch.setattr(models, "cached_model", held)
    monkeypatch.setattr(generation, "generate", generated)
    return seen


def base(kind, files, folder):
    """Return parameters, of which one is changed: of a strategy, or of records."""
    # With this seed one of the few answers is right by ROUGE-L but no exact match.
    given = {"n_validation": 8, "seed": 2, "limit": 16, "figures_dir": folder / "figures"}
    if kind == "records":
        return given | {"records": str(files / "split.jsonl")}
    given |= {"strategy": kind, "model": "facts-1m", "n_answers": 4}
    return given | {"generations_dir": folder / "runs"}


def observed(experiment, work, *, methods):
    """Return all results of an experiment that its parameters affect, except the figures."""
    work.clear()
    pair = experiment.pairs()[0]
    run = experiment.run(*pair)
    both = experiment.both_splits(*pair)
    evaluations = experiment.evaluations(*pair, experiment.split, methods=methods)
    splits = experiment.splits()
    judged = [
        (one.protocol, list(one.correct), total(one.log_probs), [*one.baselines])
        for one in evaluations
    ]
    return {
        "run": (run.name, run.info.parameters, run.info.cost.model_calls, run.answers.to_json()),
        "questions": both.questions[["question_id", "split"]].to_json(),
        "references": both.questions["references"].to_json(),
        "work": repr(work),
        "judged": judged,
        "validation": [(list(one.validation.answers["question_id"]), one.alphas) for one in splits],
        "pool": [list(one.pool.correct) for one in splits],
    }


# The others take minutes; what they refuse is tried below for each of them.
QUICK = ("diverse_beam", "records")
KINDS = [
    kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow)
    for kind in (*STRATEGIES, "records")
]


# Parameters that do not change these results, because nothing uses them here.
OF_SAMPLES = ("temperature", "top_p")
HARMLESS = {
    "records": ("device", "generations_dir"),
    "diverse_beam": ("strict", "search_alpha", *OF_SAMPLES),
    "multinomial": ("strict", "search_alpha", "diversity_penalty"),
    "greedy": ("strict", "search_alpha", "diversity_penalty", "n_answers", *OF_SAMPLES),
    "threshold": ("strict", "diversity_penalty", "n_answers", *OF_SAMPLES),
}

# Parameters that change how the answers of a run are evaluated, and not the run.
OF_EVALUATION = (
    "protocol",
    "distinct",
    "convention",
    "alphas",
    "n_validation",
    "similarity",
    "correctness",
)


@pytest.fixture(scope="session")
def usual(tmp_path_factory):
    """The observations with unchanged parameters, once for each strategy and for records."""
    return {"folder": tmp_path_factory.mktemp("usual")}


def outcome(given, work, *, methods):
    """Return the observations with the parameters, or the error that they raise."""
    try:
        return observed(Experiment(**given), work, methods=methods)
    except ValueError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:run .* has no validation split:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SEEN_PARAMETERS)
def test_a_parameter_has_an_effect_or_is_an_error_that_names_it(
    name, kind, files, work, usual, tmp_path
):
    if (name, kind) == ("strict", "records"):
        return  # about bad lines, which these records do not have; tested below
    methods = "all" if name in ("similarity", "methods") else "own"
    folder = usual["folder"] / kind / methods
    if (kind, methods) not in usual:
        usual[kind, methods] = observed(
            Experiment(**base(kind, files, folder)), work, methods=methods
        )
    expected = usual[kind, methods]
    if name in OF_EVALUATION:  # evaluates the stored run, so less work does not count
        expected = expected | {"work": "[]"}
    else:
        folder = tmp_path
    given = base(kind, files, folder) | {name: other_value(name, kind, files, tmp_path)}
    changed = outcome(given, work, methods=methods)
    if isinstance(changed, str):
        assert name in changed
    elif name in HARMLESS[kind]:
        assert {**changed, "work": ""} == {**expected, "work": ""}
    elif name == "figures_dir":
        Experiment(**given).save("table", table=pd.DataFrame({"x": [1]}))
        assert (tmp_path / "other" / "table.csv").is_file()
    elif name == "generations_dir":
        assert list((tmp_path / "other").glob("*/facts-1m/*/run.json"))
    else:
        assert changed != expected
        assert name not in OF_EVALUATION or changed["work"] == "[]"


def test_strict_refuses_records_with_a_bad_line(files, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text((files / "split.jsonl").read_text() + "{no\n")
    pair = ("records", "bad")
    with pytest.warns(UserWarning, match="1 answers that cannot be read are left out: line 41"):
        assert len(Experiment(records=str(path)).run(*pair, "all").questions) == 40
    with pytest.raises(ValueError, match="line 41"):
        Experiment(records=str(path), strict=True).run(*pair, "all")


def test_an_nli_model_uses_device_and_folder_beside_records(files, tmp_path):
    given = {"similarity": ["alias", "nli"], "device": "cpu", "generations_dir": tmp_path}
    experiment = Experiment(records=str(files / "split.jsonl"), **given)
    nli = experiment.similarities(*experiment.pairs()[0])["nli"]
    assert (nli.device, nli.cache) == ("cpu", tmp_path / "split" / "records")


def ids(run):
    return list(run.questions["question_id"])


def test_limit_draws_so_many_records_of_each_split(files):
    experiment = Experiment(records=str(files / "split.jsonl"), limit=6)
    both = experiment.both_splits(*experiment.pairs()[0])
    assert both.questions["split"].value_counts().to_dict() == {"validation": 6, "test": 6}
    assert set(both.answers["question_id"]) == set(ids(both))


def test_n_answers_keeps_the_first_answers_of_records(files):
    experiment = Experiment(records=str(files / "split.jsonl"))
    pair = experiment.pairs()[0]
    kept = (
        replace(experiment, n_answers=3).run(*pair).answers.groupby("question_id")["text"].agg(list)
    )
    assert list(kept) == [["Quito", "Quito", "Lima"]] * 20
    assert len(experiment.run(*pair).answers) == 80
    assert len(replace(experiment, n_answers=10).run(*pair).answers) == 80


def test_a_split_that_records_do_not_have_names_those_they_have(files, tmp_path):
    experiment = Experiment(records=str(files / "split.jsonl"), split="dev")
    words = r"^split='dev' is not in run split/records/records; it has validation, test$"
    for read in (experiment.run, experiment.both_splits):
        with pytest.raises(RunError, match=words):
            read(*experiment.pairs()[0])
    tests = Experiment(records=write_records(tmp_path / "tests.jsonl", splits=("test",)))
    assert len(tests.both_splits(*tests.pairs()[0]).questions) == 40
    with pytest.raises(RunError, match=r"^split='validation' is not in run .*; it has test$"):
        replace(tests, split="validation").run(*tests.pairs()[0])


def test_a_notebook_of_one_pair_refuses_several(files):
    several = {"model": ["facts-2m", "facts-1m"], "dataset": ["world-facts", "nq"]}
    for name, value in several.items():
        with pytest.raises(SentenceError, match=rf"^{name}=\[.*\] has several values"):
            Experiment(**{name: value}).pair()
    assert Experiment(model="facts-1m").pair() == PAIR
    with pytest.raises(SentenceError, match=r"^records=.* this notebook takes one records"):
        Experiment(records=[str(files / "split.jsonl"), str(files / "unsplit.jsonl")]).pair()


def test_all_methods_read_the_answers_of_the_strategy(tmp_path):
    given = SMALL | {"limit": 12, "n_answers": None, "generations_dir": tmp_path}
    experiment = Experiment(**given, strategy="threshold")
    [evaluation] = experiment.evaluations(*PAIR, "test", methods="all")
    assert evaluation.search_alpha == experiment.search_alpha


def test_generate_refuses_a_setting_that_none_of_its_strategies_uses(monkeypatch):
    monkeypatch.setattr(Experiment, "both_splits", None)
    words = ["generate", "facts-1m", "greedy", "--dataset", "world-facts", "--search-alpha", "0.1"]
    assert "--search-alpha is for the strategy threshold" in typed(*words, code=2)[1]


def test_labels_of_a_sample_estimate_auroc_but_do_not_choose_alpha(tmp_path):
    path = write_lines(tmp_path / "mine.jsonl", judged(90))
    judge = Experiment(records=path, n_validation=20)
    [pair] = judge.pairs()
    evaluations = judge.evaluations(*pair, "test")
    labels = tmp_path / "labels.jsonl"
    plan = LabelPlan.create(evaluations[0], n_labels=25)
    plan.save(plan_path(labels))
    planned = PlannedAnswers(plan, evaluations[0])
    for position in plan.first:
        request = planned.request(position, False)
        append_label(labels, planned.label(request, True, labeller="ada"))
    experiment = Experiment(records=path, n_validation=20, correctness=str(labels))
    assert experiment.choices.correctness == "rouge_l"
    splits = experiment.splits()[0]
    assert splits.reported.labels.counts["n_right"] == 20
    assert splits.pool.labels is None
    table = fixed_k.table(experiment.splits())
    assert set(table["judge"]) == {"labels"}
    assert set(table["interval"]) == {"from labels of a sample"}
    assert "judge" not in fixed_k.table(judge.splits())


def test_a_loaded_model_works_like_its_name_and_finds_its_run(tmp_path, monkeypatch):
    folders = {"generations_dir": tmp_path / "runs"}
    by_name = Experiment(**SMALL, **folders).reported_evaluations
    model = models.cached_model("facts-1m", device="cpu")
    monkeypatch.setattr(generation, "generate", None)  # nothing is generated again
    experiment = Experiment(**(SMALL | {"model": model}), **folders)
    assert experiment.pair() == PAIR
    for one, other in zip(by_name, experiment.reported_evaluations, strict=True):
        assert_frame_equal(one.baselines, other.baselines)


def test_a_function_decides_which_answers_are_right(tmp_path):
    def starts_alike(texts, references):
        return [
            any(text[:1] == name[:1] for name in names)
            for text, names in zip(texts, references, strict=True)
        ]

    experiment = Experiment(**SMALL, generations_dir=tmp_path, correctness=starts_alike)
    [judged_once, *_] = experiment.reported_evaluations
    names = experiment.questions("world-facts").table["references"]
    expected = starts_alike(judged_once.answers["text"], names)
    assert judged_once.correct.tolist() == expected
    assert set(overview(experiment.splits())["correctness"]) == {"starts_alike"}
    with pytest.raises(SentenceError, match="returned an array of shape"):
        _ = Experiment(
            **SMALL, generations_dir=tmp_path, correctness=lambda texts, names: [True]
        ).reported_evaluations
