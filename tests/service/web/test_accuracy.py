"""Accuracy on the pages: a row of the comparison, a paragraph of the launch."""

from contextlib import closing

import pytest

from service.actions.context import Context
from service.app import create_app
from tests.answered import asked, unscored
from tests.service.api.inprocess import InProcess
from tests.service.web.site import Page
from tests.workshop import Package, Workshop, package

MANY = "1" * 920 + "0" * 80


@pytest.fixture
def shop(sqlite_ctx: Context) -> Workshop:
    workshop = Workshop(sqlite_ctx)
    workshop.stock()
    return workshop


def page(shop: Workshop, path: str) -> Page:
    with closing(InProcess(create_app(shop.ctx))) as browser:
        answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    return Page(answer.text)


def measure(shop: Workshop, base: Package, head: Package) -> list[str]:
    """One block; return the ids of its launches."""
    shop.submit(gsm8k=True)
    runner = shop.runner()
    answers = [shop.finish(shop.work(runner), made) for made in (base, head, package(15.0), package(20.0))]
    return [answer.launch_id or "" for answer in answers]


def test_the_comparison_has_a_row_and_a_sentence_on_accuracy(shop: Workshop) -> None:
    first, *_ = measure(shop, asked(MANY), asked("0" * 120 + MANY[120:], step_ms=15.0))
    text = page(shop, "/compare/v0.18.0...v0.19.1").text
    assert "gsm8k-like (simulated) share right strict match, higher is better" in text
    assert "0.9200 ± 0.0086, flexible 0.9200 0.8000" in text
    assert "−12.0\u202fpoints".replace("\u202f", " ") in text.replace("\u202f", " ")
    assert "120 lost, 0 won of 1000" in text
    assert text.count("gives wrong answers where v0.18.0 gave right ones") == 2
    assert "by strict match, 0.9200 by flexible extract; 1000 questions" in page(shop, f"/launches/{first}").text


def test_what_has_no_score_says_why(shop: Workshop) -> None:
    first, *_ = measure(shop, unscored("<b>500</b>"), asked(MANY, step_ms=15.0))
    text = page(shop, "/compare/v0.18.0...v0.19.1").text
    assert "Accuracy can't be compared: v0.18.0 has no score: <b>500</b>" in text.replace("’", "'")
    assert "There is no score: <b>500</b>" in page(shop, f"/launches/{first}").text


def test_without_questions_there_is_no_row(shop: Workshop) -> None:
    first, *_ = measure(shop, package(20.0), package(15.0))
    assert "share right" not in page(shop, "/compare/v0.18.0...v0.19.1").text
    assert "lm-eval" not in page(shop, f"/launches/{first}").text
