"""The drawings: well-formed, with every curve, in the right places."""

from xml.etree import ElementTree

import numpy as np

from gdp.report.budget_curves import BudgetCurve, Level, Panel, budget_chart, budget_grid

SVG = "{http://www.w3.org/2000/svg}"
EVALUATIONS = [1, 10, 100]


def curve(name: str, *best: float) -> BudgetCurve:
    values = np.array(best)
    return BudgetCurve(name=name, best=values, low=values, high=values)


def panel(*curves: BudgetCurve) -> Panel:
    return Panel(title="a <b> & c", curves=curves, levels=[Level(name="one device", value=1.5)])


def strokes(drawing: str) -> list[str]:
    """The paths of the curves themselves."""
    return [path.attrib["d"] for path in ElementTree.fromstring(drawing).iter(f"{SVG}path") if path.attrib["fill"] == "none"]


def test_a_curve_starts_at_its_first_value_and_falls_in_steps() -> None:
    (path,) = strokes(budget_chart(panel(curve("search", np.inf, 2.0, 1.0)), EVALUATIONS))
    start, step, end = path.removeprefix("M").split("H")
    assert start.startswith("320.0 "), "ten of a hundred evaluations is the middle of a logarithmic axis of 640"
    assert step.startswith("640.0V") and float(step.removeprefix("640.0V")) > float(start.split()[1]), "better is lower on the page"
    assert end == "640.0"


def test_a_curve_is_level_where_nothing_changes_and_reaches_the_end() -> None:
    (path,) = strokes(budget_chart(panel(curve("search", 2.0, 1.0, 1.0)), EVALUATIONS))
    assert path.count("V") == 1 and path.endswith("H640.0")


def test_labels_never_cover_each_other_and_names_are_escaped() -> None:
    curves = [curve(f"<{i}>", 2.0, 1.5, 1.0) for i in range(5)]
    root = ElementTree.fromstring(budget_chart(panel(*curves), EVALUATIONS))
    labels = [text for text in root.iter(f"{SVG}text") if "<" in (text.text or "") and text.attrib.get("font-weight") is None]
    heights = sorted(float(text.attrib["y"]) for text in labels)
    assert len(labels) == 5 and min(np.diff(heights)) >= 14 - 1e-6
    assert any(text.text == "a <b> & c" for text in root.iter(f"{SVG}text"))


def test_a_grid_has_every_panel_even_one_without_a_value() -> None:
    drawing = budget_grid([panel(curve("x", 2.0, 1.5, 1.0)), panel(curve("x", np.inf, np.inf, np.inf)), panel()], EVALUATIONS, columns=2)
    assert len([path for path in strokes(drawing) if path]) == 1
    assert drawing.count("a &lt;b&gt; &amp; c") == 3


def test_values_that_no_comparison_has_are_drawn_with_few_lines() -> None:
    drawing = budget_chart(panel(curve("search", 3e12, 2e12, 1e12)), EVALUATIONS)
    assert drawing.count("<line") == 2, "a hundred lines to every unit would be more than there is memory for"
