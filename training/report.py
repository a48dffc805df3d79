"""A measurement as a page of Markdown and as tables on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from training.measures import Figures

GOALS = (
    ("detect F1 at IoU 0.5, large objects", ("detect", "large", "f1"), 0.85),
    ("mean IoU of matches, large objects", ("detect", "large", "mean_iou"), 0.75),
    ("points in objects: precision, large objects", ("point", "large", "precision"), 0.90),
    ("points in objects: recall, large objects", ("point", "large", "recall"), 0.90),
    ("empty answers to absent phrases, detect", ("detect", "absent", "empty"), 0.90),
    ("empty answers to absent phrases, point", ("point", "absent", "empty"), 0.90),
)
COLUMNS = ("precision", "recall", "f1", "mean_iou", "objects", "answers")

Rows = list[list[str]]


def shown(value: float | int | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"


def goal_rows(figures: Figures) -> Rows:
    rows = []
    for name, (task, part, key), goal in GOALS:
        value = figures["held_out"][task][part][key]
        rows.append(
            [name, shown(value), f"{goal:.2f}", "yes" if value is not None and value >= goal else "no"]
        )
    return rows


def rate_rows(figures: Figures) -> Rows:
    """A line for each task and size, then for each kind of phrase."""
    rows = []
    for task in ("detect", "point"):
        parts = {part: figures[task][part] for part in ("all", "large", "small")}
        parts |= {f"“{kind}”": rates for kind, rates in figures[task]["by_kind"].items()}
        for part, rates in parts.items():
            rows.append([f"{task}, {part}", *(shown(rates.get(column)) for column in COLUMNS)])
    return rows


def other_rows(figures: Figures) -> Rows:
    rows = []
    for task in ("detect", "point"):
        part = figures[task]
        precision = part["average_precision"]
        rows += [
            [f"{task}: median coordinate error, bins of 1/1024", shown(part["median_coordinate_error_bins"])],
            [f"{task}: average precision by score", shown(precision["by_score"])],
            [f"{task}: average precision, scores shuffled", shown(precision["shuffled"])],
            [f"{task}: absent phrases answered with nothing", shown(part["absent"]["empty"])],
        ]
    return rows


def print_report(figures: Figures, console: Console) -> None:
    _print(console, "Goals", ("measure", "value", "goal", "met"), goal_rows(figures))
    for name, title in (("held_out", "Held-out scenes"), ("examples", "Example pictures")):
        _print(console, title, ("answers", *COLUMNS), rate_rows(figures[name]))
        _print(console, title, ("measure", "value"), other_rows(figures[name]))


def _print(console: Console, title: str, columns: tuple[str, ...], rows: Rows) -> None:
    table = Table(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def page(figures: Figures, folder: str) -> str:
    """The Markdown page; its pictures lie in `folder`."""
    setting = figures["setting"]
    command = f"python -m training.evaluate --scenes {setting['scenes']} --seed {setting['seed']}"
    held, own = figures["held_out"], figures["examples"]
    parts = [
        "# The default model, measured",
        INTRODUCTION.format(command=command, **setting),
        "## Goals",
        _markdown(["measure", "value", "goal", "met"], goal_rows(figures)),
        "## Held-out scenes",
        _markdown(["answers", *COLUMNS], rate_rows(held)),
        _markdown(["measure", "value"], other_rows(held)),
        f"![Precision and recall by score, and F1 by size]({folder}/curves.png)",
        "## What is taken for what",
        "Asked for (row), hit by the answered boxes (column), over all phrases that name it.",
        *(_confusion(held["confusion"][attribute], attribute) for attribute in ("shape", "colour")),
        "Wrong boxes answered to a colour and a shape:",
        _markdown(["mistake", "boxes"], [[name, str(n)] for name, n in held["mistakes"].items()]),
        "## Failures",
        "A random selection of wrong answers: the truth is green, the answer red.",
        f"![Failures]({folder}/failures.png)",
        "## Example pictures",
        EXAMPLES,
        _markdown(["answers", *COLUMNS], rate_rows(own)),
        _markdown(["measure", "value"], other_rows(own)),
        _markdown(["picture", "detect F1", "mean IoU", "point F1"], _picture_rows(own["by_picture"])),
    ]
    return "\n\n".join(parts) + "\n"


def _picture_rows(pictures: Figures) -> Rows:
    return [
        [name, shown(p["detect"]["f1"]), shown(p["detect"].get("mean_iou")), shown(p["point"]["f1"])]
        for name, p in pictures.items()
    ]


def _confusion(table: dict[str, dict[str, int]], attribute: str) -> str:
    rows = [
        [f"**{asked}**", *(str(count) if count else "" for count in hits.values())]
        for asked, hits in table.items()
    ]
    return _markdown([attribute, *next(iter(table.values()))], rows)


def _markdown(header: list[str], rows: Rows) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


INTRODUCTION = """\
    {command}

writes this page, from {scenes} scenes that training never saw (seeds from {seed}), asked through the
product's own engine: one question to detect and one to point for each scene, of which {absent} name
something that is not there.

A box is right when its IoU with a named object that no better answer has found is at least 0.5; a point
when it lies within the object's filled outline (a ring is filled). Answers are matched best score first.
*Small* is an object whose longer side is below 12 % of the image's shorter side; a wrong box counts by
its own size, a wrong point by the size of the object nearest to it. Average precision ranks the answers
to all questions together; the shuffled figure is the mean over 50 random orders of the same answers."""

EXAMPLES = """\
`examples/`: a drawing, a rendered photograph and a poster, none of them made by the scene generator. Each
is asked for every object by name, every colour, every shape, all shapes, and some names that it lacks.
Points are held against the boxes here."""
