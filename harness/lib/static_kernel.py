# SPDX-License-Identifier: GPL-2.0
"""Checkers of the final tree: sparse, Coccinelle, kernel-doc, user headers."""
import os
import re
import subprocess

import tree_walk
from static_patches import call, configure, kmake
from steps import BUILD, TOP

FOLDERS = ("drivers/infiniband/hw/odp_hca/",)
# In folders that are not ours
OBJECTS = ("mm/longterm_pin.o",)
SPARSE = os.path.join(BUILD, "sparse/bin/sparse")


def own_files():
    """Files that the series adds to the kernel, without the tests."""
    walk = tree_walk.standard("static")
    raw = walk.git("diff", "--no-renames", "--diff-filter=A", "--name-only", "base..HEAD").decode()
    return walk, [p for p in raw.splitlines() if p.endswith((".c", ".h"))]


def final(walk):
    """The scratch tree at the end of the series, ready to compile."""
    walk.start()
    walk.step(walk.git("rev-parse", "HEAD").decode().strip())
    configure(walk)
    status, lines = kmake(walk, "-s", "prepare", "modules_prepare")
    if status:
        raise ValueError("\n".join(lines[-20:]))


def kernel_doc(report):
    walk, paths = own_files()
    paths = [p for p in paths if not p.startswith("tools/")]
    if not paths:
        raise ValueError("the series adds no file to look at")
    status, lines = call(["scripts/kernel-doc", "-none", "-Wall", "-Werror"] + paths, cwd=walk.repo)
    found = [line for line in lines if re.search(r"warning|error", line, re.IGNORECASE)]
    report.point("kernel-doc", "%d files" % len(paths),
                 found or (lines[-5:] or ["status %d" % status] if status else []))


def uapi(report):
    """A user header compiles by itself, in C and in C++, by the strictest rules."""
    walk, paths = own_files()
    for path in [p for p in paths if p.startswith("include/uapi/")]:
        found = []
        for words in (["gcc", "-x", "c", "-std=c90"], ["g++", "-x", "c++", "-std=c++17"]):
            done = subprocess.run(words + ["-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                                           os.path.join(walk.repo, path)], check=False,
                                  stderr=subprocess.PIPE, universal_newlines=True)
            found += done.stderr.splitlines() if done.returncode else []
        report.point("uapi", path, found)


def sparse(report):
    if not os.access(SPARSE, os.X_OK):
        status, lines = call([os.path.join(TOP, "harness/fetch"), "sparse"])
        if status:
            raise ValueError("\n".join(lines[-10:]))
    walk, _ = own_files()
    final(walk)
    for folder in FOLDERS + OBJECTS:
        status, lines = kmake(walk, "C=2", "CHECK=" + SPARSE, "CF=-D__CHECK_ENDIAN__", folder)
        checked = [line for line in lines if line.strip().startswith("CHECK")]
        found = [line for line in lines if re.search(r": (warning|error):", line)]
        if not checked:
            found.append("sparse looked at no file of %s" % folder)
        if status and not found:
            found = lines[-10:]
        report.point("sparse", "%s (%d files)" % (folder, len(checked)), found)


def coccinelle(report):
    walk, _ = own_files()
    final(walk)
    for folder in FOLDERS:
        status, lines = call(["make", "-C", walk.tree, "O=" + walk.objects, "coccicheck",
                              "MODE=report", "M=" + folder, "J=%d" % (os.cpu_count() or 2)])
        found = [line for line in lines if re.search(r"\.[ch]:\d+:\d+-\d+: ", line)]
        if status and not found:
            found = lines[-10:]
        report.point("coccinelle", folder, found)
