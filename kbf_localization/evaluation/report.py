"""`report.html`: one page with everything inline; it opens with no network and loads nothing.

Whatever comes from data (names of drives, rooms, files) is escaped: as text in HTML, and in the
page's data as JSON that cannot end its element. The page's own policy (CSP) admits the scripts
below by their checksum and nothing besides.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbf_localization import __version__
from kbf_localization.arrays import Array
from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.metric_texts import metric_rows, number_text
from kbf_localization.evaluation.report_data import report_data
from kbf_localization.evaluation.results import ResultsFolder, to_plain
from kbf_localization.evaluation.run import Run
from kbf_localization.evaluation.verdict import verdict
from kbf_localization.progress import Progress, no_progress

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

PAGE = Path(__file__).with_name("report_page")
SIMPLE_SCRIPTS = "theme tooltips"
CHART_SCRIPTS = f"{SIMPLE_SCRIPTS} format charts compare"
DRIVE_SCRIPTS = f"{SIMPLE_SCRIPTS} format data charts map_view hypotheses timeline player main"
CHECK_SCRIPTS = f"{SIMPLE_SCRIPTS} format check_data charts map_view check"
CAMERA_NOTE = (
    "This page embeds camera images, of the drive or of the map. People may be seen in them: treat "
    "it like the recording itself before you pass it on."
)


MAX_UNBROKEN = 24
"""Letters of a table's cell that stay on one line; longer texts among figures are wrapped."""
LONG = ' class="long"'


@dataclass(frozen=True)
class Table:
    """A table of a report; numbers are shown with three significant digits."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Plot:
    """A PNG file shown in a report, with its caption."""

    path: Path
    caption: str


@dataclass(frozen=True)
class Widget:
    """An interactive part of a page: its HTML, its script, and the script's data."""

    html: str
    script: str
    data: Mapping[str, Any]


def write_report(
    folder: ResultsFolder,
    name: str,
    title: str,
    config: Mapping[str, Any],
    runs: Mapping[str, Run],
    training_map: TrainingMap,
    drive: Drive,
    warning: str | None = None,
    progress: Progress = no_progress,
    *,
    truth: Array | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write the report of one drive with its replay player, which shows the first run at first.

    `config["command"]` is the command that makes it again, the rest is shown as settings. The
    player shows the belief of those runs that kept theirs. A `warning` stands above all else.
    `truth` (t, 3) are the drive's true poses in the map's frame; by default those that it has.
    """
    data = report_data(runs, training_map, drive, progress, truth=truth)
    subtitle = (
        f"{drive.path} · {len(drive)} images · map of {len(training_map.poses)} poses · "
        f"odometry {drive.odometry_origin}"
    )
    if drive.condition:
        subtitle += f" · {drive.condition}"
    lines = (CAMERA_NOTE, *notes, *drive.warnings[:20])
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    body = _warning_html(warning) if warning else ""
    body += _verdict_html(runs) + _page_part("drive.html") + _section("Notes", f"<ul>{items}</ul>")
    return _write(folder, name, title, config, body, DRIVE_SCRIPTS, data, subtitle)


def write_drives_report(
    folder: ResultsFolder,
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    parts: Sequence[str],
) -> Path:
    """Write the page over several drives: metrics of all, by lighting, and links to each."""
    links = "".join(
        f'<li><a href="{escape(part)}report.html">{escape(source["name"])}</a> '
        f"({escape(source['condition'] or 'lighting unknown')})"
        f"<br>{escape(source['verdict'])}</li>"
        for part, source in zip(parts, metrics["sources"].values(), strict=True)
    )
    body = "".join(map(_warning_html, metrics.get("warnings", ())))
    body += _section("Drives", f"<ul>{links}</ul>")
    body += _metrics_html("All drives together", metrics["methods"])
    for condition, by_method in metrics.get("conditions", {}).items():
        body += _metrics_html(f"Lighting: {condition}", by_method)
    return _write(folder, "report.html", f"Localization of {len(parts)} drives", config, body)


def write_simple_report(
    folder: ResultsFolder,
    title: str,
    config: Mapping[str, Any],
    *,
    verdict_text: str = "",
    summary: str = "",
    tables: Sequence[Table] = (),
    plots: Sequence[Plot] = (),
    widget: Widget | None = None,
    name: str = "report.html",
) -> Path:
    """Write what was found, in words, plots and tables, and how to repeat it.

    `config["command"]` is the command that makes it again, the rest is shown as settings.
    """
    words = "".join(f"<p>{escape(part)}</p>" for part in summary.split("\n\n") if part.strip())
    first = f'<p class="verdict">{escape(verdict_text)}</p>' if verdict_text else ""
    body = f'<section id="verdict">{first}{words}</section>' if first or words else ""
    body += _plots_html(plots)
    body += "".join(map(_table_html, tables))
    if widget is None:
        return _write(folder, name, title, config, body)
    scripts = f"{SIMPLE_SCRIPTS} {widget.script}"
    return _write(folder, name, title, config, body + widget.html, scripts, widget.data)


def write_check_report(
    folder: ResultsFolder,
    title: str,
    config: Mapping[str, Any],
    *,
    verdict_text: str,
    data: Mapping[str, Any],
    tiles: Sequence[tuple[str, str]],
    notes: Sequence[str],
    advice: Sequence[str],
    tables: Sequence[Table],
    plots: Sequence[Plot],
) -> Path:
    """Write `check.html`: a verdict, metrics in words, the plan in `data`, tables and plots."""
    body = _given_verdict_html(verdict_text)
    body += '<section class="tiles" aria-label="Main metrics">'
    body += "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for label, value in tiles
    )
    more = "".join(f"<li>{escape(line)}</li>" for line in advice)
    body += "</section>" + _page_part("check.html").replace(
        "{{ADVICE}}", f"<ul>{more}</ul>" if more else ""
    )
    body += _plots_html(plots)
    body += f'<section class="cards">{"".join(map(_table_html, tables))}</section>'
    body += _section("Notes", "".join(f"<p>{escape(line)}</p>" for line in notes))
    return _write(folder, "check.html", title, config, body, CHECK_SCRIPTS, data)


def write_chart_report(
    folder: ResultsFolder,
    title: str,
    config: Mapping[str, Any],
    verdict_text: str,
    data: Mapping[str, Any],
    metrics: Mapping[str, Mapping[str, float]],
    table: Table,
) -> Path:
    """Write a verdict, errors over time for each drive in `data`, metrics and a table."""
    body = _given_verdict_html(verdict_text) + '<section class="charts" id="charts"></section>'
    body += _metrics_html("Metrics", metrics) + _table_html(table)
    return _write(folder, "report.html", title, config, body, CHART_SCRIPTS, data)


def _write(
    folder: ResultsFolder,
    name: str,
    title: str,
    config: Mapping[str, Any],
    body: str,
    scripts: str = SIMPLE_SCRIPTS,
    data: Mapping[str, Any] | None = None,
    subtitle: str = "",
) -> Path:
    style = _page_part("style.css")
    script = "\n".join(_page_part(f"{name}.js") for name in scripts.split())
    values = {
        "POLICY": f"style-src {_checksum(style)}; script-src {_checksum(script)}",
        "STYLE": style,
        "SCRIPT": script,
        "TITLE": escape(title),
        "SUBTITLE": escape(subtitle),
        "AGAIN": _again_html(config),
        "BODY": body,
        "DATA": "" if data is None else _data_html(data),
    }
    # In one pass: what was put in cannot name a placeholder.
    page = re.sub(r"{{(\w+)}}", lambda found: values[found[1]], _page_part("page.html"))
    return folder.write_text(name, page)


def _data_html(data: Mapping[str, Any]) -> str:
    text = json.dumps(to_plain(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="data">{text}</script>'


def _again_html(config: Mapping[str, Any]) -> str:
    command = escape(str(config.get("command", "")))
    settings = {key: value for key, value in config.items() if key != "command"}
    settings |= {
        "made": time.strftime("%Y-%m-%d %H:%M"),
        "kbf_localization": __version__,
        "python": platform.python_version(),
    }
    rows = "".join(
        f"<tr><th>{escape(str(key))}</th><td>{escape(_shown(value))}</td></tr>"
        for key, value in settings.items()
    )
    again = f'<pre id="command" tabindex="0">{command}</pre>' if command else ""
    return f'{again}<div class="scroll"><table class="settings">{rows}</table></div>'


def _warning_html(line: str) -> str:
    return f'<section role="alert"><h2>Warning</h2><p>{escape(line)}</p></section>'


def _given_verdict_html(text: str) -> str:
    return f'<section id="verdict"><p class="verdict">{escape(text)}</p></section>'


def _verdict_html(runs: Mapping[str, Run]) -> str:
    """Return the first method's verdict large, the others' below it."""
    (first, run), *others = runs.items()
    small = "".join(
        f'<p class="muted"><b>{escape(name)}</b>: {escape(verdict(other))}</p>'
        for name, other in others
    )
    return (
        f'<section id="verdict" aria-label="Verdict on {escape(first)}">'
        f'<p class="verdict">{escape(verdict(run))}</p>{small}</section>'
    )


def _plots_html(plots: Sequence[Plot]) -> str:
    return f'<section class="plots">{"".join(map(_plot_html, plots))}</section>' if plots else ""


def _plot_html(plot: Plot) -> str:
    caption = escape(plot.caption)
    source = base64.b64encode(plot.path.read_bytes()).decode("ascii")
    return (
        f'<figure><img alt="{caption}" src="data:image/png;base64,{source}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _metrics_html(title: str, by_method: Mapping[str, Mapping[str, float]]) -> str:
    rows = metric_rows(by_method)
    tips = [row["tip"] for row in rows]
    cells = [(row["label"], *row["texts"]) for row in rows]
    return _table_html(Table(title, ("Metric", *by_method), cells), tips)


def _table_html(table: Table, tips: Sequence[str] = ()) -> str:
    """Return the table; `tips` are the rows' tooltips."""
    prose = [_is_prose([row[place] for row in table.rows]) for place in range(len(table.columns))]
    kinds = [' class="prose"' if flag else "" for flag in prose]
    head = "".join(
        f"<th{kind}>{escape(column)}</th>"
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = ""
    for row, tip in zip_longest(table.rows, tips):
        mark = f' data-tip="{escape(tip)}" tabindex="0"' if tip else ""
        texts = [_shown(cell) for cell in row]
        cells = "".join(
            f"<td{kind or LONG * (len(text) > MAX_UNBROKEN)}>{escape(text)}</td>"
            for kind, text in zip(kinds, texts, strict=True)
        )
        rows += f"<tr{mark}>{cells}</tr>"
    return _section(
        table.title,
        f'<div class="scroll"><table class="metrics"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>",
    )


def _is_prose(cells: Sequence[object]) -> bool:
    """Tell whether a column holds words, which are set flush left, and not figures."""
    known = [cell for cell in cells if cell not in (None, "", "–")]
    texts = [cell for cell in known if isinstance(cell, str)]
    words = [text for text in texts if len(text) > 16 or re.match(r"[^\d\s]*[^\W\d_]{2}", text)]
    return len(words) > len(known) / 2


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _shown(value: object) -> str:
    plain = to_plain(value)
    if plain is None:
        return "–"
    if isinstance(plain, float):
        return number_text(plain)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _page_part(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    """Return how a content security policy names an inline element's text."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
