# SPDX-License-Identifier: GPL-2.0
"""From mails and overlay to commits on a branch."""
import hashlib
import json
import os
import re
import sys
from pathlib import Path

import series_maintainers as maintainers
from series_git import (ENCODING, Git, Quarantine, SeriesError, identity, import_tree, set_branch)
from series_project import plan, read


class Target:
    """A repository that takes the branch, and what is remembered of it between runs."""

    def __init__(self, project, kind, git, branch, label):
        self.project, self.kind, self.git, self.branch, self.label = \
            project, kind, git, branch, label
        if kind == "clone":
            # Nothing of ours lives in a user's clone but the branch.
            key = hashlib.sha256(f"{git.gitdir}\0{branch}".encode(**ENCODING)).hexdigest()[:16]
            self.state_path = project.top / "build" / "series" / "clones" / f"{key}.json"
        else:
            self.state_path = git.gitdir / f"series-{branch.replace('/', '-')}.json"

    @property
    def state(self):
        try:
            return json.loads(self.state_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def remember(self, **state):
        self.state_path.parent.mkdir(parents=True, exist_ok=True)
        tmp = self.state_path.with_suffix(".tmp")
        tmp.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        os.replace(tmp, self.state_path)

    def tip(self):
        return self.git.rev(f"refs/heads/{self.branch}")

    def checked_out(self):
        """The work tree that has the branch checked out, if any."""
        where = None
        for line in self.git.run("worktree", "list", "--porcelain").split("\n"):
            if line.startswith("worktree "):
                where = line[len("worktree "):]
            elif line == f"branch refs/heads/{self.branch}":
                return where
        return None


def say(text):
    print(text, flush=True)


def tree_version(project, text):
    """'7.3.4' from a kernel's Makefile, '65.0' from rdma-core's CMakeLists.txt."""
    if project.name == "linux":
        parts = [re.search(rf"^{key} = *(\S*)$", text or "", re.M)
                 for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
        return ".".join(p[1] for p in parts) if all(parts) else None
    match = re.search(r"set\(PACKAGE_VERSION \"([^\"]+)\"\)", text or "")
    return match[1] if match else None


def version_file(project):
    return "Makefile" if project.name == "linux" else "CMakeLists.txt"


def import_base(project, repo, source, ref):
    """The pristine tree as a commit whose id depends on nothing but the tree."""
    marker = source / version_file(project)
    if not marker.is_file():
        raise SeriesError(f"{project.show(source)}: no {project.name} source there: run "
                          f"harness/fetch {project.fetch}")
    version = tree_version(project, read(marker)) or "of unknown version"
    label = f"{project.name} {version}"
    import_tree(repo, source, ref, f"{label}\n\nAs unpacked.\n", int(marker.stat().st_mtime))
    return label


def fingerprint(source):
    """Tells whether a directory changed, by its files' names, sizes and times."""
    h = hashlib.sha256()
    for where, dirs, files in os.walk(source):
        dirs.sort()
        if ".git" in dirs:
            dirs.remove(".git")
        for name in sorted(files):
            st = os.lstat(os.path.join(where, name))
            h.update(f"{where}/{name}\0{st.st_size} {st.st_mtime_ns} {st.st_mode}\0"
                     .encode(**ENCODING))
    return h.hexdigest()


def init(gitdir, worktree=None):
    gitdir.mkdir(parents=True, exist_ok=True)
    git = Git(gitdir, worktree)
    if not (gitdir / "HEAD").exists():
        git.run("init", "-q", "-b", "series", *([] if worktree else ["--bare"]))
        git.run("config", "core.compression", "1")
    return git


def own_target(project):
    """The harness's own repository, its base imported once per version of the source."""
    gitdir = project.repo / ".git"
    git = init(gitdir, project.repo)
    target = Target(project, "own", git, "series", project.show(project.base))
    marker = project.base / version_file(project)
    stamp = project.base.parent / (project.base.name + ".version")
    mark = f"{marker.stat().st_mtime_ns if marker.exists() else 0} " \
           f"{read(stamp).strip() if stamp.exists() else ''}"
    mark_file = gitdir / "series-base"
    if not git.rev("refs/heads/base") or not mark_file.exists() or read(mark_file) != mark:
        say(f"series: importing {project.show(project.base)} into {project.show(project.repo)}")
        import_base(project, git, project.base, "refs/heads/base")
        mark_file.write_text(mark, encoding="utf-8")
    target.base = git.rev("refs/heads/base")
    target.label = git.read(target.base).partition("\n\n")[2].split("\n")[0]
    return target


def user_target(project, where, branch, onto=None, fresh=True):
    """A clone of the user's, or a plain directory that stands for an unpacked tarball."""
    where = Path(where)
    if not where.is_dir():
        raise SeriesError(f"{where}: no such directory")
    where = where.resolve()
    branch = branch or "rdma-odp"
    probe = Git(where, None)
    status, _, _ = probe.call("check-ref-format", "--branch", branch)
    if status or branch.startswith("-"):
        raise SeriesError(f"{branch!r} is no name for a branch")
    gitdir = _gitdir(where)
    if gitdir is None:
        return _tarball_target(project, where, branch, fresh)
    git = Git(gitdir, None)
    target = Target(project, "clone", git, branch, str(where))
    state = target.state
    if onto:
        target.base = git.rev(onto)
        if not target.base:
            raise SeriesError(f"{where}: no commit {onto!r}")
    else:
        head = git.rev("HEAD")
        if not head:
            raise SeriesError(f"{where}: HEAD names no commit: check out the kernel to build on")
        current = git.call("symbolic-ref", "-q", "HEAD")[1].strip()
        # Standing on the branch that an earlier run made: it is not its own base.
        mine = current == f"refs/heads/{branch}" and "base" in state and \
            git.call("merge-base", "--is-ancestor", state["base"], head)[0] == 0
        target.base = state["base"] if mine else head
    target.version = tree_version(project, git.show(target.base, version_file(project)))
    _compare_versions(project, target.version, where)
    target.label = f"{project.name} {target.version} in {where}"
    return target


def _gitdir(where):
    """The git directory whose top is exactly this one; not that of a folder above it."""
    if (where / ".git").exists():
        status, out, err = Git(where / ".git", None).call("rev-parse", "--absolute-git-dir") \
            if (where / ".git").is_dir() else _gitfile(where / ".git")
        if status:
            raise SeriesError(f"{where}: {err.strip()}")
        return Path(out.strip())
    if (where / "HEAD").is_file() and (where / "objects").is_dir():
        return where            # a bare repository
    return None


def _gitfile(path):
    match = re.match(r"gitdir: (.+)", read(path))
    if not match:
        return 1, "", f"{path} is no git file"
    target = (path.parent / match[1].strip()).resolve()
    return (0, str(target), "") if target.is_dir() else (1, "", f"{target}: no such directory")


def _compare_versions(project, version, where):
    name, wanted = project.base_version()
    if not version:
        raise SeriesError(f"{where}: not a {name} source tree")
    if version != wanted and not version.startswith(wanted + "."):
        say(f"series: note: {where} is {name} {version}, the series is based on {wanted}")


def _tarball_target(project, where, branch, fresh):
    """Nothing is written where the tarball was unpacked: its repository lies below build/."""
    marker = where / version_file(project)
    version = tree_version(project, read(marker)) if marker.is_file() else None
    _compare_versions(project, version, where)
    key = hashlib.sha256(str(where).encode(**ENCODING)).hexdigest()[:8]
    gitdir = project.top / "build" / "trees" / f"{where.name}-{key}.git"
    git = init(gitdir)
    target = Target(project, "tarball", git, branch, f"{project.name} {version} in {where}")
    mark_file = gitdir / "series-base"
    if fresh:
        mark = fingerprint(where)
        if not git.rev("refs/heads/base") or not mark_file.exists() or read(mark_file) != mark:
            say(f"series: importing {where} into {project.show(gitdir)}")
            import_base(project, git, where, "refs/heads/base")
            mark_file.write_text(mark, encoding="utf-8")
    target.base = git.rev("refs/heads/base")
    if not target.base:
        raise SeriesError(f"{where}: nothing was assembled for it yet")
    return target


def apply(git, sections, where, against, reverse=False):
    """Applies sections to the index; a failure names file and hunk."""
    if not sections:
        return
    options = ["--cached", "--whitespace=nowarn"] + (["-R"] if reverse else [])
    text = "".join(s.text() for s in sections)
    status, _, err = git.call("apply", *options, "-", data=text)
    if status == 0:
        return
    # Our own files change under the hunks that later patches carry for them: an edit next
    # to one is no conflict. Upstream's files are another matter.
    if reverse and git.call("apply", *options, "-C1", "-", data=text)[0] == 0:
        say(f"series: note: {where}: the lines around a hunk have changed: "
            "'harness/series refresh' renews them")
        return
    match = re.search(r"^error: patch failed: (.*):(\d+)$", err, re.M)
    if match:
        for section in sections:
            if match[1] in (section.old, section.new):
                raise SeriesError(f"{where}: {section.new}: {section.hunk_at(int(match[2]))} "
                                  f"does not apply to {against}")
    reason = re.search(r"^error: (.*)$", err, re.M)
    raise SeriesError(f"{where}: does not apply to {against}: "
                      f"{reason[1] if reason else err.strip()}")


def own_states(project, box, patches, planned):
    """The overlay as it is after each patch, from its final state backwards."""
    git = box.index("own")
    paths = sorted(project.overlay())
    modes = [project.overlay_file(path, project.show(project.root))[0] for path in paths]
    oids = git.run("hash-object", "-w", "--no-filters", "--stdin-paths",
                   data="".join(f"{project.root / path}\n" for path in paths)).split()
    state = dict(zip(paths, zip(modes, oids)))
    git.set_entries(state)
    states = [None] * (len(patches) + 1)
    for i in range(len(patches) - 1, -1, -1):
        states[i + 1] = state
        mine = planned[i][0]
        where = project.mail_path(patches[i].name)
        if mine:
            apply(git, mine, where, "the file as this repository has it after the patch", True)
            state = git.entries()
        for path in patches[i].adds:
            if path not in state:
                raise SeriesError(f"{where}: Adds: {path}: later patches leave nothing to add")
        gone = {path: None for path in patches[i].adds}
        git.set_entries(gone)
        state = {p: entry for p, entry in state.items() if p not in gone}
    states[0] = state
    return states


def build(project, box, target, patches, who):
    """Commits in quarantine, one a patch; returns the tip."""
    planned = plan(project, patches)
    states = own_states(project, box, patches, planned)
    git = box.index("tree")
    git.run("read-tree", target.base)
    upstream = git.paths(target.base)
    name, address = who[:2]
    signer = f"{name} <{address}>"
    ours = project.sections()
    when = int(re.search(r"^committer .* (\d+) [+-]\d{4}$", git.read(target.base), re.M)[1])
    parent, present = target.base, []
    last_tree = git.tree(parent)
    for i, patch in enumerate(patches):
        where = project.mail_path(patch.name)
        for path in patch.adds:
            if path in upstream:
                raise SeriesError(f"{where}: Adds: {path}: {target.label} has this file: "
                                  "an edit to it belongs in the diff")
        apply(git, planned[i][1], where, target.label)
        before, after = states[i], states[i + 1]
        git.set_entries({p: after.get(p) for p in set(before) | set(after)
                         if before.get(p) != after.get(p)})
        present += patch.maintainers
        plain = None
        if present:
            plain = git.entry("MAINTAINERS")
            if not plain:
                raise SeriesError(f"{where}: Maintainers: {target.label} has no MAINTAINERS file")
            text = git.read(plain[1])
            for title in present:
                try:
                    text = maintainers.insert(text, maintainers.signed(ours[title], signer), title)
                except SeriesError as error:
                    raise SeriesError(f"{where}: {error}") from None
            git.set_entries({"MAINTAINERS": (plain[0], git.store(text))})
        tree = git.line("write-tree")
        if plain:
            # Hunks on this file are against what upstream has, without our sections.
            git.set_entries({"MAINTAINERS": plain})
        when += 60
        author = re.fullmatch(r"(.*\S)\s*<(.*)>", patch.headers.get("From", signer))
        if not author:
            raise SeriesError(f"{where}: From: {patch.headers['From']!r} is not Name <address>")
        stamp = f"{when} +0000"
        commit = git.using(GIT_AUTHOR_NAME=author[1], GIT_AUTHOR_EMAIL=author[2],
                           GIT_AUTHOR_DATE=patch.headers.get("Date", stamp),
                           GIT_COMMITTER_NAME=name, GIT_COMMITTER_EMAIL=address,
                           GIT_COMMITTER_DATE=stamp)
        if tree == last_tree:
            raise SeriesError(f"{where}: changes nothing in {target.label}")
        parent = commit.line("commit-tree", tree, "-p", parent, data=patch.message(signer))
        last_tree = tree
    return parent


def dirty(git):
    """Names one file of the work tree that differs from HEAD, or None."""
    plain = git.using(GIT_OPTIONAL_LOCKS="1")
    plain.call("update-index", "-q", "--refresh")
    out = plain.run("diff-index", "--name-only", "-z", "HEAD")
    return out.split("\0")[0] or None


STRAY = re.compile(r"(\.o|\.orig|\.rej|\.cmd|\.d|\.pyc|~)$")


def untracked(git):
    """A file that git does not know and a commit may have forgotten."""
    for path in git.run("ls-files", "-o", "-z", "--exclude=__pycache__/").split("\0"):
        if path and not STRAY.search(path) and not path.startswith("include/generated/"):
            return path
    return None


def program():
    """A newer assembler may make other commits of the same series."""
    h = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("series_*.py")):
        h.update(path.read_bytes())
    return h.hexdigest()


def assemble(project, target, force=False, quiet=False):
    """Puts the series on the target's branch; returns its tip."""
    who = identity(project.top)
    patches = project.patches()
    key = {"series": project.digest(), "base": target.base, "identity": list(who[:2]),
           "program": program()}
    state, old = target.state, target.tip()
    own = target.kind == "own"
    interrupted = own and "updating" in state
    if old and not interrupted and state == {**key, "tip": old}:
        changed = dirty(target.git) if own else None
        if not changed:
            if not quiet:
                say(f"series: {len(patches)} patches on {target.label}: nothing to do")
            return old
    with Quarantine(target.git, project.scratch) as box:
        tip = build(project, box, target, patches, who)
        if old and old != tip and not force and old not in (state.get("tip"),
                                                            state.get("updating")):
            what = "was edited since it was assembled" if state else "exists already"
            raise SeriesError(f"branch {target.branch} in {target.git.gitdir} {what}: run "
                              "'harness/series refresh' to keep its commits, or give "
                              f"{'--force' if own else '--branch NAME or --force'}")
        if own and old and not interrupted and not force:
            changed = dirty(target.git)
            if changed:
                raise SeriesError(f"{project.show(project.repo)}/{changed}: edited but not "
                                  "committed: commit it and run 'harness/series refresh', or give "
                                  "--force to throw it away")
        elsewhere = target.checked_out() if not own else None
        if elsewhere and old != tip:
            raise SeriesError(f"branch {target.branch} is checked out in {elsewhere}: check out "
                              "another one there, or give --branch NAME")
        box.adopt(target.base, tip)
    done = {**key, "tip": tip}
    if own:
        target.remember(**{**done, "tip": old, "updating": tip})
        update_worktree(target.git, old, tip, interrupted or force)
    elif old != tip:
        set_branch(target.git, target.branch, tip, old)
    target.remember(**done)
    if not quiet:
        say(f"series: {len(patches)} patches on {target.label}: branch {target.branch}, "
            f"commit {tip[:12]}")
        if target.kind == "tarball":
            say(f"series: the branch is in {project.show(target.git.gitdir)}; "
                f"{target.label.rsplit(' in ', 1)[1]} is untouched (there: quilt, or git clone)")
    return tip


def update_worktree(git, old, tip, reset):
    """Only files that differ are written, so that a build sees what changed."""
    locks = git.using(GIT_OPTIONAL_LOCKS="1")
    if reset or not old:
        locks.run("read-tree", "--reset", "-u", tip)
    else:
        locks.run("read-tree", "-m", "-u", old, tip)
    locks.run("symbolic-ref", "HEAD", "refs/heads/series")
    set_branch(git, "series", tip, old)


def die(message):
    print(f"series: {message}", file=sys.stderr)
    raise SystemExit(1)
