"""What `patching` and its client offer at the top is short; former names still work, and say so."""

from __future__ import annotations

from types import ModuleType

import pytest

import patching
import patching.client

PACKAGES = [patching, patching.client]


@pytest.mark.parametrize(("package", "names_max"), [(patching, 30), (patching.client, 40)])
def test_the_list_of_public_names_is_short(package: ModuleType, names_max: int) -> None:
    assert len(package.__all__) <= names_max
    assert all(hasattr(package, name) for name in package.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_former_name_works_with_a_warning_that_names_the_new_one(package: ModuleType) -> None:
    assert package._MOVED
    for name, place in package._MOVED.items():
        with pytest.warns(DeprecationWarning, match=place) as warned:
            found = getattr(package, name)
        assert warned[0].filename == __file__
        module, _, attribute = place.rpartition(".")
        assert found is getattr(__import__(module, fromlist=[attribute]), attribute)


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_raises_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(package, "nothing")  # noqa: B009
