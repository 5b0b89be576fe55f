"""The settings and the root."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from dualmix.data import DATASETS, Data, root


def test_defaults():
    assert Data().name == "digits" and Data().size is None and Data().held_out == 0.2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "cifar10"}, "did you mean 'cifar100'"),
        ({"name": "Tiny-ImageNet"}, "did you mean 'tiny_imagenet'"),
        ({"name": "zzz"}, "choose one of digits, cifar100"),
        ({"name": "folder"}, "needs data.path with the folder"),
        ({"name": "arrays"}, "needs data.path with your .npz"),
        ({"name": "cifar100", "path": "x"}, "data.path is for your own images"),
        ({"size": 3}, "greater than or equal to 4"),
        ({"size": 2000}, "less than or equal to 1024"),
        ({"held_out": 0}, "greater than 0"),
        ({"held_out": 1}, "less than 1"),
        ({"split_seed": -1}, "greater than or equal to 0"),
        ({"rot": "x"}, "Extra inputs"),
        ({"skip": True}, "data.skip is for data.name folder"),
        ({"fit": "crop"}, "give data.size too"),
        ({"fit": "stretch", "size": 8}, "'squeeze', 'crop' or 'pad'"),
    ],
)
def test_faults_say_what_helps(given, says):
    with pytest.raises(ValidationError, match=says):
        Data(**given)


def test_json_round_trip():
    data = Data(name="folder", path="x/y", size=32)
    assert Data.model_validate_json(data.model_dump_json()) == data


def test_every_value_explains_itself():
    for field in Data.model_fields.values():
        assert field.description and field.json_schema_extra["source"] in (
            "paper",
            "reference",
            "inferred",
            "ours",
        )


def test_root_is_given_or_from_the_environment_or_the_platform(monkeypatch, own_cache):
    assert root() == own_cache / "dualmix" / "data"
    monkeypatch.setenv("DUALMIX_DATA", "/from/environment")
    assert root() == Path("/from/environment")
    assert root(Path("/given")) == Path("/given")
    monkeypatch.setenv("DUALMIX_DATA", "")
    assert root() == own_cache / "dualmix" / "data"


def test_catalogue_is_in_order():
    assert [d.tasks for d in DATASETS.values()] == [5, 20, 20, 20, 5, 5]
    assert all(name == d.name and d.doc for name, d in DATASETS.items())
    assert all(bool(d.obtain) != bool(d.downloads) for d in DATASETS.values())
