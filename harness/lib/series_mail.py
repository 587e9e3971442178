# SPDX-License-Identifier: GPL-2.0
"""The patch mail: what series/NNNN-slug.patch may hold, read and written."""
import re
from dataclasses import dataclass, field

from series_git import ENCODING, SeriesError

NAME = re.compile(r"(\d{4})-([A-Za-z0-9._-]+)\.patch")
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
TRAILER = re.compile(r"[A-Za-z][A-Za-z0-9-]*: \S.*")
WIDTH = 100


def slug(subject):
    """The name git format-patch would choose, without its number."""
    text = re.sub(r"[^A-Za-z0-9._]+", "-", subject).strip("-.")
    text = re.sub(r"\.{2,}", ".", text)
    return text[:52].rstrip("-.") or "patch"


def unquote(path):
    """Git's C-style quoting of unusual paths."""
    if not (len(path) >= 2 and path[0] == '"' and path[-1] == '"'):
        return path
    simple = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, '"': 34, "\\": 92}
    out, i, body = bytearray(), 0, path[1:-1]
    while i < len(body):
        if body[i] == "\\" and re.match(r"[0-7]{3}", body[i + 1:]):
            out.append(int(body[i + 1:i + 4], 8) & 255)
            i += 4
        elif body[i] == "\\" and i + 1 < len(body):
            out.append(simple.get(body[i + 1], ord("?")))
            i += 2
        else:
            out += body[i].encode(**ENCODING)
            i += 1
    return out.decode(**ENCODING)


@dataclass
class Section:
    """The part of a diff that concerns one file."""
    old: str
    new: str
    head: list                  # lines before the first hunk
    hunks: list = field(default_factory=list)       # each a list of lines, header first
    kind: str = "edit"          # edit, add, delete, rename, copy

    def text(self):
        return "".join(line + "\n" for part in [self.head, *self.hunks] for line in part)

    def normal(self):
        """What it does, apart from where in the file: line numbers drift with the base."""
        binary = any(line == "GIT binary patch" for line in self.head)
        out = [l for l in self.head if binary or not l.startswith("index ")]
        for hunk in self.hunks:
            out += ["@@", *hunk[1:]]
        return out

    def hunk_at(self, line):
        """Names the hunk that git says starts at this line, on either side."""
        for n, hunk in enumerate(self.hunks, 1):
            match = HUNK.match(hunk[0])
            if line in (int(match[1]), int(match[3])):
                return f"hunk {n} of {len(self.hunks)} ({hunk[0].strip()})"
        return f"a hunk at line {line}"


@dataclass
class Patch:
    name: str                   # NNNN-slug.patch
    subject: str
    body: str = ""
    headers: dict = field(default_factory=dict)     # From, Date: rarely there
    below: list = field(default_factory=list)       # lines between --- and the diff
    sections: list = field(default_factory=list)
    origin: object = None       # the mail that this one replaces

    @property
    def slug(self):
        return NAME.fullmatch(self.name)[2]

    def _marked(self, key):
        return [l.split(":", 1)[1].strip() for l in self.below if l.startswith(key + ":")]

    @property
    def adds(self):
        return [path for value in self._marked("Adds") for path in value.split()]

    @property
    def maintainers(self):
        return self._marked("Maintainers")

    @property
    def notes(self):
        """What a reviewer may read below the dashes: a change log, say."""
        text = [l for l in self.below if not l.startswith(("Adds:", "Maintainers:"))]
        return "\n".join(text).strip("\n")

    def text(self):
        head = "".join(f"{key}: {value}\n" for key, value in self.headers.items())
        body = self.body + "\n\n" if self.body else ""
        return (head + f"Subject: [PATCH] {self.subject}\n\n{body}---\n" +
                "".join(line + "\n" for line in self.below) +
                "".join(section.text() for section in self.sections))

    def message(self, signer):
        """The commit message: the sign-off joins the trailers that are there."""
        body = self.body
        if body:
            body += "\n" if ends_in_trailers(body) else "\n\n"
        return f"{self.subject}\n\n{body}Signed-off-by: {signer}\n"


def ends_in_trailers(body):
    return all(TRAILER.fullmatch(line) for line in body.rsplit("\n\n", 1)[-1].split("\n"))


def strip_signoff(body, signers):
    lines = body.rstrip("\n").split("\n")
    if lines[-1] in {f"Signed-off-by: {who}" for who in signers}:
        lines.pop()
    return "\n".join(lines).strip("\n")


def with_markers(below, adds, maintainers):
    """The lines below the dashes with these markers; as they are if they say so already."""
    probe = Patch("", "", below=below)
    if probe.adds == adds and probe.maintainers == maintainers:
        return below
    lines, row = [], "Adds:"
    for path in adds:
        if row != "Adds:" and len(row) + 1 + len(path) > WIDTH:
            lines.append(row)
            row = "Adds:"
        row += " " + path
    if row != "Adds:":
        lines.append(row)
    lines += [f"Maintainers: {title}" for title in maintainers]
    rest = [l for l in below if not l.startswith(("Adds:", "Maintainers:"))]
    return lines + rest


def _paths(lines, where):
    """(old, new) of a section: from its own lines, else from the diff line."""
    old = new = None
    for line in lines:
        if line.startswith(("--- ", "+++ ")) and not line[4:].startswith("/dev/null"):
            path = unquote(line[4:].split("\t", 1)[0])
            if path[:2] not in ("a/", "b/"):
                raise SeriesError(f"{where}: path {path!r} lacks its a/ or b/")
            if line[0] == "-":
                old = path[2:]
            else:
                new = path[2:]
        elif line.startswith(("rename from ", "copy from ")):
            old = unquote(line.split(" from ", 1)[1])
        elif line.startswith(("rename to ", "copy to ")):
            new = unquote(line.split(" to ", 1)[1])
    if old or new:
        return old or new, new or old
    rest = lines[0][len("diff --git "):]
    match = re.fullmatch(r'a/(.+) b/\1', rest)
    if match:
        return match[1], match[1]
    match = re.fullmatch(r'("a/.+") ("b/.+")', rest)
    if match and unquote(match[1])[2:] == unquote(match[2])[2:]:
        return unquote(match[1])[2:], unquote(match[1])[2:]
    raise SeriesError(f"{where}: cannot tell which file this is about: {lines[0]}")


def parse_diff(text, where):
    """Sections of a git diff; every hunk is counted, so a broken one is named."""
    sections, current = [], None
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.startswith("diff --git "):
            current = Section("", "", [line])
            sections.append(current)
            i += 1
        elif current is None:
            raise SeriesError(f"{where}: text where the diff should begin: {line[:60]!r}")
        elif line.startswith("@@"):
            i = _hunk(lines, i, current, where)
        elif line == "-- " or (current.hunks and not line.strip()):
            # A mail's signature, left from git format-patch.
            rest = lines[i + 1:]
            if any(l.startswith("diff --git ") for l in rest) or len(rest) > 3:
                raise SeriesError(f"{where}: stray text after a hunk: {line!r}")
            break
        elif current.hunks:
            raise SeriesError(f"{where}: {_paths(current.head, where)[1]}: hunk "
                              f"{len(current.hunks)} has more lines than its header says")
        else:
            current.head.append(line)
            i += 1
    for section in sections:
        section.old, section.new = _paths(section.head, where)
        for line in section.head:
            for key, kind in (("new file mode", "add"), ("deleted file mode", "delete"),
                              ("rename from", "rename"), ("copy from", "copy")):
                if line.startswith(key):
                    section.kind = kind
    return sections


def _hunk(lines, i, section, where):
    match = HUNK.match(lines[i])
    label = f"{where}: {_paths(section.head, where)[1]}: hunk {len(section.hunks) + 1}"
    if not match:
        raise SeriesError(f"{label}: malformed header {lines[i]!r}")
    old, new = (int(match[n]) if match[n] is not None else 1 for n in (2, 4))
    hunk = [lines[i]]
    i += 1
    while old > 0 or new > 0 or (i < len(lines) and lines[i].startswith("\\")):
        if i >= len(lines) or (lines[i] and lines[i][0] not in " +-\\"):
            raise SeriesError(f"{label}: has fewer lines than its header says: {hunk[0]}")
        mark = lines[i][:1] or " "
        old -= mark in " -"
        new -= mark in " +"
        hunk.append(lines[i] or " ")
        i += 1
    if old < 0 or new < 0:
        raise SeriesError(f"{label}: its lines do not add up to its header: {hunk[0]}")
    section.hunks.append(hunk)
    return i


def parse(name, text, where):
    """A patch mail from its text; where names it in messages."""
    if not NAME.fullmatch(name):
        raise SeriesError(f"{where}: a patch is named NNNN-slug.patch")
    head, sep, rest = text.partition("\n\n")
    if not sep:
        raise SeriesError(f"{where}: not a patch mail: no blank line after the headers")
    headers = {}
    key = None
    for line in head.split("\n"):
        if line[:1] in (" ", "\t") and key:
            headers[key] += " " + line.strip()
            continue
        key, colon, value = line.partition(":")
        if key.startswith("From ") and not headers:
            key = None          # an mbox separator
            continue
        if not colon or key not in ("Subject", "From", "Date"):
            raise SeriesError(f"{where}: unexpected header {line!r} (Subject, From, Date)")
        headers[key] = value.strip()
    subject = re.sub(r"^\[PATCH[^]]*\]\s*", "", headers.pop("Subject", ""))
    if not subject:
        raise SeriesError(f"{where}: no Subject")
    if rest.startswith("---\n"):
        body, rest = "", rest[4:]
    else:
        body, sep, rest = rest.partition("\n---\n")
        if not sep:
            raise SeriesError(f"{where}: no --- line between the message and Adds: or the diff")
    for line in body.split("\n"):
        if line.startswith(("diff -", "Index: ", "---")):
            raise SeriesError(f"{where}: git am would cut the message at {line[:40]!r}: indent it")
    match = re.search(r"^diff --git ", rest, re.M)
    below, diff = (rest[:match.start()], rest[match.start():]) if match else (rest, "")
    below = below.split("\n")
    if below[-1] == "":
        below.pop()
    patch = Patch(name, subject, body.strip("\n"), headers, below, parse_diff(diff, where))
    if not patch.sections and not patch.adds and not patch.maintainers:
        raise SeriesError(f"{where}: changes nothing: no diff, no Adds:")
    return patch
