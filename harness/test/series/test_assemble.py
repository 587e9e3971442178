# SPDX-License-Identifier: GPL-2.0
"""assemble: what the branch holds, and that it is made the same way every time."""
import os
import unittest

from fixture import Case, LINES, git, snapshot


class Assemble(Case):
    def show(self, rev, path):
        return git(self.linux, "show", f"{rev}:{path}")

    def test_commits(self):
        self.series("assemble")
        log = git(self.linux, "log", "--reverse", "--format=%s|%an|%ae", "base..series")
        self.assertEqual(log.split("\n")[:3], [
            "mm: Keep line five apart|Fixture|fixture@example.org",
            "drivers/new: Add the driver|Fixture|fixture@example.org",
            "drivers/new: Serve the second kind|Fixture|fixture@example.org"])
        body = git(self.linux, "log", "-1", "--format=%b", "series~2")
        self.assertTrue(body.rstrip().endswith(
            'Fixes: 0123456789ab ("mm: Add lines")\nCc: stable@vger.kernel.org\n'
            "Signed-off-by: Fixture <fixture@example.org>"), body)
        second = git(self.linux, "log", "-1", "--format=%B", "series~1")
        self.assertNotIn("Adds:", second)
        self.assertNotIn("note for reviewers", second)
        self.assertIn("built.\n\nSigned-off-by: Fixture", second)

    def test_trees(self):
        self.series("assemble")
        lines = LINES.replace("line 5\n", "line four and a half\nline 5\n")
        self.assertEqual(self.show("series", "mm/lines.c"), lines)
        self.assertEqual(self.show("base", "mm/lines.c"), LINES)
        # The state that an earlier patch leaves of a file that a later one edits.
        self.assertEqual(self.show("series~1", "drivers/new/driver.c"),
                         "/* driver */\nfirst();\nlast();\n")
        self.assertEqual(self.show("series", "drivers/new/driver.c"),
                         self.read("drivers/new/driver.c"))
        names = git(self.linux, "ls-tree", "-r", "--name-only", "series~1")
        self.assertNotIn("second.h", names)
        self.assertIn("100755", git(self.linux, "ls-tree", "series", "drivers/new/tool.sh"))
        self.assertIn("120000", git(self.linux, "ls-tree", "series", "link"))

    def test_maintainers(self):
        self.series("assemble")
        text = self.show("series", "MAINTAINERS")
        self.assertIn("F:\tmm/\n\nBETA\nM:\tFixture <fixture@example.org>\nL:\tbeta@example.org\n"
                      "S:\tMaintained\nF:\tdrivers/new/\n\nGAMMA\n", text)
        self.assertNotIn("BETA", self.show("series~2", "MAINTAINERS"))

    def test_maintainers_last(self):
        self.edit("MAINTAINERS", "BETA", "ZETA")
        self.edit("series/0002-drivers-new-Add-the-driver.patch", "rs: BETA", "rs: ZETA")
        self.series("assemble")
        self.assertIn("F:\tdrivers/new/\n\nTHE REST\n", self.show("series", "MAINTAINERS"))
        self.assertIn("nothing changed", self.series("refresh"))

    def test_maintainers_beside_an_edit(self):
        self.edit("series/0003-drivers-new-Serve-the-second-kind.patch", "diff --git",
                  "diff --git a/MAINTAINERS b/MAINTAINERS\n--- a/MAINTAINERS\n+++ b/MAINTAINERS\n"
                  "@@ -10,6 +10,7 @@ ALPHA\n M:\tAlpha List <alpha@example.org>\n S:\tMaintained\n"
                  " F:\tmm/\n+F:\tlib/\n \n GAMMA\n L:\tgamma@example.org\ndiff --git")
        self.series("assemble")
        text = self.show("series", "MAINTAINERS")
        self.assertIn("F:\tmm/\nF:\tlib/\n\nBETA\n", text)
        self.assertNotIn("lib/", self.show("series~1", "MAINTAINERS"))
        self.assertIn("nothing changed", self.series("refresh"))

    def test_worktree(self):
        self.series("assemble")
        self.assertEqual(git(self.linux, "status", "--porcelain"), "")
        self.assertEqual(git(self.linux, "symbolic-ref", "HEAD").strip(), "refs/heads/series")
        for name in ("Makefile", "drivers/new/driver.c", "drivers/new/tool.sh"):
            self.assertTrue((self.linux / name).exists())

    def test_same_commits_twice(self):
        self.series("assemble")
        tip = git(self.linux, "rev-parse", "series")
        self.assertIn("nothing to do", self.series("assemble"))
        os.rename(self.linux, self.tmp / "old")
        self.series("assemble")
        self.assertEqual(git(self.linux, "rev-parse", "series"), tip)

    def test_only_changed_files_are_written(self):
        self.series("assemble")
        old = {p: p.stat().st_mtime_ns for p in self.linux.rglob("*")
               if p.is_file() and ".git" not in p.parts}
        for path in old:
            os.utime(path, ns=(10**18, 10**18))
        git(self.linux, "update-index", "--refresh")
        self.edit("drivers/new/second.h", "second", "second, edited")
        self.series("assemble")
        written = sorted(str(p.relative_to(self.linux)) for p in old
                         if p.stat().st_mtime_ns != 10**18)
        self.assertEqual(written, ["drivers/new/second.h"])

    def test_file_leaves(self):
        self.series("assemble")
        (self.root / "drivers/new/second.h").unlink()
        self.edit("series/0003-drivers-new-Serve-the-second-kind.patch",
                  "Adds: drivers/new/second.h\n", "")
        self.series("assemble")
        self.assertFalse((self.linux / "drivers/new/second.h").exists())

    def test_base_is_not_written_to(self):
        before = snapshot(self.base, ())
        self.series("assemble")
        self.series("export")
        self.assertEqual(snapshot(self.base, ()), before)

    def test_new_base(self):
        self.series("assemble")
        self.edit("Makefile", "= 9", "= 10", self.base)
        self.series("assemble")
        self.assertEqual(git(self.linux, "log", "-1", "--format=%s", "base").strip(),
                         "linux 7.3.10")
        self.assertEqual(git(self.linux, "merge-base", "base", "series"),
                         git(self.linux, "rev-parse", "base"))
        self.assertEqual(git(self.linux, "status", "--porcelain"), "")

    def test_an_interrupted_checkout_is_finished(self):
        self.series("assemble")
        state = self.linux / ".git/series-series.json"
        text = state.read_text()
        state.write_text(text.replace("{", '{\n "updating": "x",', 1))
        (self.linux / "mm/lines.c").write_text("half")
        self.series("assemble")
        self.assertEqual(git(self.linux, "status", "--porcelain"), "")

    def test_offset(self):
        """Point releases move lines: hunks find their place, and stay as they are."""
        text = (self.base / "mm/lines.c").read_text()
        (self.base / "mm/lines.c").write_text("new first line\n" * 3 + text)
        self.series("assemble")
        self.assertIn("nothing changed", self.series("refresh"))


if __name__ == "__main__":
    unittest.main()
