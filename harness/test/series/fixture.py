# SPDX-License-Identifier: GPL-2.0
"""A tiny upstream and a repository on top of it, made anew for every test."""
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HARNESS = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(HARNESS / "lib"))


def load_program():
    loader = importlib.machinery.SourceFileLoader("series_program", str(HARNESS / "series"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


PROGRAM = load_program()
WHO = {"GIT_AUTHOR_NAME": "Fixture", "GIT_AUTHOR_EMAIL": "fixture@example.org",
       "GIT_COMMITTER_NAME": "Fixture", "GIT_COMMITTER_EMAIL": "fixture@example.org"}

LINES = "".join(f"line {n}\n" for n in range(1, 41))
MAINTAINERS = """List of maintainers
===================

	M: *Mail* patches to: FullName <address@domain>

Maintainers List
----------------

ALPHA
M:	Alpha List <alpha@example.org>
S:	Maintained
F:	mm/

GAMMA
L:	gamma@example.org
S:	Maintained
F:	drivers/

THE REST
L:	all@example.org
S:	Buried alive in reporters
F:	*
"""
# Answers as the kernel's script does, from the paths in the mails it is given.
GET_MAINTAINER = """#!/usr/bin/perl
die "not in a kernel tree\\n" unless -e "MAINTAINERS" and -d "virt" || -d "lib";
my $text = join '', map { local (@ARGV, $/) = $_; <> } grep { !/^--/ } @ARGV;
print "\\"Alpha (List)\\" <alpha\\@example.org> (maintainer:ALPHA)\\n" if $text =~ m{b/mm/};
print "gamma\\@example.org (open list:GAMMA)\\n" if $text =~ m{b/drivers/};
print "all\\@example.org (open list)\\n";
"""
OURS = """BETA
L:	beta@example.org
S:	Maintained
F:	drivers/new/
"""
FIX = """Subject: [PATCH] mm: Keep line five apart

A line that is not kept apart from its neighbours is read with them, and
whoever reads both is misled about each.

Fixes: 0123456789ab ("mm: Add lines")
Cc: stable@vger.kernel.org

---
diff --git a/mm/lines.c b/mm/lines.c
--- a/mm/lines.c
+++ b/mm/lines.c
@@ -2,6 +2,7 @@ line 1
 line 2
 line 3
 line 4
+line four and a half
 line 5
 line 6
 line 7
"""
DRIVER = """Subject: [PATCH] drivers/new: Add the driver

The device has no driver so far. This one serves it, and is entered in the
list of drivers so that it is built.

---
Adds: drivers/new/driver.c drivers/new/tool.sh
Maintainers: BETA
v2: a note for reviewers
diff --git a/drivers/Makefile b/drivers/Makefile
--- a/drivers/Makefile
+++ b/drivers/Makefile
@@ -1,2 +1,3 @@
 obj-y += gamma.o
+obj-y += new/
 obj-y += omega.o
"""
SECOND = """Subject: [PATCH] drivers/new: Serve the second kind

The device comes in a second kind, which differs in one register only, so
it takes one more line in the driver.

---
Adds: drivers/new/second.h
diff --git a/drivers/new/driver.c b/drivers/new/driver.c
--- a/drivers/new/driver.c
+++ b/drivers/new/driver.c
@@ -1,3 +1,4 @@
 /* driver */
+#include "second.h"
 first();
 last();
"""
TOPICS = """# threads
[fixes]
0001-mm-Keep-line-five-apart.patch

[new]
needs: fixes
0002-drivers-new-Add-the-driver.patch
0003-drivers-new-Serve-the-second-kind.patch
"""
UPSTREAM = {
    "Makefile": "VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 9\n",
    "MAINTAINERS": MAINTAINERS,
    # As the packaged kernel has it: everything new would be overlooked.
    ".gitignore": "/*\n",
    "mm/lines.c": LINES,
    "drivers/Makefile": "obj-y += gamma.o\nobj-y += omega.o\n",
    "drivers/gamma.c": "gamma\n" * 30,
    "drivers/omega.c": "omega\n",
    "scripts/get_maintainer.pl": GET_MAINTAINER,
}
REPOSITORY = {
    "series/base": "linux 7.3\n",
    "series/topics": TOPICS,
    "series/0000-cover-letter": "Subject: Everything\n\nWhat all of it is for.\n",
    "series/cover/new": "Subject: A new driver\n\nWhat the driver is for.\n",
    "series/0001-mm-Keep-line-five-apart.patch": FIX,
    "series/0002-drivers-new-Add-the-driver.patch": DRIVER,
    "series/0003-drivers-new-Serve-the-second-kind.patch": SECOND,
    "MAINTAINERS": OURS,
    "README.md": "readme\n",
    "drivers/new/driver.c": '/* driver */\n#include "second.h"\nfirst();\nlast();\n',
    "drivers/new/second.h": "second\n",
    "drivers/new/tool.sh": "#!/bin/sh\n",
}


def write(root, files):
    for name, text in files.items():
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="", encoding="utf-8")


def git(where, *args, **kwargs):
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env.update(WHO, GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1",
               GIT_SEQUENCE_EDITOR="true", GIT_EDITOR="true")
    run = subprocess.run(["git", "-C", str(where), *map(str, args)], env=env, check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
    if run.returncode:
        raise AssertionError(f"git {' '.join(map(str, args))}: {run.stderr}")
    return run.stdout


def snapshot(root, skip=("build",)):
    """Every file below root with its mode and content."""
    out = {}
    for where, dirs, files in os.walk(root):
        if Path(where) == Path(root):
            dirs[:] = [d for d in dirs if d not in skip]
        for name in files:
            path = Path(where) / name
            data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            out[str(path.relative_to(root))] = (path.lstat().st_mode,
                                                hashlib.sha256(data).hexdigest())
    return out


class Case(unittest.TestCase):
    maxDiff = None

    # Assembled once; every test gets a copy of its own.
    assembled = False
    templates = {}

    def setUp(self):
        self.tmp = Path(tempfile.mkdtemp(prefix="series-test."))
        self.addCleanup(shutil.rmtree, self.tmp)
        self.root = self.tmp / "repository"
        self.base = self.root / "build/base/linux"
        self.linux = self.root / "build/linux"
        self._identity()
        if not self.assembled:
            self._make()
            return
        if "assembled" not in self.templates:
            keep = tempfile.TemporaryDirectory(prefix="series-template.")
            self._make()
            self.series("assemble")
            shutil.copytree(self.root, Path(keep.name) / "r", symlinks=True)
            self.templates["assembled"] = keep
            shutil.rmtree(self.root)
        shutil.copytree(Path(self.templates["assembled"].name) / "r", self.root, symlinks=True)

    def _make(self):
        write(self.root, REPOSITORY)
        (self.root / "drivers/new/tool.sh").chmod(0o755)
        write(self.base, UPSTREAM)
        (self.base / "link").symlink_to("Makefile")
        os.utime(self.base / "Makefile", (1700000000, 1700000000))

    def _identity(self):
        for key, value in WHO.items():
            self.addCleanup(self._restore, key, os.environ.get(key))
            os.environ[key] = value

    @staticmethod
    def _restore(key, value):
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value

    def run_series(self, *args):
        """(exit status, stdout, stderr) of harness/series."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = PROGRAM.main([*map(str, args), "--root", str(self.root)])
        return status, out.getvalue(), err.getvalue()

    def series(self, *args):
        status, out, err = self.run_series(*args)
        self.assertEqual(status, 0, err)
        return out

    def refuse(self, *args, says):
        """Fails with one line that holds every part of says, and the repository is as it was."""
        before = snapshot(self.root)
        status, _, err = self.run_series(*args)
        self.assertEqual(status, 1, "was not refused")
        self.assertEqual(err.count("\n"), 1, err)
        for part in says:
            self.assertIn(part, err)
        self.assertEqual(snapshot(self.root), before)

    def edit(self, name, old, new, root=None):
        path = (root or self.root) / name
        text = path.read_text(encoding="utf-8")
        self.assertIn(old, text)
        path.write_text(text.replace(old, new), newline="", encoding="utf-8")

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def commit(self, message, *options):
        git(self.linux, "add", "-f", "-A")
        git(self.linux, "commit", "-q", "-m", message, *options)

    def fixup(self, subject):
        """What a developer does: a fixup commit, squashed into its place."""
        git(self.linux, "add", "-f", "-A")
        git(self.linux, "commit", "-q", "--fixup", f":/^{subject}")
        git(self.linux, "rebase", "-q", "-i", "--autosquash", "base")

    def clone(self, name="clone"):
        """A kernel clone of the user's own, with work in progress."""
        where = self.tmp / name
        if "clone" in self.templates:
            shutil.copytree(Path(self.templates["clone"].name) / "c", where, symlinks=True)
            return where
        where.mkdir()
        write(where, UPSTREAM)
        git(where, "init", "-q", "-b", "work")
        git(where, "add", "-f", "-A")
        git(where, "commit", "-q", "-m", "v7.3.9")
        keep = tempfile.TemporaryDirectory(prefix="series-template.")
        shutil.copytree(where, Path(keep.name) / "c", symlinks=True)
        self.templates["clone"] = keep
        return where
