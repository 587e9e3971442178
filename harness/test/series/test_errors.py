# SPDX-License-Identifier: GPL-2.0
"""Every mistake gets one line that names where it is, and changes nothing."""
import unittest

from fixture import Case, git

FIX = "series/0001-mm-Keep-line-five-apart.patch"
DRIVER = "series/0002-drivers-new-Add-the-driver.patch"
SECOND = "series/0003-drivers-new-Serve-the-second-kind.patch"


class Refused(Case):
    def refuse_assemble(self, *says):
        self.refuse("assemble", says=says)

    def test_patch_does_not_apply(self):
        self.series("assemble")
        tip = git(self.linux, "rev-parse", "HEAD", "series")
        self.edit(FIX, " line 6\n", " line six\n")
        self.refuse_assemble(FIX, "mm/lines.c", "hunk 1 of 1 (@@ -2,6 +2,7 @@", "linux 7.3.9")
        self.assertEqual(git(self.linux, "rev-parse", "HEAD", "series"), tip)
        self.assertEqual(git(self.linux, "status", "--porcelain"), "")

    def test_second_hunk_is_named(self):
        self.edit(FIX, " line 7\n", " line 7\n@@ -30,3 +31,3 @@\n line 30\n-line xx\n+x\n line 32\n")
        self.refuse_assemble(FIX, "mm/lines.c", "hunk 2 of 2 (@@ -30,3 +31,3 @@")

    def test_file_that_upstream_lacks(self):
        self.edit(FIX, "mm/lines.c", "mm/missing.c")
        self.refuse_assemble(FIX, "mm/missing.c")

    def test_hunk_on_own_file_does_not_fit(self):
        self.edit("drivers/new/driver.c", '#include "second.h"', "#include <third.h>")
        self.refuse_assemble(SECOND, "drivers/new/driver.c", "hunk 1 of 1")

    def test_edit_beside_a_hunk_on_own_file(self):
        """No conflict; the mail's context is out of date until it is taken back."""
        self.edit("drivers/new/driver.c", "last", "final")
        self.assertIn(SECOND, self.series("assemble"))
        self.assertEqual(git(self.linux, "show", "series~1:drivers/new/driver.c"),
                         "/* driver */\nfirst();\nfinal();\n")
        self.refuse("check", says=[SECOND, "final"])
        self.assertIn(SECOND, self.series("refresh"))
        self.assertIn(" final();\n", self.read(SECOND))
        self.series("check")

    def test_malformed_hunk(self):
        self.edit(FIX, "@@ -2,6 +2,7 @@", "@@ -2,7 +2,8 @@")
        self.refuse_assemble(FIX, "mm/lines.c", "hunk 1", "fewer lines")
        self.edit(FIX, "@@ -2,7 +2,8 @@", "@@ -2,4 +2,5 @@")
        self.refuse_assemble(FIX, "mm/lines.c", "more lines")

    def test_two_adds(self):
        self.edit(SECOND, "Adds: ", "Adds: drivers/new/tool.sh ")
        self.refuse_assemble(SECOND, DRIVER, "drivers/new/tool.sh")

    def test_no_adds(self):
        (self.root / "mm").mkdir()
        (self.root / "mm/stray.c").write_text("stray\n")
        self.refuse_assemble("mm/stray.c", "in the Adds: of no patch")

    def test_adds_without_file(self):
        self.edit(SECOND, "Adds: ", "Adds: drivers/new/nothing.c ")
        self.refuse_assemble(SECOND, "drivers/new/nothing.c", "no such file")

    def test_adds_of_upstream_file(self):
        (self.root / "drivers/omega.c").write_text("ours\n")
        self.edit(SECOND, "Adds: ", "Adds: drivers/omega.c ")
        self.refuse_assemble(SECOND, "drivers/omega.c", "belongs in the diff")

    def test_new_file_in_diff(self):
        self.edit(SECOND, "diff --git", "diff --git a/mm/n.c b/mm/n.c\nnew file mode 100644\n"
                  "--- /dev/null\n+++ b/mm/n.c\n@@ -0,0 +1 @@\n+n\ndiff --git")
        self.refuse_assemble(SECOND, "mm/n.c", "Adds:")

    def test_hostile_adds(self):
        outside = self.tmp / "outside.c"
        outside.write_text("secret\n")
        for path in ("../outside.c", str(outside), "drivers/../../outside.c", ".git/hooks/x",
                     "drivers/.GIT/x", "./drivers/new/x.c", "drivers//x.c", "harness/series",
                     "README.md", "series/base", "build/x", ".ci/run", 'a"b'):
            with self.subTest(path=path):
                text = self.read(SECOND)
                self.edit(SECOND, "Adds: ", f"Adds: {path} ")
                self.refuse_assemble(SECOND, path)
                (self.root / SECOND).write_text(text)

    def test_overlay_link(self):
        (self.tmp / "outside.c").write_text("secret\n")
        target = self.root / "drivers/new/second.h"
        target.unlink()
        target.symlink_to(self.tmp / "outside.c")
        self.refuse_assemble("drivers/new/second.h", "symbolic link")
        target.unlink()
        (self.tmp / "folder").mkdir()
        (self.tmp / "folder/x.h").write_text("secret\n")
        (self.root / "drivers/new/sub").symlink_to(self.tmp / "folder")
        self.edit(SECOND, "second.h", "sub/x.h")
        self.refuse_assemble("drivers/new/sub")

    def test_hostile_diff_path(self):
        for path in ("../outside.c", ".git/config"):
            with self.subTest(path=path):
                text = self.read(FIX)
                self.edit(FIX, "mm/lines.c", path)
                self.refuse_assemble(FIX)
                (self.root / FIX).write_text(text)

    def test_maintainers(self):
        self.edit(DRIVER, "Maintainers: BETA\n", "")
        self.refuse_assemble("MAINTAINERS", "BETA", "no patch")
        self.edit(DRIVER, "v2:", "Maintainers: DELTA\nv2:")
        self.refuse_assemble(DRIVER, "DELTA", "no such section")
        self.edit(DRIVER, "rs: DELTA", "rs: GAMMA")
        self.edit("MAINTAINERS", "BETA", "GAMMA")
        self.refuse_assemble(DRIVER, "GAMMA", "already")

    def test_numbers(self):
        (self.root / SECOND).rename(self.root / SECOND.replace("0003", "0004"))
        self.refuse_assemble("0004-drivers", "0003", "without gaps")

    def test_topics(self):
        topics = self.read("series/topics")
        for old, new, says in (
                ("0001-mm-Keep-line-five-apart.patch\n", "", "is in no topic"),
                ("needs: fixes", "needs: later", "needs 'later'"),
                ("[new]\n", "[new]\n0009-nothing.patch\n", "no patch of the series"),
                ("0002-", "0003-", "topics")):
            with self.subTest(says=says):
                self.edit("series/topics", old, new)
                self.refuse_assemble("series/topics", says)
                (self.root / "series/topics").write_text(topics)

    def test_not_a_mail(self):
        for old, new, says in (("---\n", "", "no --- line"),
                               ("Subject: [PATCH] mm", "Topic: mm", "unexpected header"),
                               ("misled about each.", "diff --git is a program", None),
                               ("misled about each.", "each\ndiff -u", "git am would cut"),
                               ("misled about each.", "each\n--- a", "git am would cut")):
            with self.subTest(new=new):
                text = self.read(FIX)
                self.edit(FIX, old, new)
                if says:
                    self.refuse_assemble(FIX, says)
                else:
                    self.series("assemble")
                (self.root / FIX).write_text(text)

    def test_empty_patch(self):
        text = self.read(FIX)
        (self.root / FIX).write_text(text[:text.index("diff --git")])
        self.refuse_assemble(FIX, "changes nothing")

    def test_no_base(self):
        (self.base / "Makefile").unlink()
        self.refuse_assemble("build/base/linux", "harness/fetch kernel")
        (self.root / "series/base").write_text("linux\n")
        self.refuse_assemble("series/base", "linux 7.3")

    def test_unsaved_work_is_kept(self):
        self.series("assemble")
        lines = self.linux / "mm/lines.c"
        lines.write_text("work in progress\n")
        self.edit("drivers/new/second.h", "second", "other")
        self.refuse_assemble("build/linux/mm/lines.c", "not committed")
        self.assertEqual(lines.read_text(), "work in progress\n")
        self.commit("mm: Work")
        tip = git(self.linux, "rev-parse", "series")
        self.refuse_assemble("refresh")
        self.assertEqual(git(self.linux, "rev-parse", "series"), tip)
        self.series("assemble", "--force")
        self.assertNotEqual(lines.read_text(), "work in progress\n")

    def test_check(self):
        self.series("check")
        cases = ((FIX, "Cc: stable@vger.kernel.org\n", "", "without Cc: stable"),
                 (FIX, "0123456789ab", "0123", "Fixes:"),
                 (FIX, "mm: Keep", "Keep", "Subject"),
                 (SECOND, "\n\nThe device comes in a second kind, which differs in one register "
                  "only, so\nit takes one more line in the driver.\n", "\n\nMore.\n", "no reason"),
                 (FIX, "@@ -2,6 +2,7 @@ line 1", "@@ -2,6 +2,7 @@ line 1", None),
                 (FIX, "neighbours is read", "neighbours is always to be read", "75 columns"),
                 (DRIVER, "\n---\nAdds", "---\nAdds", "would write it"))
        for name, old, new, says in cases:
            with self.subTest(says=says):
                text = self.read(name)
                self.edit(name, old, new)
                if says:
                    self.refuse("check", says=[name, says])
                else:
                    self.series("check")
                (self.root / name).write_text(text)


if __name__ == "__main__":
    unittest.main()
