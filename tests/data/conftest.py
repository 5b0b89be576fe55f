"""Every test of the data package has a cache folder of its own and no data root from outside."""

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("platform")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.delenv("DUALMIX_DATA", raising=False)
    return folder
