# SPDX-License-Identifier: GPL-2.0
"""Our sections of MAINTAINERS: into the tree's file at their place, and out of it again."""
import re

from series_git import SeriesError

FIELD = re.compile(r"[A-Z]:\s")


def split(text):
    """Blocks of a MAINTAINERS file as (first line, last line + 1, title); a title has fields."""
    lines = text.split("\n")
    blocks, start = [], None
    for n, line in enumerate(lines + [""]):
        if line.strip():
            start = n if start is None else start
        elif start is not None:
            fields = lines[start + 1:n]
            # "M:" lines of the file's own legend are indented: no section begins with one.
            if fields and FIELD.match(fields[0]) and not FIELD.match(lines[start]) \
                    and not lines[start][0].isspace():
                blocks.append((start, n, lines[start]))
            start = None
    return lines, blocks


def sections(text):
    """{title: text of the section} in the file's order."""
    lines, blocks = split(text)
    out = {}
    for start, end, title in blocks:
        if title in out:
            raise SeriesError(f"MAINTAINERS: two sections {title!r}")
        out[title] = "\n".join(lines[start:end]) + "\n"
    return out


def own_sections(text, where):
    """Sections of the repository's file, which holds nothing else."""
    lines, blocks = split(text)
    covered = {n for start, end, _ in blocks for n in range(start, end)}
    for n, line in enumerate(lines):
        if line.strip() and n not in covered:
            raise SeriesError(f"{where}: line {n + 1} belongs to no section: {line[:60]!r}")
    return sections(text)


def titles(text):
    return [title for _, _, title in split(text)[1]]


def insert(text, section, title):
    """The file with the section where its title sorts; the list is not perfectly sorted."""
    lines, blocks = split(text)
    if title in [name for _, _, name in blocks]:
        raise SeriesError(f"MAINTAINERS: the tree has a section {title!r} already")
    if not blocks:
        raise SeriesError("MAINTAINERS: no sections in the tree's file")
    before, previous = None, ""
    for start, _, name in blocks:
        if previous < title < name and not name.startswith("* "):
            before = start
            break
        previous = name
    if before is None:
        # After everything; the catch-all stays last.
        last = blocks[-1]
        before = last[0] if last[2] == "THE REST" else None
    new = section.rstrip("\n").split("\n")
    if before is None:
        end = blocks[-1][1]
        return "\n".join(lines[:end] + [""] + new + lines[end:])
    return "\n".join(lines[:before] + new + [""] + lines[before:])


def remove(text, title):
    """The inverse of insert()."""
    lines, blocks = split(text)
    for start, end, name in blocks:
        if name != title:
            continue
        if end < len(lines) and any(l.strip() for l in lines[end:]):
            return "\n".join(lines[:start] + lines[end + 1:])
        return "\n".join(lines[:start - 1] + lines[end:])
    raise SeriesError(f"MAINTAINERS: no section {title!r}")


def signed(section, who):
    """A section without a person names whoever signs the series."""
    head, _, rest = section.partition("\n")
    if re.search(r"^M:\s", rest, re.M):
        return section
    return f"{head}\nM:\t{who}\n{rest}"


def unsigned(section, signers):
    """The inverse of signed()."""
    head, _, rest = section.partition("\n")
    first, _, tail = rest.partition("\n")
    if first in {f"M:\t{who}" for who in signers} and not re.search(r"^M:\s", tail, re.M):
        return f"{head}\n{tail}"
    return section
