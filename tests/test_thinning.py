"""What `make test` keeps of long tests still has every value of every parameter."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from thinning import covering, every

pytest_plugins = ["pytester"]

GRID = [dict(zip("abc", values, strict=True)) for values in itertools.product(range(2), range(5), range(3))]


@pytest.mark.parametrize(("size", "least", "most"), [(1, 5, 5), (2, 15, 18), (3, 30, 30)])
def test_every_combination_of_so_many_parameters_is_kept(size: int, least: int, most: int) -> None:
    kept = [GRID[k] for k in covering(GRID, size)]
    for names in itertools.combinations("abc", size):
        assert {tuple(c[n] for n in names) for c in kept} == {tuple(c[n] for n in names) for c in GRID}
    assert least <= len(kept) <= most


def test_combinations_that_are_left_out_are_not_asked_for() -> None:
    assert covering([{"a": 0, "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 0}], 1) == {0, 2}
    assert covering([], 1) == set()


def test_every_step() -> None:
    found = every(3, "abcdefg")
    assert ["".join(p.values) for p in found if not p.marks] == ["a", "d", "g"]
    assert ["".join(p.values) for p in found if p.marks] == ["b", "c", "e", "f"]


@pytest.fixture
def outcomes(pytester: pytest.Pytester) -> Callable[..., dict[str, int]]:
    """Run a test of six combinations, marked as given, with the hook of this suite."""
    pytester.makeini("[pytest]\nmarkers =\n    full:\n    thin:\n")
    pytester.makeconftest("""
        import pytest
        from thinning import thin

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            thin(items)

        @pytest.fixture(params="xyz")
        def letter(request):
            return request.param
    """)

    def run(mark: str, *options: str) -> dict[str, int]:
        pytester.makepyfile(f"""
            import pytest

            @{mark}
            @pytest.mark.parametrize(("number", "other"), [(1, 3), (2, 3)])
            def test_both(number, other, letter):
                pass

            def test_another():
                pass
        """)
        return pytester.runpytest("-p", "no:cacheprovider", *options).parseoutcomes()

    return run


@pytest.mark.parametrize(
    ("mark", "n_kept"), [("pytest.mark.thin", 3), ("pytest.mark.thin(pairs=True)", 6), ("pytest.mark.full", 0)]
)
def test_what_is_left_out_is_full(outcomes: Callable[..., dict[str, int]], mark: str, n_kept: int) -> None:
    quick = outcomes(mark, "-m", "not full")
    assert quick.get("deselected", 0) == 6 - n_kept
    assert quick["passed"] == n_kept + 1
    assert outcomes(mark)["passed"] == 7
