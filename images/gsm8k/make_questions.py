"""Writes questions in the format of gsm8k that are our own: arithmetic in words, made from templates.

They stand in for gsm8k in demonstrations and are labelled "gsm8k-like (simulated)": a score on them means nothing for a
real model. Format: one JSON object a line, ``question`` and ``answer``; each calculation of the answer is annotated as
``<<3*4=12>>`` and the last line is ``#### 12``. The output is the same, byte for byte, on every run:

    python images/gsm8k/make_questions.py images/gsm8k
"""

import argparse
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

SEED = 45943
QUESTIONS, SHOTS = 100, 5
NAMES = ("Ada", "Ben", "Chidi", "Dana", "Emil", "Farah", "Grace", "Hugo", "Ines", "Jun", "Kofi", "Lena", "Mira", "Noor")
GOODS = (("apple", "apples"), ("pencil", "pencils"), ("stamp", "stamps"), ("marble", "marbles"), ("shell", "shells"))

Draw = Callable[[int, int], int]
"""A whole number from the first to the second, both included."""
Problem = tuple[str, list[str], int]
"""Question, lines of the answer, result."""


def shop(draw: Draw, name: str, good: Sequence[str]) -> Problem:
    boxes, each, price = draw(3, 12), draw(4, 20), draw(2, 9)
    count = boxes * each
    total = count * price
    return (
        f"{name} buys {boxes} boxes with {each} {good[1]} in each box. One {good[0]} costs ${price}. "
        f"How many dollars does {name} pay?",
        [
            f"There are {boxes}*{each}=<<{boxes}*{each}={count}>>{count} {good[1]}.",
            f"{name} pays {count}*{price}=$<<{count}*{price}={total}>>{total}.",
        ],
        total,
    )


def shared(draw: Draw, name: str, good: Sequence[str]) -> Problem:
    friends, each, kept = draw(3, 9), draw(5, 18), draw(2, 14)
    given = friends * each
    had = given + kept
    return (
        f"{name} has {had} {good[1]}. {name} keeps {kept} of them and gives the others to {friends} friends, the same "
        f"number to each. How many {good[1]} does each friend get?",
        [
            f"{name} gives away {had}-{kept}=<<{had}-{kept}={given}>>{given} {good[1]}.",
            f"Each friend gets {given}/{friends}=<<{given}/{friends}={each}>>{each} {good[1]}.",
        ],
        each,
    )


def walk(draw: Draw, name: str, good: Sequence[str]) -> Problem:
    days, there, more = draw(4, 15), draw(3, 11), draw(1, 8)
    back = there + more
    daily = there + back
    total = days * daily
    return (
        f"Every day {name} walks {there} kilometers to collect {good[1]} and comes home by a way that is {more} "
        f"kilometers longer. How many kilometers does {name} walk in {days} days?",
        [
            f"The way home has {there}+{more}=<<{there}+{more}={back}>>{back} kilometers.",
            f"That is {there}+{back}=<<{there}+{back}={daily}>>{daily} kilometers a day.",
            f"In {days} days it is {days}*{daily}=<<{days}*{daily}={total}>>{total} kilometers.",
        ],
        total,
    )


def savings(draw: Draw, name: str, good: Sequence[str]) -> Problem:
    weeks, earned = draw(4, 16), draw(12, 40)
    spent, first = draw(2, 10), draw(10, 90)
    kept = earned - spent
    added = weeks * kept
    total = first + added
    return (
        f"{name} has ${first} and earns ${earned} a week by selling {good[1]}, of which ${spent} go for the bus. How "
        f"many dollars does {name} have after {weeks} weeks?",
        [
            f"{name} keeps {earned}-{spent}=$<<{earned}-{spent}={kept}>>{kept} a week.",
            f"In {weeks} weeks that is {weeks}*{kept}=$<<{weeks}*{kept}={added}>>{added}.",
            f"Together it is {first}+{added}=$<<{first}+{added}={total}>>{total}.",
        ],
        total,
    )


def halves(draw: Draw, name: str, good: Sequence[str]) -> Problem:
    half, lost = draw(6, 60), draw(1, 5)
    first = 2 * half
    total = first + half - lost
    return (
        f"In the morning {name} finds {first} {good[1]}, and in the afternoon half as many. {name} then loses {lost}. "
        f"How many {good[1]} are left?",
        [
            f"In the afternoon it is {first}/2=<<{first}/2={half}>>{half} {good[1]}.",
            f"Together they are {first}+{half}=<<{first}+{half}={first + half}>>{first + half} {good[1]}.",
            f"There are {first + half}-{lost}=<<{first + half}-{lost}={total}>>{total} left.",
        ],
        total,
    )


def garden(draw: Draw, name: str, good: Sequence[str]) -> Problem:
    length, width, price = draw(6, 25), draw(3, 15), draw(2, 12)
    around = 2 * (length + width)
    total = around * price
    return (
        f"{name} puts a fence around a garden of {length} meters by {width} meters. A meter of fence "
        f"costs ${price}, and {name} pays in {good[1]} that are worth $1 each. How many {good[1]} does {name} pay?",
        [
            f"The fence has 2*({length}+{width})=<<2*({length}+{width})={around}>>{around} meters.",
            f"It costs {around}*{price}=$<<{around}*{price}={total}>>{total}, that is {total} {good[1]}.",
        ],
        total,
    )


TEMPLATES = (shop, shared, walk, savings, halves, garden)


def make_problems(count: int) -> list[dict[str, str]]:
    """Return so many different questions with their answers."""
    chance = random.Random(SEED)

    def draw(low: int, high: int) -> int:
        # random() is the one method whose sequence Python promises never to change.
        return low + int(chance.random() * (high - low + 1))

    found: dict[str, str] = {}
    while len(found) < count:
        template = TEMPLATES[len(found) % len(TEMPLATES)]
        name, good = NAMES[draw(0, len(NAMES) - 1)], GOODS[draw(0, len(GOODS) - 1)]
        question, lines, result = template(draw, name, good)
        found.setdefault(question, "\n".join([*lines, f"#### {result}"]))
    return [{"question": question, "answer": answer} for question, answer in found.items()]


def write_questions(folder: Path) -> None:
    """Write ``questions.jsonl`` and, with other questions, ``shots.jsonl``."""
    problems = make_problems(QUESTIONS + SHOTS)
    for name, part in (("shots", problems[:SHOTS]), ("questions", problems[SHOTS:])):
        lines = [json.dumps(problem, ensure_ascii=False) + "\n" for problem in part]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description="Writes questions in gsm8k's format.")
    parser.add_argument("folder", type=Path, help="where questions.jsonl and shots.jsonl go")
    write_questions(parser.parse_args().folder)


if __name__ == "__main__":
    main()
