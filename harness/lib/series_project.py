# SPDX-License-Identifier: GPL-2.0
"""The repository's side: where the mails, the overlay, the topics and the base are."""
import hashlib
import os
import re
import stat
import subprocess
from pathlib import Path

import series_mail as mail
import series_maintainers
from series_git import ENCODING, SeriesError, clean_env

# Top-level names of this repository that are no part of a kernel.
OURS = {"series", "rdma-core", "harness", "build", "README.md", "Makefile", "LICENSES", "COPYING",
        "MAINTAINERS", "AGENTS.md", "CLAUDE.md"}
COMPONENT = re.compile(r"[A-Za-z0-9_.+,@=-]+")
LAYOUT = {
    "linux": {"under": ".", "reserved": OURS, "base": "build/base/linux", "repo": "build/linux",
              "out": "build/series/linux", "fetch": "kernel"},
    "rdma-core": {"under": "rdma-core", "reserved": {"series", "MAINTAINERS"},
                  "base": "build/base/rdma-core", "repo": "build/rdma-core/src",
                  "out": "build/series/rdma-core", "fetch": "rdma-core"},
}


class Project:
    def __init__(self, top, name):
        layout = LAYOUT[name]
        self.name = name
        self.top = Path(top).resolve()
        self.root = (self.top / layout["under"]).resolve()
        self.series = self.root / "series"
        self.reserved = layout["reserved"]
        self.base = self.top / layout["base"]
        self.repo = self.top / layout["repo"]
        self.out = self.top / layout["out"]
        self.fetch = layout["fetch"]
        self.known_overlay = None       # forget it after writing files
        self.scratch = self.top / "build" / "series" / "tmp"

    def show(self, path):
        """A path as the user would type it."""
        return os.path.relpath(path, self.top)

    def mail_path(self, name):
        return self.show(self.series / name)

    # The commit plan

    def base_version(self):
        """'linux 7.3' from series/base, as ('linux', '7.3')."""
        path = self.series / "base"
        text = read(path) if path.is_file() else ""
        words = [l.split() for l in text.split("\n") if l.strip() and not l.startswith("#")]
        if len(words) != 1 or len(words[0]) != 2 or not re.fullmatch(r"\d+(\.\d+)+", words[0][1]):
            raise SeriesError(f"{self.show(path)}: one line is wanted, such as 'linux 7.3'")
        return tuple(words[0])

    def patches(self):
        if not self.series.is_dir():
            raise SeriesError(f"{self.show(self.series)}: no such folder")
        out = []
        for path in sorted(self.series.glob("*.patch")):
            where = self.show(path)
            out.append(mail.parse(path.name, read(path), where))
        if not out:
            raise SeriesError(f"{self.show(self.series)}: no patches")
        for n, patch in enumerate(out, 1):
            number = int(patch.name[:4])
            if number != n:
                raise SeriesError(f"{self.mail_path(patch.name)}: number {n:04} is wanted here: "
                                  "numbers run from 0001 without gaps or repeats")
        return out

    def topics(self, patches):
        """[{name, needs, patches}]: every patch is in one, and topics do not interleave."""
        path = self.series / "topics"
        names = [p.name for p in patches]
        if not path.is_file():
            return [{"name": self.name, "needs": [], "patches": names}]
        out, where = [], self.show(path)
        for line in read(path).split("\n"):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if line.startswith("["):
                name = line.strip("[]")
                if not re.fullmatch(r"[a-z0-9-]+", name) or name in [t["name"] for t in out]:
                    raise SeriesError(f"{where}: bad or repeated topic {line}")
                out.append({"name": name, "needs": [], "patches": []})
            elif not out:
                raise SeriesError(f"{where}: {line!r} stands before the first [topic]")
            elif line.startswith("needs:"):
                needs = line[len("needs:"):].split()
                for need in needs:
                    if need not in [t["name"] for t in out[:-1]]:
                        raise SeriesError(f"{where}: [{out[-1]['name']}] needs {need!r}, "
                                          "which is no earlier topic")
                out[-1]["needs"] = needs
            else:
                out[-1]["patches"].append(line)
        listed = [name for topic in out for name in topic["patches"]]
        for name in names:
            if name not in listed:
                raise SeriesError(f"{where}: {name} is in no topic")
        for name in listed:
            if name not in names:
                raise SeriesError(f"{where}: {name} is no patch of the series")
        if listed != names:
            raise SeriesError(f"{where}: patches must stand in the order of the series, each once")
        return [topic for topic in out if topic["patches"]]

    # The overlay

    def overlay(self):
        """Paths of the files that become new files of the tree, relative to its top."""
        if self.known_overlay is not None:
            return self.known_overlay
        run = subprocess.run(["git", "-C", str(self.root), "-c", "safe.directory=*", "ls-files",
                              "-co", "--exclude-standard", "-z"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, env=clean_env(), check=False)
        if run.returncode == 0:
            found = [p for p in run.stdout.decode(**ENCODING).split("\0") if p]
        else:
            found = []
            for where, dirs, files in os.walk(self.root):
                if Path(where) == self.root:
                    dirs[:] = [d for d in dirs if not self.is_reserved(d)]
                dirs[:] = [d for d in dirs if d != "__pycache__"]
                found += [os.path.relpath(os.path.join(where, f), self.root) for f in files]
        self.known_overlay = {p for p in found if not self.is_reserved(p)
                              and os.path.lexists(self.root / p)}
        return self.known_overlay

    def is_reserved(self, path):
        first = path.split("/", 1)[0]
        return first in self.reserved or first.startswith(".")

    def check_path(self, path, where):
        """An Adds: path is input: it may name nothing outside the overlay."""
        parts = path.split("/")
        if any(part in ("", ".", "..") or part.lower() == ".git" or not COMPONENT.fullmatch(part)
               for part in parts):
            raise SeriesError(f"{where}: {path!r} is not a plain relative path")
        if self.is_reserved(path):
            raise SeriesError(f"{where}: {path!r} is a name that this repository keeps for itself")

    def overlay_file(self, path, where):
        """(mode, bytes) of an overlay file; symbolic links lead out of the overlay."""
        self.check_path(path, where)
        full = self.root
        for part in path.split("/"):
            full = full / part
            try:
                mode = os.lstat(full).st_mode
            except FileNotFoundError:
                raise SeriesError(f"{where}: {path}: no such file in the repository") from None
            if stat.S_ISLNK(mode):
                raise SeriesError(f"{where}: {path}: {self.show(full)} is a symbolic link")
        if not stat.S_ISREG(mode):
            raise SeriesError(f"{where}: {path} is not a regular file")
        return ("100755" if mode & 0o100 else "100644"), full.read_bytes()

    def sections(self):
        """Our MAINTAINERS sections, {title: text}."""
        path = self.root / "MAINTAINERS"
        return series_maintainers.own_sections(read(path), self.show(path)) \
            if path.is_file() else {}

    def digest(self):
        """Changes when anything of the series does."""
        h = hashlib.sha256()

        def put(name, data):
            h.update(f"{name}\0{len(data)}\0".encode(**ENCODING))
            h.update(data)

        for path in sorted(self.series.glob("*.patch")) + [self.series / "base",
                                                           self.root / "MAINTAINERS"]:
            if path.is_file():
                put(self.show(path), path.read_bytes())
        for path in sorted(self.overlay()):
            mode, data = self.overlay_file(path, "overlay")
            put(mode + path, data)
        return h.hexdigest()


def read(path):
    with open(path, newline="", **ENCODING) as f:
        return f.read()


def plan(project, patches):
    """Which sections of each patch are about files that the series itself adds.

    Returns [[own sections], [other sections]] per patch and checks every Adds: line.
    """
    own, adder, out = set(), {}, []
    for patch in patches:
        where = project.mail_path(patch.name)
        mine, others = [], []
        for section in patch.sections:
            if section.kind == "copy":
                raise SeriesError(f"{where}: {section.new}: a copy: write it as a new file "
                                  "named in Adds:")
            if section.kind == "add":
                raise SeriesError(f"{where}: {section.new}: a new file in the diff: it belongs at "
                                  "its path in this repository, named in Adds:")
            if section.old in own:
                mine.append(section)
                own.discard(section.old)
                if section.kind != "delete":
                    project.check_path(section.new, where)
                    own.add(section.new)
            else:
                others.append(section)
        for path in patch.adds:
            project.check_path(path, where + ": Adds")
            if path in adder:
                raise SeriesError(f"{where}: {path} is in the Adds: of "
                                  f"{project.mail_path(adder[path])} already")
            adder[path] = patch.name
            if any(path in (s.old, s.new) for s in patch.sections):
                raise SeriesError(f"{where}: {path} is both in Adds: and in the diff")
            own.add(path)
        out.append((mine, others))
    overlay = project.overlay()
    for path in sorted(overlay - own):
        raise SeriesError(f"{project.show(project.root / path)}: in the Adds: of no patch in "
                          f"{project.show(project.series)}")
    for path in sorted(own - overlay):
        by = adder.get(path)
        raise SeriesError(f"{project.mail_path(by) if by else path}: Adds: {path}: "
                          "no such file in the repository")
    wanted = {}
    for patch in patches:
        for title in patch.maintainers:
            if title in wanted:
                raise SeriesError(f"{project.mail_path(patch.name)}: Maintainers: {title} is in "
                                  f"{project.mail_path(wanted[title])} already")
            wanted[title] = patch.name
    have = project.sections()
    file = project.show(project.root / "MAINTAINERS")
    for title in wanted:
        if title not in have:
            raise SeriesError(f"{project.mail_path(wanted[title])}: Maintainers: {title}: "
                              f"no such section in {file}")
    for title in have:
        if title not in wanted:
            raise SeriesError(f"{file}: section {title!r} is in the Maintainers: of no patch")
    return out
