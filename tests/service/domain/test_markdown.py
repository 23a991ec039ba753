"""Markdown that holds what others wrote: nothing leaves its place."""

import re
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from service.contract.builds import BuildSpec
from service.domain import catalog_file, markdown
from tests import measured

HOSTILE = "a | b `c` <script>@team #12 [x](http://y) *z*\nnext ~~s~~ &amp;"
_UNESCAPED = re.compile(r"(?<!\\)[|`*_{}\[\]<>~&!]")


def test_prose_of_others_is_shown_as_it_is() -> None:
    shown = markdown.text(HOSTILE)
    assert "\n" not in shown
    assert _UNESCAPED.search(shown) is None
    assert "@team" not in shown
    assert "#12" not in shown


def test_a_code_span_holds_backticks_and_bars() -> None:
    assert markdown.code("a`b") == "``a`b``"
    assert markdown.code("`a") == "`` `a ``"
    assert markdown.code("a|b\nc") == "`a\\|b c`"
    assert markdown.code("") == "`  `"


@given(st.text(max_size=60))
def test_a_fence_is_never_closed_by_what_it_holds(content: str) -> None:
    lines = markdown.block(content, "sh").split("\n")
    fence = lines[0].removesuffix("sh")
    assert lines[-1] == fence
    assert not any(line.startswith(fence) for line in lines[1:-1])


def test_a_table_has_one_bar_per_column_end_in_every_row() -> None:
    made = markdown.table(["name", "value>"], [[markdown.code("a|b"), "1"], [markdown.text("x|y"), "2"]])
    lines = made.splitlines()
    assert lines[1] == "| --- | ---: |"
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [3] * 4


def test_a_catalog_file_registers_the_same_builds_recipe_and_workload() -> None:
    where = measured.cell()
    builds = [
        BuildSpec(**measured.build(name).model_dump(include={"name", "version", "source"})) for name in ("v1", "v2")
    ]
    read = tomllib.loads(catalog_file.write(builds, where.recipe, where.workload))
    assert [BuildSpec.model_validate(one).digest for one in read["builds"]] == [one.digest for one in builds]
    assert type(where.recipe).model_validate(read["recipes"][0]).digest == where.recipe.digest
    assert type(where.workload).model_validate(read["workloads"][0]).digest == where.workload.digest
