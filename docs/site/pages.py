"""Makes the pages of the site, as Markdown that any builder can read; knows where files go, and no builder.

    python docs/site/pages.py            # into build/pages; notebooks are run that no executed copy is there of

A page links to files by their place in the repository (`../figures/x.png`), so that it reads right on a code-hosting
page too. Here these links are turned to where the file is on the site, and what they lead to is copied there.
"""

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import api
import cells
from formulas import PageError, outside_code, typeset

ROOT = Path(__file__).resolve().parents[2]
MODELS = tuple(f"data/models/{name}" for name in ("facts-2m", "facts-1m"))
DATASHEETS = ("data/paper", "data/world_facts", *MODELS)
NOTEBOOKS = {
    f"notebooks/{p.name}": f"notebooks/{p.stem}.md"
    for p in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
}
# Where a Markdown file goes that is not at its place below docs/; examples are parts of the API's pages.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
PAGES |= {f"{folder}/README.md": f"data/{Path(folder).name}.md" for folder in DATASHEETS}
DOCS = [
    p.relative_to(ROOT).as_posix()
    for p in sorted((ROOT / "docs").rglob("*.md"))
    if p.parent.name != "examples"
]
# Without neighbours there is no list of them to show
ALONE = (
    "index.md",
    "quick_start.md",
    "gallery.md",
)
LINK = re.compile(
    r'(\]\(|(?:src|srcset)="(?=images/))(?!https?:|mailto:|#)([^)#\s"]+)(#[^)\s]*)?(\)|")'
)
EXPLORER_HERE = "<!-- the explorer, on the site -->"


def make(out: Path, executed: Path | None) -> None:
    """Write all pages and what they link to into a new folder; notebooks with the outputs of their copies, if given.

    Raises `PageError` for a link to what is not there, a formula that cannot be read.
    """
    shutil.rmtree(out, ignore_errors=True)
    (out / "notebooks").mkdir(parents=True)
    texts = {name: (ROOT / name).read_text() for name in [*PAGES, *DOCS]}
    if EXPLORER_HERE not in texts["README.md"]:
        raise PageError(f"README.md has no {EXPLORER_HERE}, which says where the explorer goes")
    texts["README.md"] = texts["README.md"].replace(EXPLORER_HERE, cells.EXPLORER.format(place=""))
    for name in NOTEBOOKS:
        copy = executed / Path(name).name if executed else None
        texts[name] = cells.page(ROOT / name, copy, out / "notebooks")
    texts |= {name: api.page(name) for name in api.MODULES}
    texts |= {"docs/api/index.md": api.index(), "docs/gallery.md": gallery()}
    made = {
        "explorer.html",
        *map(place, texts),
        *(file.relative_to(out).as_posix() for file in out.rglob("*.*")),
    }
    for name, text in texts.items():
        site = place(name)
        text = outside_code(
            typeset(unescaped(text)), partial(LINK.sub, partial(turned, name, made, out))
        )
        head = "---\nhide: [navigation]\n---\n\n" if site in ALONE else ""
        (out / site).parent.mkdir(parents=True, exist_ok=True)
        (out / site).write_text(head + text)
    for name in ("site.css", "site.js"):
        shutil.copy(Path(__file__).with_name(name), out)


def turned(name: str, made: set[str], out: Path, link: re.Match) -> str:
    """The link with the place on the site of what it leads to, which is copied there unless it is made."""
    start, target, anchor, end = link.groups()
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source(name)), target))
    site = place(path)
    if site not in made:
        if not (ROOT / path).is_file():
            raise PageError(f"{name} links to {target}, which is not a file")
        (out / site).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, out / site)
        made.add(site)
    return f"{start}{posixpath.relpath(site, posixpath.dirname(place(name)) or '.')}{anchor or ''}{end}"


def source(name: str) -> str:
    """Where the links of a page start from; a module's are those of the docs."""
    return f"docs/{api.MODULES[name]}" if name in api.MODULES else name


def place(path: str) -> str:
    """Where a file of the repository is on the site."""
    return (PAGES | NOTEBOOKS | api.MODULES).get(path, path.removeprefix("docs/"))


def unescaped(markdown: str) -> str:
    """The text with `\\|` in code in tables as `|`: this Markdown wants no backslash there, code hosts do."""
    rows = re.compile(r"^\|.*$", re.MULTILINE)
    return rows.sub(
        lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), row[0]), markdown
    )


def gallery() -> str:
    """Every figure, small, with what its notebook says is to be seen; that of real models beside it."""
    parts = [
        "# Gallery\n",
        "Every figure that the notebooks leave: of the embedded models and, where there is one, of SmolLM2-135M",
    ]
    parts += [
        "and of [published outputs of large models](real_models.md). A picture leads to its notebook.\n"
    ]
    for name in NOTEBOOKS:
        parts.append(f"## {cells.title(ROOT / name)}\n")
        for figure, (heading, sentence) in cells.what_to_see(ROOT / name).items():
            paths = (figure, f"smollm2/{figure}", f"real_models/{figure}")
            drawn = [f for f in paths if (ROOT / "figures" / f"{f}.png").is_file()]
            pictures = " ".join(
                f"[![{f}](../figures/{f}.png){{ loading=lazy }}](../{name})" for f in drawn
            )
            files = [f"[SVG](../figures/{f}.svg) · [numbers](../figures/{f}.csv)" for f in drawn]
            said = f"**{heading}.** {sentence} {' · real models: '.join(files)}"
            parts.append(f'<div class="gallery" markdown="1">\n\n{pictures}\n\n{said}\n\n</div>\n')
    return "\n".join(parts)


def explorer(path: Path, *, plain: bool) -> None:
    """The explorer of 300 exact searches that notebook 09 reads, small enough for a first page."""
    from pro_lib.app.experiment import Experiment
    from pro_lib.app.explorer.page import appendix_run, to_html

    if plain:
        to_html(appendix_run(), path)
        return
    pair = "facts-2m", "world-facts"
    run = Experiment(
        model=pair[0], dataset=pair[1], strategy="threshold", search_alpha=0.005
    ).both_splits(*pair)
    to_html(
        run.select(question_ids=list(run.questions.query("split == 'test'")["question_id"][:300])),
        path,
    )


def run_missing(executed: Path) -> None:
    """Run the notebooks of which no executed copy is there, or one of another state."""
    missing = [
        name for name in NOTEBOOKS if not cells.executed(ROOT / name, executed / Path(name).name)
    ]
    for name in missing:
        command = [
            sys.executable,
            "-m",
            "pro_lib",
            "run",
            str(ROOT / name),
            "--executed",
            str(executed),
        ]
        subprocess.run(command, cwd=ROOT, check=True)


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="Make the pages of the site.")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "pages", help="folder of the pages, made anew"
    )
    parser.add_argument(
        "--executed",
        type=Path,
        default=ROOT / "build" / "notebooks",
        help="folder of executed copies",
    )
    parser.add_argument("--plain", action="store_true", help="quick: no outputs, a small explorer")
    arguments = parser.parse_args()
    try:
        if not arguments.plain:
            run_missing(arguments.executed)
        make(arguments.out, None if arguments.plain else arguments.executed)
        explorer(arguments.out / "explorer.html", plain=arguments.plain)
    except (PageError, subprocess.CalledProcessError) as error:
        sys.exit(f"docs/site/pages.py: {error}")


if __name__ == "__main__":
    main()
