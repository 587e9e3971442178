# SPDX-License-Identifier: GPL-2.0
"""From the assembled branch to what one sends: mails per topic, a quilt directory, a bundle."""
import os
import re
import shutil
import subprocess
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

import series_mail as mail
import series_maintainers as maintainers
from series_assemble import say
from series_git import ENCODING, SeriesError, clean_env, identity
from series_project import read

SUBJECT, BLURB = "*** SUBJECT HERE ***", "*** BLURB HERE ***"
FORMAT = ("--no-color", "--no-ext-diff", "--no-textconv", "--binary", "-M",
          "--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/", "--no-attach", "--no-relative")


def cover_letter(project, topic):
    """(subject, text) of a topic's own letter or of the shared one; None if there is neither."""
    own = project.series / "cover" / topic
    for path in (own, project.series / "0000-cover-letter"):
        if path.is_file():
            head, _, body = read(path).partition("\n\n")
            match = re.fullmatch(r"Subject: (?:\[PATCH[^]]*\] *)?(\S.*)", head.strip())
            if not match or not body.strip():
                raise SeriesError(f"{project.show(path)}: wanted: a Subject: line, a blank line, "
                                  "the text")
            return match[1], body.strip("\n"), path == own
    return None


def recipients(project, git, tip, mails):
    """(to, cc) for a thread, as the tree's own script and MAINTAINERS name them."""
    script = git.show(tip, "scripts/get_maintainer.pl")
    if script is None:
        return from_maintainers(git.show(tip, "MAINTAINERS") or "", mails)
    with tempfile.TemporaryDirectory(dir=project.scratch) as top:
        # The script wants to stand in a kernel tree, and of it reads these alone.
        top = Path(top)
        for name in "Documentation arch include drivers fs init ipc kernel lib scripts".split():
            (top / name).mkdir()
        for name in "COPYING CREDITS Kbuild Makefile README".split():
            (top / name).touch()
        for name in "MAINTAINERS .get_maintainer.ignore .mailmap".split():
            text = git.show(tip, name)
            if text is not None:
                (top / name).write_text(text, **ENCODING)
        path = top / "scripts" / "get_maintainer.pl"
        path.write_text(script, **ENCODING)

        run = subprocess.run(["perl", str(path), "--nogit", "--nogit-fallback", "--nofixes",
                              "--rolestats", *map(str, mails)], cwd=top, env=clean_env(),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, check=False)
    if run.returncode:
        raise SeriesError("scripts/get_maintainer.pl failed: "
                          + run.stderr.decode(**ENCODING).strip())
    to, cc = [], []
    for line in run.stdout.decode(**ENCODING).split("\n"):
        match = re.fullmatch(r"(.*\S) \(([^()]*(?:\([^()]*\)[^()]*)*)\)", line.strip())
        if match:
            roles = re.match(r"(maintainer|supporter|odd fixer)", match[2])
            (to if roles else cc).append(match[1])
    return to, cc


def from_maintainers(text, mails):
    """For a tree without the script: the sections whose F: pattern a mail touches."""
    touched = set()
    for path in mails:
        touched |= set(re.findall(r"^(?:\+\+\+ b|--- a)/(.*)$", read(path), re.M))
    to, cc = [], sorted(set(re.findall(r"^(?:L:\s+)?(\S+@vger\.kernel\.org)\b.*$", text, re.M)))
    for title, section in maintainers.sections(text).items():
        patterns = re.findall(r"^F:\s+(\S+)$", section, re.M)
        hit = title.startswith("* ") or any(
            path.startswith(p) if p.endswith("/") else
            fnmatchcase(path, p) and path.count("/") == p.count("/")
            for p in patterns for path in touched)
        if hit:
            to += re.findall(r"^M:\s+(.*\S)\s*$", section, re.M)
            cc += re.findall(r"^L:\s+(\S+)", section, re.M)
    return list(dict.fromkeys(to)), [c for c in dict.fromkeys(cc) if c not in to]


def format_patch(git, out, first, last, who, *options):
    """git format-patch of first..last; returns the files."""
    named = git.using(GIT_COMMITTER_NAME=who[0], GIT_COMMITTER_EMAIL=who[1])
    named.run("format-patch", "-q", *FORMAT, *options, "-o", out, f"{first}..{last}")
    return sorted(Path(out).glob("*.patch"))


def add_notes(paths, patches):
    """What stands below the dashes in the series goes below the dashes of the mail."""
    for path, patch in zip(paths, patches):
        if patch.notes:
            text = read(path)
            head, dashes, rest = text.partition("\n---\n")
            path.write_text(head + dashes + patch.notes + "\n\n" + rest, newline="", **ENCODING)


def fill_cover(path, subject, text, topic, topics, patches, label):
    """The cover letter's text, and what a reader must have applied before this thread."""
    needs = []
    for name in topic["needs"]:
        first = next(t for t in topics if t["name"] == name)
        needs += [p.subject for p in patches if p.name in first["patches"]]
    more = f"\nApplies to {label}"
    if needs:
        more += ", after:\n" + "".join(f"  {s}\n" for s in needs)
    else:
        more += "; needs no other thread.\n"
    out = read(path)
    if SUBJECT not in out or BLURB not in out:
        raise SeriesError(f"{path}: no place for the cover letter's text")
    if not subject.isascii():
        raise SeriesError(f"cover letter of {topic['name']}: the subject is to be plain ASCII")
    path.write_text(out.replace(SUBJECT, subject, 1).replace(BLURB, text + "\n" + more, 1),
                    newline="", **ENCODING)


def thread(project, git, topic, topics, patches, commits, who, label, options):
    """One topic's mails, in a directory of their own; returns their number."""
    out = project.out / "mails" / topic["name"]
    names = [p.name for p in patches]
    first = names.index(topic["patches"][0])
    last = first + len(topic["patches"]) - 1
    letter = cover_letter(project, topic["name"])
    cover = letter and (letter[2] or first != last)
    if first != last and not letter:
        raise SeriesError(f"{project.show(project.series)}: no cover letter for {topic['name']}: "
                          f"write cover/{topic['name']} or 0000-cover-letter")
    span = (commits[first], commits[last + 1])
    with tempfile.TemporaryDirectory(dir=project.scratch) as tmp:
        to, cc = recipients(project, git, commits[-1],
                            format_patch(git, tmp, *span, who, "--no-cover-letter"))
    # Our own sections of MAINTAINERS name the sender.
    to = [address for address in to if f"<{who[1]}>" not in address]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    flags = ["--cover-letter", "--thread=shallow"] if cover else ["--no-cover-letter"]
    flags += [f"--to={a}" for a in to] + [f"--cc={a}" for a in cc]
    flags += [f"--base={commits[0]}", *options]
    paths = format_patch(git, out, *span, who, *flags)
    if cover:
        fill_cover(paths[0], letter[0], letter[1], topic, topics, patches, label)
    add_notes(paths[1:] if cover else paths, patches[first:last + 1])
    return len(paths), to, cc


def overview(project, git, commits, version, topics):
    """The shared letter with the whole series' shortlog and diffstat, as a file to read."""
    path = project.series / "0000-cover-letter"
    if not path.is_file():
        return
    subject, text, _ = cover_letter(project, "")
    log = git.run("log", "--reverse", "--format=%s", f"{commits[0]}..{commits[-1]}").split("\n")
    subjects = iter(log)
    lines = [f"Subject: {subject}", "", text, "", f"Based on {version}."]
    for topic in topics:
        needs = f" (after {', '.join(topic['needs'])})" if topic["needs"] else ""
        lines += ["", f"{topic['name']} ({len(topic['patches'])}){needs}:"]
        lines += ["  " + next(subjects) for _ in topic["patches"]]
    stat = git.run("diff", "--stat", "--summary", commits[0], commits[-1])
    (project.out / "0000-cover-letter").write_text("\n".join(lines) + "\n\n" + stat, **ENCODING)


def export(project, target, tip, only=None, options=()):
    """Everything one sends or hands on, below build/series."""
    git = target.git
    patches = project.patches()
    topics = project.topics(patches)
    if only and only not in [t["name"] for t in topics]:
        raise SeriesError(f"no topic {only!r}: there are " + ", ".join(t["name"] for t in topics))
    who = identity(project.top)
    base = target.state["base"]
    commits = [base] + git.run("rev-list", "--reverse", f"{base}..{tip}").split()
    if len(commits) != len(patches) + 1:
        raise SeriesError("the branch and the series have different numbers of patches")
    project.scratch.mkdir(parents=True, exist_ok=True)
    project.out.mkdir(parents=True, exist_ok=True)
    version = " ".join(project.base_version())
    for topic in topics:
        if only and topic["name"] != only:
            continue
        count, to, cc = thread(project, git, topic, topics, patches, commits, who,
                               version, options)
        say(f"series: {project.show(project.out)}/mails/{topic['name']}: {count} "
            f"mail{'s' if count != 1 else ''}, to {len(to)}, cc {len(cc)}")
    overview(project, git, commits, version, topics)
    quilt = project.out / "quilt"
    shutil.rmtree(quilt, ignore_errors=True)
    quilt.mkdir()
    paths = format_patch(git, quilt, commits[0], commits[-1], who, "-N", "--no-cover-letter",
                         "--zero-commit", "--no-signature")
    for path, patch in zip(paths, patches):
        os.replace(path, quilt / patch.name)
    (quilt / "series").write_text("".join(p.name + "\n" for p in patches), encoding="utf-8")
    bundle = project.out / f"{target.branch}.bundle"
    git.run("bundle", "create", "-q", bundle, f"{base}..refs/heads/{target.branch}")
    say(f"series: {project.show(quilt)}, {project.show(bundle)} (on {base[:12]}), "
        f"tree {git.tree(tip)[:12]}")
    if not who[2]:
        say(f"series: note: git has no user.name and user.email here: signed off as {who[0]}, "
            "the last committer; set them before you send anything")


def static_checks(project, patches):
    """What a reviewer's script would say about the mails themselves."""
    for patch in patches:
        where = project.mail_path(patch.name)
        if len(patch.subject) > 75 + 25 or patch.subject.endswith("."):
            raise SeriesError(f"{where}: Subject too long or with a full stop")
        if project.name == "linux" and not re.match(r"[^\s:]+( [^\s:]+)?(: ?[^\s:]+)*: \S",
                                                    patch.subject):
            raise SeriesError(f"{where}: Subject wants 'subsystem: What it does'")
        for line in patch.body.split("\n"):
            if len(line) > 75 and " " in line.strip() and not line.startswith(" ") \
                    and not mail.TRAILER.fullmatch(line):
                raise SeriesError(f"{where}: a line of more than 75 columns: {line[:40]!r}...")
        text = [p for p in patch.body.split("\n") if not mail.TRAILER.fullmatch(p)]
        if len(" ".join(text).split()) < 10:
            raise SeriesError(f"{where}: the message gives no reason for the change")
        if "Fixes" in dict(l.split(": ", 1) for l in patch.body.split("\n")
                           if mail.TRAILER.fullmatch(l)):
            for tag in re.findall(r"^Fixes: (.*)$", patch.body, re.M):
                if not re.fullmatch(r'[0-9a-f]{12,40} \(".+"\)', tag):
                    raise SeriesError(f"{where}: Fixes: {tag}: wanted: 12 digits (\"subject\")")
            if not re.search(r"^Cc: stable@vger\.kernel\.org", patch.body, re.M):
                raise SeriesError(f"{where}: a fix without Cc: stable@vger.kernel.org")
        if patch.headers.get("Date") and not re.search(r"[+-]\d{4}$", patch.headers["Date"]):
            raise SeriesError(f"{where}: Date: wants its time zone")
    for topic in project.topics(patches):
        if not cover_letter(project, topic["name"]) and len(topic["patches"]) > 1:
            raise SeriesError(f"{project.show(project.series)}: no cover letter for "
                              f"{topic['name']}: write cover/{topic['name']} or 0000-cover-letter")
    # rdma-core keeps copies of the kernel's headers, and so do we for it.
    for path in sorted(project.overlay()):
        match = re.fullmatch(r"kernel-headers/(rdma/[^/]+)", path)
        kernel = match and project.top / "include/uapi" / match[1]
        if match and kernel.is_file() and kernel.read_bytes() != \
                (project.root / path).read_bytes():
            raise SeriesError(f"{project.show(project.root / path)}: differs from "
                              f"{project.show(kernel)}")
