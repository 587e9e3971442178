# SPDX-License-Identifier: GPL-2.0
"""A scratch tree that stands at each commit of the series in turn, in which
only the files of that commit are new, so that a build does only what it must."""
import os
import shutil
import subprocess

from steps import BUILD


class Walk:
    def __init__(self, repo, base_tree, place):
        self.repo = repo
        self.base_tree = base_tree
        self.tree = os.path.join(place, "tree")
        self.objects = os.path.join(place, "objects")
        self.marker = os.path.join(place, "at")
        os.makedirs(self.objects, exist_ok=True)

    def git(self, *argv):
        return subprocess.run(["git", "-C", self.repo] + list(argv), check=True,
                              stdout=subprocess.PIPE).stdout

    def commits(self):
        """Oldest first, as (hash, subject)."""
        lines = self.git("log", "--reverse", "--format=%H %s", "base..HEAD").decode().splitlines()
        return [tuple(line.split(" ", 1)) for line in lines]

    def touched(self, commit):
        """{path: status letter} of a commit."""
        raw = self.git("diff-tree", "-r", "-z", "--no-renames", "--no-commit-id",
                       "--name-status", commit).decode()
        words = raw.split("\0")[:-1]
        return dict(zip(words[1::2], words[0::2]))

    def start(self):
        """Stand at the base. Hard links cost a second, a copy a gigabyte."""
        at = self._at()
        base = self.git("rev-parse", "base").decode().strip()
        if at is not None and self._known(at):
            self._move(at, base)
        else:
            shutil.rmtree(self.tree, ignore_errors=True)
            subprocess.run(["cp", "-al", self.base_tree, self.tree], check=True)
            shutil.rmtree(os.path.join(self.tree, ".git"), ignore_errors=True)
        self._mark(base)

    def step(self, commit):
        self._move(self._at(), commit)

    def _move(self, old, new):
        """Only files whose content differs are written, each as a new inode:
        the old one may be another tree's, by hard link."""
        raw = self.git("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new).decode()
        words = raw.split("\0")[:-1]
        for status, path in zip(words[0::2], words[1::2]):
            full = os.path.join(self.tree, path)
            if os.path.lexists(full):
                os.unlink(full)
            if status == "D":
                continue
            os.makedirs(os.path.dirname(full), exist_ok=True)
            mode, kind = self.git("ls-tree", new, "--", path).decode().split()[:2]
            if kind != "blob" or mode == "120000":
                raise ValueError("%s: not a regular file" % path)
            with open(full, "wb") as file:
                file.write(self.git("cat-file", "blob", "%s:%s" % (new, path)))
            if mode == "100755":
                os.chmod(full, 0o755)
        self._mark(new)

    def _at(self):
        try:
            with open(self.marker) as file:
                return file.read().strip()
        except OSError:
            return None

    def _mark(self, commit):
        with open(self.marker, "w") as file:
            file.write(commit + "\n")

    def _known(self, commit):
        return os.path.isdir(self.tree) and subprocess.call(
            ["git", "-C", self.repo, "cat-file", "-e", commit + "^{commit}"],
            stderr=subprocess.DEVNULL) == 0


def standard(name):
    return Walk(os.path.join(BUILD, "linux"), os.path.join(BUILD, "base/linux"),
                os.path.join(BUILD, name))
