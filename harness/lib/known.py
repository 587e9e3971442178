# SPDX-License-Identifier: GPL-2.0
"""Skips and failures that are known, each with its reason: a list that must
stay true in both directions."""
import fnmatch

import ktap


class Entry:
    def __init__(self, where, device, pattern, reason):
        self.where = where
        self.device = device
        self.pattern = pattern
        self.reason = reason
        self.used = False


def load(path):
    """Lines of: DEVICE TEST REASON. DEVICE and TEST may be globs, as in fnmatch.
    A reason that begins with "sometimes" is of a failure that need not come."""
    entries = []
    try:
        with open(path) as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return entries
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = line.split(None, 2)
        if len(words) != 3:
            raise ValueError("%s:%d: wants a device, a test and a reason" % (path, number))
        entries.append(Entry("%s:%d" % (path, number), *words))
    return entries


def _find(entries, device, name):
    hits = [e for e in entries if fnmatch.fnmatchcase(device, e.device)
            and fnmatch.fnmatchcase(name, e.pattern)]
    for entry in hits:
        entry.used = True
    return hits[0] if hits else None


def apply(results, device, skips, failures):
    """Results as they count: what is known is skipped, what is unknown fails."""
    judged = []
    for result in results:
        if result.outcome == ktap.SKIP:
            entry = _find(skips, device, result.name)
            if entry is None:
                result = ktap.Result(result.name, ktap.FAIL,
                                     "skipped, and no list allows it: " + result.reason,
                                     result.output)
        elif result.outcome == ktap.FAIL:
            entry = _find(failures, device, result.name)
            if entry is not None:
                result = ktap.Result(result.name, ktap.SKIP,
                                     "expected failure: " + entry.reason, result.output)
        judged.append(result)
    for kind, entries in (("skip", skips), ("failure", failures)):
        for entry in entries:
            if (fnmatch.fnmatchcase(device, entry.device) and not entry.used
                    and not (kind == "failure" and entry.reason.startswith("sometimes"))):
                judged.append(ktap.Result("%s.%s" % (device, entry.pattern), ktap.FAIL,
                                          "the %s that %s expects did not come"
                                          % (kind, entry.where)))
    return judged
