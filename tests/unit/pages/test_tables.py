"""Tables of pages."""

import pytest

from rocketwire.pages.tables import Cell, table


def test_each_cell_has_the_name_of_its_column():
    made = table(("broker", "p99#", "why*"), [("a", "1", "x"), ("b", "2", "y")])
    assert made.count('data-name="broker"') == 2
    assert '<td data-name="p99" class="number">1</td>' in made
    assert '<td data-name="why" class="words">x</td>' in made
    assert made.startswith('<div class="scroll"><table><thead><tr><th class="plain">broker</th>')


def test_names_and_cells_are_escaped():
    made = table(('a"<b>',), [("<i>",), (Cell("<u>", "<s>"),)])
    assert 'data-name="a&quot;&lt;b&gt;"' in made
    assert "<th" in made
    assert not {"<b>", "<i>", "<u>", "<s>"} & {made[n : n + 3] for n in range(len(made))}


def test_a_row_must_fit_its_head():
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        table(("a", "b"), [("alone",)])


def test_rows_stand_out_and_cells_have_roles_and_a_second_line():
    rows = [(Cell("held", role="good"), "1"), ("x", Cell("2", "to 3"))]
    made = table(("", "n#"), rows, strong={1}, frame="card")
    assert '<td data-name="" class="plain good">held</td>' in made
    assert '<tr class="strong"><td' in made
    assert '<td data-name="n" class="number both">2<small>to 3</small></td>' in made
    assert made.startswith('<div class="card">')


def test_a_table_without_names_has_no_head_and_a_bar_no_words():
    made = table(("", "%"), [("key", "41.66")])
    assert '<td class="meter"><i style="width:41.7%"></i></td>' in made
    assert "<th" in made
    assert "<th" not in table(("", "#"), [("a", "1")])
