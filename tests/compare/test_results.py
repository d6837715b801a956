from gdp.compare.results import continued_environment


def test_an_environment_names_the_versions_that_found_earlier_rows() -> None:
    first, second, third = ({"gdp": f"0.1.0, commit {commit}", "date": f"day {day}"} for commit, day in (("a", 1), ("a", 2), ("b", 3)))
    assert continued_environment(first, {}) == first
    assert continued_environment(second, first) == second
    after_third = continued_environment(third, second)
    assert after_third == {**third, "earlier rows": "0.1.0, commit a, until day 2"}
    fourth = {"gdp": "0.1.0, commit c", "date": "day 4"}
    assert continued_environment(fourth, after_third) == {
        **fourth,
        "earlier rows": "0.1.0, commit a, until day 2; 0.1.0, commit b, until day 3",
    }
