#!/usr/bin/env python3
"""Writes the tables of results into the documents: `bench/tables.py`. With `--check` nothing is written, and the exit
status is 1 if a document differs from the results.

Each file bench/results/NAME.json is one table. A document shows the table between two markers:

    <!-- table: NAME -->                     all rows
    <!-- table: NAME; tokens: 1, 64 -->      the rows whose column `tokens` is 1 or 64
    <!-- end -->

README.md has no markers: a table of results/readme-*.json replaces the table with the same first line there."""
import difflib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
FIELDS = {"title", "command", "device", "ranks", "driver", "commit", "date", "peers", "columns", "rows"}
MARKED = re.compile(r"(<!-- table: ([\w-]+)(?:; ([^:>]+): ([^>]+))? -->\n).*?(<!-- end -->)", re.DOTALL)


class Wrong(Exception):
    """A file of results or a marker is not as the documentation above says."""


def load(name):
    """The table; numbers stay as they are written, so that 4.20 does not become 4.2."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        raise Wrong(f"{path.relative_to(ROOT)} does not exist")
    table = json.loads(path.read_text(), parse_float=str, parse_int=str)
    if table.keys() != FIELDS:
        raise Wrong(f"{path.name} has the fields {sorted(table)} instead of {sorted(FIELDS)}")
    for row in table["rows"]:
        if len(row) != len(table["columns"]):
            raise Wrong(f"{path.name} has a row of {len(row)} cells and {len(table['columns'])} columns: {row}")
    return table


def lines(table, rows):
    """The table in Markdown."""
    text = ["| " + " | ".join("-" if cell is None else cell for cell in row) + " |" for row in [table["columns"], *rows]]
    return [text[0], "|" + "---|" * len(table["columns"]), *text[1:]]


def caption(table):
    """Where and when the figures were measured."""
    ranks, device = table["ranks"], table["device"]
    where = [(device or "device not recorded") + (f", {ranks} ranks" if ranks else "")]
    if not (device or "").startswith("CPU"):
        where.append(f"driver {table['driver'] or 'not recorded'}")
    where += [f"{peer} {version or '(version not recorded)'}" for peer, version in table["peers"].items()]
    text = f"**{table['title']}.** {', '.join(where)}. Recorded in {table['commit']}, {table['date']}"
    return text + (f": `{table['command']}`" if table["command"] else "; command not recorded") + "."


def region(match):
    """A region of a document, from its first marker to its last."""
    start, name, column, values, end = match.groups()
    table = load(name)
    rows = table["rows"]
    if column:
        if column not in table["columns"]:
            raise Wrong(f"{name} has no column `{column}`")
        at, wanted = table["columns"].index(column), [value.strip() for value in values.split(",")]
        unknown = set(wanted) - {row[at] for row in rows}
        if unknown:
            raise Wrong(f"{name} has no rows {sorted(unknown)} in `{column}`")
        rows = [row for row in rows if row[at] in wanted]
    return "\n".join([start + caption(table), "", *lines(table, rows), end])


def written(path):
    """The document as it should be."""
    text = MARKED.sub(region, path.read_text())
    if path.name != "README.md":
        return text
    for result in sorted(RESULTS.glob("readme-*.json")):
        table = load(result.stem)
        new = lines(table, table["rows"])
        old = re.search(re.escape(new[0]) + r"\n(?:\|.*\n)*", text)
        if not old:
            raise Wrong(f"README.md has no table that begins with {new[0]}")
        text = text[: old.start()] + "\n".join(new) + "\n" + text[old.end() :]
    return text


def main(check):
    documents = [ROOT / "README.md", ROOT / "PERFORMANCE.md", *sorted((ROOT / "docs" / "design").glob("*.md"))]
    used, status = set(), 0
    for path in documents:
        old, new = path.read_text(), written(path)
        used.update(match[1] for match in MARKED.findall(new))
        if old == new:
            continue
        status = 1
        if check:
            name = str(path.relative_to(ROOT))
            sys.stderr.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "results"))
        else:
            path.write_text(new)
    unused = {path.stem for path in RESULTS.glob("*.json") if not path.stem.startswith("readme-")} - used
    if unused:
        raise Wrong(f"no document shows {sorted(unused)}")
    return status if check else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: bench/tables.py [--check]")
    try:
        sys.exit(main(sys.argv[1:] == ["--check"]))
    except Wrong as error:
        sys.exit(f"bench/tables.py: {error}")
