"""Which model a name stands for, and that only ours are described as ours."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pro_lib import load_model
from pro_lib.common import catalog
from pro_lib.generation import models

OURS = catalog.DATA / "models" / "facts-2m"


@pytest.fixture
def local_folder(tiny_folders, tmp_path, monkeypatch):
    """Return the folder of another model that is named as one of ours is, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(tiny_folders("llama"), tmp_path / "models" / "facts-2m"))


def test_the_bundled_names_are_described_also_beside_a_folder_of_that_name(
    local_folder, monkeypatch
):
    monkeypatch.chdir(local_folder.parent)
    for name in ("facts-1m", "facts-2m"):
        assert "taught 36 relations" in catalog.scope(name)
        assert catalog.is_bundled(name)
    assert catalog.locate("facts-2m") == str(OURS)


OTHERS = ["models/facts-2m", "./facts-2m", "../models/facts-2m", "facts-2m/", "", ".", "Gemma-2B"]


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_text_is_described_as_one_of_ours(local_folder, monkeypatch, name):
    monkeypatch.chdir(local_folder.parent)
    assert (
        catalog.scope(name) == catalog.scope(str(local_folder)) == catalog.scope(local_folder) == ""
    )
    assert not catalog.is_bundled(name)
    assert not catalog.is_bundled(str(local_folder))


def test_a_model_in_the_cache_that_has_the_name_of_ours_is_not_described(local_folder, monkeypatch):
    monkeypatch.setattr(catalog, "CACHE", local_folder.parent)
    assert catalog.locate("facts-2m") == str(local_folder)
    assert catalog.scope("facts-2m") == ""


def test_a_path_is_a_path_where_it_exists(local_folder, monkeypatch):
    monkeypatch.chdir(local_folder.parent)
    assert load_model(Path("facts-2m"), device="cpu").source == str(local_folder)
    assert models.cached_model(Path("facts-2m"), device="cpu").source == str(local_folder)
    assert catalog.model_folder_name(Path("facts-1m")) == "facts-1m"
    assert catalog.locate(Path("facts-1m")) == str(catalog.DATA / "models" / "facts-1m")


def test_the_name_of_a_download_never_stands_for_a_folder_here(local_folder, monkeypatch):
    monkeypatch.setattr(catalog, "CACHE", local_folder.parent / "cache")
    monkeypatch.chdir(local_folder.parent)
    local_folder.rename("smollm2-135m")
    with pytest.raises(ValueError, match="run `pro download smollm2-135m`"):
        load_model("smollm2-135m", device="cpu")
    assert load_model("./smollm2-135m", device="cpu").name == "smollm2-135m"


def test_an_installed_package_uses_the_clone_around_the_working_folder(tmp_path):
    site = tmp_path / "site"
    package = site / "pro_lib"
    shutil.copytree(catalog.ROOT / "pro_lib", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "data" / "models").mkdir(parents=True)  # data/ is inside an installed package
    shutil.copy(catalog.DATA / "models" / "downloads.json", package / "data" / "models")
    command = "from pro_lib.common.catalog import CHECKOUT, HOME; print(CHECKOUT, HOME)"
    for folder, home in ((catalog.ROOT / "notebooks", catalog.ROOT), (tmp_path, ".")):
        done = subprocess.run(
            [sys.executable, "-P", "-c", command],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == f"None {home}"
