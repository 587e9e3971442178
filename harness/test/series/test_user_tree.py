# SPDX-License-Identifier: GPL-2.0
"""--kernel: a branch in the user's clone, or beside the user's tarball, and nothing else."""
import os
import shutil
import unittest

from fixture import Case, UPSTREAM, git, snapshot, write

FIX = "series/0001-mm-Keep-line-five-apart.patch"


class Clone(Case):
    def setUp(self):
        super().setUp()
        self.where = self.clone()
        # Work in progress: staged, unstaged and untracked.
        (self.where / "mm/lines.c").write_text("unstaged\n")
        (self.where / "staged.c").write_text("staged\n")
        git(self.where, "add", "-f", "staged.c")
        (self.where / "untracked.c").write_text("untracked\n")
        # A hook of the user's must not run on our account.
        write(self.where, {".git/hooks/reference-transaction":
                           f"#!/bin/sh\ntouch {self.tmp}/hook-ran\n",
                           ".git/hooks/post-index-change":
                           f"#!/bin/sh\ntouch {self.tmp}/hook-ran\n"})
        for hook in (self.where / ".git/hooks").iterdir():
            hook.chmod(0o755)
        self.before = snapshot(self.where, ())

    def difference(self):
        after = snapshot(self.where, ())
        return sorted(n for n in set(after) | set(self.before)
                      if after.get(n) != self.before.get(n))

    def assert_only_the_branch(self, branch="rdma-odp"):
        allowed = (f".git/refs/heads/{branch}", f".git/logs/refs/heads/{branch}",
                   ".git/objects/pack/pack-")
        extra = [n for n in self.difference() if not n.startswith(allowed)]
        self.assertEqual(extra, [])
        self.assertFalse((self.tmp / "hook-ran").exists())

    def test_branch_and_nothing_else(self):
        self.series("assemble", "--kernel", self.where)
        self.assert_only_the_branch()
        self.assertEqual(git(self.where, "rev-parse", "rdma-odp~3"),
                         git(self.where, "rev-parse", "work"))
        self.assertEqual(git(self.where, "show", "rdma-odp:drivers/new/second.h"), "second\n")
        git(self.where, "fsck", "--strict")
        self.series("assemble", "--kernel", self.where)
        self.assert_only_the_branch()

    def test_series_changes(self):
        self.series("assemble", "--kernel", self.where)
        first = git(self.where, "rev-parse", "rdma-odp")
        self.edit("drivers/new/second.h", "second", "other")
        self.series("assemble", "--kernel", self.where)
        self.assertNotEqual(git(self.where, "rev-parse", "rdma-odp"), first)
        self.assert_only_the_branch()

    def test_failure_leaves_everything(self):
        self.edit(FIX, " line 6\n", " line six\n")
        self.refuse("assemble", "--kernel", self.where,
                    says=[FIX, "mm/lines.c", "hunk 1 of 1", str(self.where)])
        self.assertEqual(self.difference(), [])

    def test_existing_branch(self):
        git(self.where, "branch", "rdma-odp")
        (self.tmp / "hook-ran").unlink(missing_ok=True)
        self.before = snapshot(self.where, ())
        self.refuse("assemble", "--kernel", self.where, says=["rdma-odp", "exists", "--branch"])
        self.assertEqual(self.difference(), [])
        self.series("assemble", "--kernel", self.where, "--branch", "topic/odp")
        self.assert_only_the_branch("topic/odp")

    def test_edited_branch(self):
        self.series("assemble", "--kernel", self.where)
        git(self.where, "stash", "-q")
        git(self.where, "checkout", "-q", "rdma-odp")
        self.edit("drivers/new/second.h", "second", "edited there", self.where)
        git(self.where, "commit", "-q", "-a", "--amend", "-C", "HEAD")
        tip = git(self.where, "rev-parse", "rdma-odp")
        self.edit("drivers/new/tool.sh", "sh", "dash")
        self.refuse("assemble", "--kernel", self.where, says=["rdma-odp"])
        self.assertEqual(git(self.where, "rev-parse", "rdma-odp"), tip)
        self.edit("drivers/new/tool.sh", "dash", "sh")
        self.series("refresh", "--kernel", self.where)
        self.assertEqual(self.read("drivers/new/second.h"), "edited there\n")

    def test_checked_out(self):
        self.series("assemble", "--kernel", self.where)
        git(self.where, "stash", "-q")
        git(self.where, "checkout", "-q", "rdma-odp")
        self.assertIn("nothing to do", self.series("assemble", "--kernel", self.where))
        self.edit("drivers/new/second.h", "second", "other")
        self.refuse("assemble", "--kernel", self.where, says=["checked out"])

    def test_onto(self):
        git(self.where, "commit", "-q", "-m", "staged")
        self.series("assemble", "--kernel", self.where, "--onto", "work~1")
        self.assertEqual(git(self.where, "rev-parse", "rdma-odp~3"),
                         git(self.where, "rev-parse", "work~1"))
        self.refuse("assemble", "--kernel", self.where, "--onto", "nowhere", says=["nowhere"])

    def test_worktree_of_a_clone(self):
        other = self.tmp / "other"
        git(self.where, "worktree", "add", "-q", "-b", "other", other)
        self.series("assemble", "--kernel", other)
        self.assertEqual(git(self.where, "show", "rdma-odp:drivers/new/second.h"), "second\n")

    def test_bare_and_shallow(self):
        bare = self.tmp / "bare.git"
        git(self.tmp, "clone", "-q", "--bare", "--depth=1", f"file://{self.where}", bare)
        self.series("assemble", "--kernel", bare)
        self.assertEqual(git(bare, "show", "rdma-odp:drivers/new/second.h"), "second\n")

    def test_another_release(self):
        (self.where / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 2\nSUBLEVEL = 1\n")
        git(self.where, "commit", "-q", "-m", "v7.2.1", "Makefile")
        self.assertIn("is linux 7.2.1, the series is based on 7.3",
                      self.series("assemble", "--kernel", self.where))

    def test_not_a_kernel(self):
        for name in ("empty", "nowhere"):
            where = self.tmp / name
            if name == "empty":
                where.mkdir()
            self.refuse("assemble", "--kernel", where, says=[str(where)])
        git(self.tmp, "init", "-q", "fresh")
        self.refuse("assemble", "--kernel", self.tmp / "fresh", says=["HEAD"])
        for branch in ("../x", "-x", "a..b", "HEAD"):
            self.refuse("assemble", "--kernel", self.where, f"--branch={branch}", says=[branch])
        self.assertEqual(self.difference(), [])

    def test_export(self):
        self.series("export", "--kernel", self.where)
        self.assert_only_the_branch()
        self.assertTrue((self.root / "build/series/linux/rdma-odp.bundle").exists())
        where = self.clone("third")
        for topic in ("fixes", "new"):
            mails = sorted((self.root / f"build/series/linux/mails/{topic}").glob("*[1-9]-*"))
            git(where, "am", "-q", *mails)
        self.assertEqual(git(where, "rev-parse", "HEAD^{tree}"),
                         git(self.where, "rev-parse", "rdma-odp^{tree}"))


class Tarball(Case):
    def setUp(self):
        super().setUp()
        self.where = self.tmp / "linux-7.3.9"
        write(self.where, UPSTREAM)
        self.before = snapshot(self.where, ())

    def repository(self):
        return next((self.root / "build/trees").glob("linux-7.3.9-*.git"))

    def test_nothing_is_written(self):
        out = self.series("assemble", "--kernel", self.where)
        self.assertIn("build/trees/linux-7.3.9-", out)
        self.assertEqual(snapshot(self.where, ()), self.before)
        self.assertEqual(git(self.repository(), "show", "rdma-odp:drivers/new/second.h"),
                         "second\n")
        self.assertIn("nothing to do", self.series("assemble", "--kernel", self.where))

    def test_edited_tarball(self):
        self.series("assemble", "--kernel", self.where)
        (self.where / "mm/lines.c").write_text("new first line\n" + UPSTREAM["mm/lines.c"])
        self.series("assemble", "--kernel", self.where)
        self.assertIn("new first line\n",
                      git(self.repository(), "show", "rdma-odp:mm/lines.c"))

    def test_failure(self):
        self.edit(FIX, " line 6\n", " line six\n")
        self.refuse("assemble", "--kernel", self.where, says=[FIX, "mm/lines.c", "hunk 1 of 1"])
        self.assertEqual(snapshot(self.where, ()), self.before)

    def test_inside_another_repository(self):
        """An unpacked tarball below somebody's checkout is no clone of a kernel."""
        outer = self.clone("outer")
        shutil.copytree(self.where, outer / "linux")
        before = snapshot(outer, ())
        self.series("assemble", "--kernel", outer / "linux")
        self.assertEqual(snapshot(outer, ()), before)

    def test_built_tree(self):
        """What a build left there is no part of the kernel."""
        write(self.where, {"mm/lines.o": "object\n", "mm/.lines.o.cmd": "cmd\n"})
        self.series("assemble", "--kernel", self.where)
        names = git(self.repository(), "ls-tree", "-r", "--name-only", "rdma-odp")
        self.assertNotIn("lines.o", names)
        os.utime(self.where / "Makefile")


if __name__ == "__main__":
    unittest.main()
