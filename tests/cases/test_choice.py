"""The choice of cases, and that the table names tests that exist."""

from __future__ import annotations

import ast
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.cases.choice import Case, Covering, Every
from tests.cases.table import TABLE

TESTS = Path(__file__).parents[1]


def cases(*axes: str) -> list[Case]:
    """The product of axes whose values are letters."""
    return [("-".join(p), {f"p{n}": x for n, x in enumerate(p)}) for p in product(*axes)]


def test_one_of_each_group_of_neighbours_is_run() -> None:
    given = cases("abcdefg")
    assert Every(3).chosen(given) == {0, 3, 6}
    assert Every(3, also=("b",), never=("d",)).chosen(given) == {0, 1, 6}
    assert Every(1, never=("",)).chosen([("", {})]) == set()
    with pytest.raises(AssertionError, match="no such cases"):
        Every(2, never=("h",)).chosen(given)


@pytest.mark.parametrize("strength", [1, 2])
def test_values_that_parameters_have_together_occur(strength: int) -> None:
    given = cases("abcd", "ef", "ghi")
    found = Covering(strength).chosen(given)

    def together(numbers: set[int]) -> set[tuple[tuple[str, str], ...]]:
        return {x for n in numbers for x in combinations(given[n][1].items(), strength)}

    assert together(found) == together({*range(len(given))})
    assert len(found) == {1: 4, 2: 12}[strength]  # of 24


def test_a_case_that_is_added_to_a_list_is_run_where_its_values_are_new() -> None:
    assert Covering(1).chosen([*cases("ab"), ("c", {"p0": "c"}), ("again", {"p0": "a"})]) == {0, 1, 2}


def test_the_table_names_tests() -> None:
    for test in TABLE:
        file, _, name = test.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        assert name in {x.name for x in tree.body if isinstance(x, ast.FunctionDef)}, test
