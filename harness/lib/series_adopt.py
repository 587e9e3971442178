# SPDX-License-Identifier: GPL-2.0
"""Adds: lines after files came or went in the repository itself."""
import os

import series_mail as mail
from series_assemble import say
from series_git import ENCODING, SeriesError


def likely_patch(path, patches):
    """The patch that adds most of a file's neighbours, or of those a folder further up."""
    folder = os.path.dirname(path)
    while folder:
        counts = [(sum(os.path.dirname(p) == folder or p.startswith(folder + "/")
                       for p in patch.adds), patch) for patch in patches]
        best = max(counts, key=lambda pair: pair[0])
        if best[0]:
            return best[1]
        folder = os.path.dirname(folder)
    return None


def adopt(project, patches):
    """Enters files that are in no Adds:, and takes out those that are gone."""
    overlay = project.overlay()
    named = {path for patch in patches for path in patch.adds}
    # What a later patch renames or removes is named, and rightly not there.
    leaving = {s.old for p in patches for s in p.sections if s.kind in ("rename", "delete")}
    arriving = {s.new for p in patches for s in p.sections if s.kind == "rename"}
    lists = {patch.name: [p for p in patch.adds if p in overlay or p in leaving]
             for patch in patches}
    for path in sorted(overlay - named - arriving):
        project.check_path(path, project.show(project.root))
        patch = likely_patch(path, patches)
        if not patch:
            raise SeriesError(f"{path}: no patch adds anything near it: enter it in an Adds: yourself")
        lists[patch.name] = sorted(lists[patch.name] + [path])
        say(f"series: {project.mail_path(patch.name)}: Adds: {path}")
    for patch in patches:
        for path in patch.adds:
            if path not in lists[patch.name]:
                say(f"series: {project.mail_path(patch.name)}: no longer Adds: {path}")
        below = mail.with_markers(patch.below, lists[patch.name], patch.maintainers)
        if below != patch.below:
            patch.below = below
            (project.series / patch.name).write_text(patch.text(), newline="", **ENCODING)
