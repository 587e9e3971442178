# SPDX-License-Identifier: GPL-2.0
"""From a branch that was edited back to mails, overlay and MAINTAINERS."""
import os
import re
from dataclasses import dataclass, field

import series_mail as mail
import series_maintainers as maintainers
from series_assemble import build, dirty, program, say, untracked
from series_git import ENCODING, Quarantine, SeriesError, identity
from series_project import plan, read

DIFF = ("-p", "-r", "-M", "-l0", "-U3", "--binary", "--no-color", "--no-ext-diff", "--no-textconv",
        "--diff-algorithm=myers", "--indent-heuristic", "--src-prefix=a/", "--dst-prefix=b/",
        "--inter-hunk-context=0", "--no-relative", "--submodule=short")


@dataclass
class Commit:
    oid: str
    subject: str
    body: str
    author: str
    tree: str = ""              # without our MAINTAINERS sections
    adds: list = field(default_factory=list)
    touched: set = field(default_factory=set)
    maintainers: list = field(default_factory=list)
    diff: str = ""
    old: object = None          # the mail it came from

    @property
    def label(self):
        return f"commit {self.oid[:12]} ({self.subject!r})"


@dataclass
class Result:
    """What the repository should hold; nothing is written before all of it is known."""
    mails: list
    files: dict                 # path: (mode, bytes)
    sections: dict


def read_commit(git, oid, signers):
    head, _, message = git.read(oid).partition("\n\n")
    author = re.search(r"^author (.*) \d+ [+-]\d{4}$", head, re.M)
    first, _, rest = message.strip("\n").partition("\n\n")
    if first.startswith(("fixup! ", "squash! ", "amend! ")):
        raise SeriesError(f"commit {oid[:12]} is a {first.split()[0]} still: "
                          "git rebase -i --autosquash base, then refresh")
    if not first.strip():
        raise SeriesError(f"commit {oid[:12]} has no subject")
    body = "\n".join(line.rstrip() for line in rest.split("\n"))
    body = mail.strip_signoff(re.sub(r"\n{3,}", "\n\n", body), signers)
    return Commit(oid, " ".join(first.split()), body, author[1] if author else "")


def plain_trees(git, base, commits, signers):
    """Takes our sections out of every commit's MAINTAINERS; returns the final sections."""
    known = maintainers.titles(git.show(base, "MAINTAINERS") or "")
    base_text = git.show(base, "MAINTAINERS")
    seen = {}
    for commit in commits:
        commit.tree = git.tree(commit.oid)
        text = git.show(commit.oid, "MAINTAINERS")
        if text in (None, base_text):
            here = {}
        else:
            here = {title: maintainers.unsigned(section, signers)
                    for title, section in maintainers.sections(text).items() if title not in known}
            for title in reversed(list(here)):
                text = maintainers.remove(text, title)
            git.run("read-tree", commit.oid)
            git.set_entries({"MAINTAINERS": ("100644", git.store(text))})
            commit.tree = git.line("write-tree")
        for title, section in seen.items():
            if here.get(title) != section:
                raise SeriesError(f"{commit.label}: changes the MAINTAINERS section {title!r}, "
                                  "which an earlier commit adds: fold it in there")
        commit.maintainers = [title for title in here if title not in seen]
        seen = here
    return seen


def collect(project, git, base, commits):
    """Sorts what each commit does into Adds: and diff; returns the overlay's final paths."""
    upstream = git.paths(base)
    own, before = set(), git.tree(base)
    for commit in commits:
        rows = git.run("diff-tree", "-r", "-M", "-l0", "--raw", "-z", "--no-abbrev", before,
                       commit.tree).split("\0")
        rows = iter(rows[:-1])
        for meta in rows:
            old_mode, mode, _, _, status = meta.split()
            path = next(rows)
            to = next(rows) if status[0] in "RC" else path
            commit.touched |= {path, to}
            where = f"{commit.label}: {to}"
            if status[0] == "T" or mode not in ("100644", "100755", "000000"):
                if status[0] != "D" and not (mode == old_mode and path in upstream):
                    raise SeriesError(f"{where}: only regular files can be part of the series")
            if status[0] == "A":
                project.check_path(path, commit.label)
                if path in upstream:
                    raise SeriesError(f"{where}: brings back a file that an earlier commit "
                                      "removed: fold the two")
                commit.adds.append(path)
                own.add(path)
            elif path in own:
                own.discard(path)
                if status[0] != "D":
                    project.check_path(to, commit.label)
                    own.add(to)
        commit.diff = git.run("diff-tree", *DIFF, "--diff-filter=a", before, commit.tree)
        before = commit.tree
    return own


def match(commits, patches):
    """Finds the mail that each commit came from: by subject, else by what it touches."""
    left = list(patches)
    for commit in commits:
        commit.old = next((p for p in left if p.subject == commit.subject), None)
        if commit.old:
            left.remove(commit.old)
    for commit in [c for c in commits if not c.old]:
        def likeness(patch, commit=commit):
            theirs = set(patch.adds) | {p for s in patch.sections for p in (s.old, s.new)}
            both = theirs | commit.touched
            return len(theirs & commit.touched) / len(both) if both else 0
        best = max(left, key=likeness, default=None)
        if best and likeness(best) > 0.5:
            commit.old = best
            left.remove(best)


def to_mail(number, commit, signers):
    old = commit.old
    slug = old.slug if old and old.subject == commit.subject else mail.slug(commit.subject)
    patch = mail.Patch(f"{number:04}-{slug}.patch", commit.subject, commit.body, origin=old)
    if old:
        patch.headers = dict(old.headers)
        patch.below = old.below
    if commit.author not in signers:
        patch.headers.setdefault("From", commit.author)
    adds = [p for p in (old.adds if old else []) if p in commit.adds]
    adds += sorted(p for p in commit.adds if p not in adds)
    titles = [t for t in (old.maintainers if old else []) if t in commit.maintainers]
    titles += [t for t in commit.maintainers if t not in titles]
    patch.below = mail.with_markers(patch.below, adds, titles)
    fresh = mail.parse_diff(commit.diff, commit.label)
    for section in fresh:
        if not any(line == "GIT binary patch" for line in section.head):
            section.head = [l for l in section.head if not l.startswith("index ")]
    if old and [s.normal() for s in fresh] == [s.normal() for s in old.sections]:
        fresh = old.sections
    patch.sections = fresh
    if not fresh and not adds and not titles:
        raise SeriesError(f"{commit.label}: changes nothing: drop it")
    return patch


def harvest(project, git, base, tip, patches, signers):
    """The series as the branch has it."""
    if git.run("rev-list", "--min-parents=2", f"{base}..{tip}").strip():
        raise SeriesError("the branch holds a merge: a series is a line of commits")
    if git.call("merge-base", "--is-ancestor", base, tip)[0]:
        raise SeriesError(f"{base[:12]}, where the series began, is not below the branch any more: "
                          "name the commit that is with --onto")
    oids = git.run("rev-list", "--reverse", f"{base}..{tip}").split()
    if not oids:
        raise SeriesError("the branch holds no commits of the series")
    commits = [read_commit(git, oid, signers) for oid in oids]
    seen = {}
    for commit in commits:
        if commit.subject in seen:
            raise SeriesError(f"{commit.label}: {seen[commit.subject][:12]} has the same subject")
        seen[commit.subject] = commit.oid
    sections = plain_trees(git, base, commits, signers)
    own = collect(project, git, base, commits)
    match(commits, patches)
    mails = [to_mail(n, commit, signers) for n, commit in enumerate(commits, 1)]
    files = {}
    for row in git.run("ls-tree", "-r", "-z", commits[-1].tree).split("\0"):
        if row:
            meta, path = row.split("\t", 1)
            if path in own:
                mode, _, oid = meta.split()
                files[path] = (mode, git.read(oid).encode(**ENCODING))
    order = list(project.sections())
    titles = [t for t in order if t in sections] + sorted(t for t in sections if t not in order)
    return Result(mails, files, {t: sections[t] for t in titles})


def topics_text(project, patches, mails):
    """series/topics with the new names; a new patch joins the topic of the one before it."""
    path = project.series / "topics"
    if not path.is_file():
        return None
    text = read(path)
    topics = project.topics(patches)
    where = {name: t["name"] for t in topics for name in t["patches"]}
    current = topics[0]["name"]
    lists = {t["name"]: [] for t in topics}
    for patch in mails:
        current = where[patch.origin.name] if patch.origin else current
        lists[current].append(patch.name)
    if [name for t in topics for name in lists[t["name"]]] != [m.name for m in mails]:
        raise SeriesError("the branch mixes the commits of different topics: git rebase -i them "
                          f"into the order of {project.show(path)}")
    out, topic = [], None
    names = set(where)
    pending = None
    for line in text.split("\n"):
        word = line.strip()
        if word.startswith("["):
            if pending:
                out[pending:pending] = lists[topic]
            topic, pending = word.strip("[]"), None
            out.append(line)
            if topic in lists:
                pending = len(out)
            continue
        if word in names:
            continue
        out.append(line)
        if pending is not None and word and not word.startswith("#"):
            pending = len(out)
    if pending:
        out[pending:pending] = lists[topic]
    return "\n".join(out)


def refresh(project, target, force=False):
    """Writes the branch's series into the repository; returns the names of changed files."""
    tip, state = target.tip(), target.state
    if not tip:
        raise SeriesError(f"no branch {target.branch} in {target.git.gitdir}: assemble first")
    who = identity(project.top)
    signers = {f"{who[0]} <{who[1]}>"}
    if state.get("identity"):
        signers.add("{} <{}>".format(*state["identity"]))
    if target.kind == "own":
        changed = dirty(target.git)
        stray = untracked(target.git)
        if changed or stray:
            fate = "edited but not committed" if changed else "no commit has it"
            raise SeriesError(f"{project.show(project.repo)}/{changed or stray}: {fate}: commit it "
                              "(git add -f where .gitignore hides it) or take it away, "
                              "then refresh")
    if not force and state.get("series", project.digest()) != project.digest():
        raise SeriesError("the repository's series changed since the branch was assembled: what "
                          "the branch lacks would be lost; --force takes the branch's side")
    patches = project.patches()
    base = target.base if target.onto else state.get("base", target.base)
    with Quarantine(target.git, project.scratch) as box:
        result = harvest(project, box.index("refresh"), base, tip, patches, signers)
    written = write(project, patches, result)
    if not written:
        say("series: refresh: nothing changed")
    for name in written:
        say(f"series: refresh: {name}")
    # Without a program: our own branch is made anew, so that its commits get their dates.
    target.remember(**{**state, "tip": tip, "base": base, "identity": list(who[:2]),
                       "series": project.digest(),
                       "program": "" if target.kind == "own" else program()})
    return written


def write(project, patches, result):
    """The only place that changes the repository."""
    written = []
    old_files = {p for patch in patches for p in patch.adds} & project.overlay()

    def put(path, data, mode="100644"):
        bits = 0o755 if mode == "100755" else 0o644
        if path.is_file() and path.read_bytes() == data:
            if bool(path.stat().st_mode & 0o100) != (mode == "100755"):
                os.chmod(path, bits)
                written.append(project.show(path))
            return
        tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        tmp.write_bytes(data)
        os.chmod(tmp, bits)
        os.replace(tmp, path)
        written.append(project.show(path))

    for path in result.files:
        folder = (project.root / path).parent
        if not str(folder.resolve() / "x").startswith(str(project.root) + os.sep):
            raise SeriesError(f"{path}: leads out of the repository")
    topics = topics_text(project, patches, result.mails)
    for path, (mode, data) in sorted(result.files.items()):
        (project.root / path).parent.mkdir(parents=True, exist_ok=True)
        put(project.root / path, data, mode)
    project.known_overlay = None
    for path in sorted((project.overlay() & old_files) - set(result.files)):
        (project.root / path).unlink()
        folder = (project.root / path).parent
        while folder != project.root and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent
        written.append(project.show(project.root / path) + " (gone)")
    project.known_overlay = None
    names = {m.name for m in result.mails}
    for patch in patches:
        if patch.name not in names:
            (project.series / patch.name).unlink()
            written.append(project.mail_path(patch.name) + " (gone)")
    for patch in result.mails:
        put(project.series / patch.name, patch.text().encode(**ENCODING))
    text = "\n".join(result.sections.values())
    file = project.root / "MAINTAINERS"
    if text or file.exists():
        put(file, text.encode(**ENCODING))
    if topics is not None:
        put(project.series / "topics", topics.encode(**ENCODING))
    return written


def verify(project, target):
    """Assembles and takes back without writing; names what a refresh would change."""
    who = identity(project.top)
    patches = project.patches()
    plan(project, patches)
    signers = {f"{who[0]} <{who[1]}>"}
    with Quarantine(target.git, project.scratch) as box:
        tip = build(project, box, target, patches, who)
        result = harvest(project, box.index("verify"), target.base, tip, patches, signers)
        tree = box.git.tree(tip)
    for patch, again in zip(patches, result.mails):
        if again.name != patch.name or \
                again.text() != read(project.series / patch.name):
            raise SeriesError(f"{project.mail_path(patch.name)}: not as 'harness/series refresh' "
                              f"would write it ({first_difference(project, patch, again)})")
    for path, (mode, data) in result.files.items():
        if project.overlay_file(path, "overlay") != (mode, data):
            raise SeriesError(f"{path}: does not survive assemble and refresh")
    if result.sections != project.sections():
        raise SeriesError("MAINTAINERS: does not survive assemble and refresh")
    return tree


def first_difference(project, patch, again):
    have = read(project.series / patch.name).split("\n")
    want = again.text().split("\n")
    for n, (a, b) in enumerate(zip(have, want), 1):
        if a != b:
            return f"line {n}: {b[:70]!r} wanted"
    return f"line {min(len(have), len(want)) + 1}: text is missing or left over"
