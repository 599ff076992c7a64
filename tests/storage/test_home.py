import pytest

from storage.errors import StorageError
from storage.home import Home


def test_a_home_is_made_where_it_is_opened(tmp_path):
    home = Home.open(tmp_path / "a" / "b")
    assert home.root.is_dir()
    assert home.lake == home.root / "lake"


def test_every_place_lies_within_the_root(tmp_path):
    home = Home.open(tmp_path)
    places = [name for name in dir(Home) if isinstance(getattr(Home, name), property)]
    assert len(places) >= 11
    assert all(getattr(home, name).parent == home.root for name in places)


def test_a_file_in_the_way_is_named_with_a_remedy(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match=r"taken.*NIGHTSCHOOL_HOME"):
        Home.open(tmp_path / "taken")
    with pytest.raises(StorageError, match="taken"):
        Home.open(tmp_path / "taken" / "below")
