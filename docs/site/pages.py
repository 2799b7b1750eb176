"""Write the pages of the site as Markdown that any site builder can read.

    python docs/site/pages.py            # write build/pages

Notebooks without an executed copy are run first. The pages link to files by their place in the
repository (`../figures/x.png`), so the links also work on a code host. This script rewrites these
links for the site and copies the files that they lead to.
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
from redirects import write_redirects

ROOT = Path(__file__).resolve().parents[2]
MODELS = tuple(f"data/models/{name}" for name in ("facts-2m", "facts-1m"))
DATASHEETS = ("data/paper", "data/world_facts", *MODELS)
NOTEBOOKS = {
    f"notebooks/{p.name}": f"notebooks/{p.stem}.md"
    for p in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
}
# Places on the site of Markdown files outside docs/
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
PAGES |= {f"{folder}/README.md": f"data/{Path(folder).name}.md" for folder in DATASHEETS}
DOCS = [
    p.relative_to(ROOT).as_posix()
    for p in sorted((ROOT / "docs").rglob("*.md"))
    if p.parent.name != "examples"
]
# Pages without the list of neighbouring pages
ALONE = ("index.md", "gallery.md")
LINK = re.compile(
    r'(\]\(|(?:src|srcset)="(?=(?:\.\./)*images/))(?!https?:|mailto:|#)([^)#\s"]+)'
    r'(#[^)\s]*)?(\)|")'
)
# The site shows the explorer itself in the place of README's picture of it
EXPLORER_PICTURE = re.compile(
    r"<picture>.*?</picture>\n\n<!-- the explorer, on the site -->", re.DOTALL
)


def make(out: Path, executed: Path | None) -> None:
    """Write all pages and the files that they link to into a new folder.

    Args:
        out: the folder.
        executed: folder of executed copies of the notebooks; None shows notebooks without outputs.

    Raises:
        PageError: if a link leads to a missing file, or a formula cannot be parsed.
    """
    shutil.rmtree(out, ignore_errors=True)
    (out / "notebooks").mkdir(parents=True)
    texts = {name: cells.with_captions((ROOT / name).read_text()) for name in [*PAGES, *DOCS]}
    explorer_frame = cells.EXPLORER.format(place="")
    texts["README.md"], count = EXPLORER_PICTURE.subn(explorer_frame, texts["README.md"])
    if count != 1:
        raise PageError("README.md has no picture above <!-- the explorer, on the site -->")
    for name in NOTEBOOKS:
        copy = executed / Path(name).name if executed else None
        texts[name] = cells.page(ROOT / name, copy, out / "notebooks")
    texts |= {name: api.page(name) for name in api.MODULES}
    texts |= {"docs/api/index.md": api.index(), "docs/gallery.md": gallery()}
    site_files = {
        "explorer.html",
        *map(place, texts),
        *(file.relative_to(out).as_posix() for file in out.rglob("*.*")),
    }
    for name, text in texts.items():
        site = place(name)
        text = outside_code(
            typeset(unescaped(text)), partial(LINK.sub, partial(turned, name, site_files, out))
        )
        head = "---\nhide: [navigation]\n---\n\n" if site in ALONE else ""
        (out / site).parent.mkdir(parents=True, exist_ok=True)
        (out / site).write_text(head + text)
    for name in ("site.css", "site.js"):
        shutil.copy(Path(__file__).with_name(name), out)
    write_redirects(out)


def turned(name: str, site_files: set[str], out: Path, link: re.Match) -> str:
    """Return a link rewritten for the site; copy its file there if it is not a page."""
    start, target, anchor, end = link.groups()
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source(name)), target))
    site = place(path)
    if site not in site_files:
        if not (ROOT / path).is_file():
            raise PageError(f"{name} links to {target}, which is not a file")
        (out / site).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, out / site)
        site_files.add(site)
    relative = posixpath.relpath(site, posixpath.dirname(place(name)) or ".")
    return f"{start}{relative}{anchor or ''}{end}"


def source(name: str) -> str:
    """Return the path from which the links of a page start."""
    return f"docs/{api.MODULES[name]}" if name in api.MODULES else name


def place(path: str) -> str:
    """Return the place of a repository file on the site."""
    return (PAGES | NOTEBOOKS | api.MODULES).get(path, path.removeprefix("docs/"))


def unescaped(markdown: str) -> str:
    r"""Return the text with `\|` in table code as `|`; only code hosts need the backslash."""
    rows = re.compile(r"^\|.*$", re.MULTILINE)
    return rows.sub(
        lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), row[0]), markdown
    )


def gallery() -> str:
    """Return a page with every figure, its caption and links."""
    parts = [
        "# All figures\n",
        "This page shows all figures of the notebooks for the bundled models. Some figures also",
        "exist for SmolLM2-135M, for Gemma 3 270M and for",
        "[published outputs of large models](results/real_models.md).",
        "A click on a figure opens its notebook.\n",
    ]
    for name in NOTEBOOKS:
        parts.append(f"## {cells.title(ROOT / name)}\n")
        for figure, heading in cells.headings(ROOT / name).items():
            paths = [figure]
            paths += [f"{folder}/{figure}" for folder in ("smollm2", "gemma-3-270m", "real_models")]
            drawn = [f for f in paths if (ROOT / "figures" / f"{f}.png").is_file()]
            pictures = " ".join(
                f"[![{f}](../figures/{f}.png){{ loading=lazy }}](../{name})" for f in drawn
            )
            files = [f"[SVG](../figures/{f}.svg) · [numbers](../figures/{f}.csv)" for f in drawn]
            caption = cells.caption(f"figures/{figure}")
            text = f"**{heading}.** {caption} {' · real models: '.join(files)}"
            parts.append(f'<div class="gallery" markdown="1">\n\n{pictures}\n\n{text}\n\n</div>\n')
    return "\n".join(parts)


def explorer(path: Path, *, plain: bool) -> None:
    """Write the explorer of 300 exact searches, which is small enough for the first page."""
    from pro_lib.app.experiment import Experiment
    from pro_lib.app.explorer import appendix_run, to_html

    if plain:
        to_html(appendix_run(), path)
        return
    experiment = Experiment(strategy="threshold", search_alpha=0.005)
    run = experiment.run_of_both_splits("facts-2m", "world-facts")
    reported = run.questions.query("split == 'test'")["question_id"]
    to_html(run.select(question_ids=list(reported[:300])), path)


def run_missing(executed: Path) -> None:
    """Run the notebooks without an executed copy of their present state."""
    run = [sys.executable, "-m", "pro_lib", "run", "--executed", str(executed)]
    for name in NOTEBOOKS:
        if not cells.executed(ROOT / name, executed / Path(name).name):
            subprocess.run([*run, str(ROOT / name)], cwd=ROOT, check=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Write the pages of the site.")
    parser.add_argument(
        "--executed",
        type=Path,
        default=ROOT / "build" / "notebooks",
        help="folder of executed copies",
    )
    parser.add_argument(
        "--plain", action="store_true", help="quick build: no notebook outputs, a small explorer"
    )
    arguments = parser.parse_args()
    out = ROOT / "build" / "pages"
    try:
        if not arguments.plain:
            run_missing(arguments.executed)
        make(out, None if arguments.plain else arguments.executed)
        explorer(out / "explorer.html", plain=arguments.plain)
    except (PageError, subprocess.CalledProcessError) as error:
        sys.exit(f"docs/site/pages.py: {error}")


if __name__ == "__main__":
    main()
