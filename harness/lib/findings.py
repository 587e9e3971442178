# SPDX-License-Identifier: GPL-2.0
"""What checkers find, and the exceptions that a reason justifies."""
import re


class Exceptions:
    """Lines of: CHECK | REGEX | REASON. One that matches nothing is an error:
    what it excused is gone, or was never there."""

    def __init__(self, path):
        self.path = path
        self.entries = []
        try:
            with open(path) as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            lines = []
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            parts = [part.strip() for part in line.split(" | ")]
            if len(parts) != 3 or not all(parts):
                raise ValueError("%s:%d: wants CHECK | REGEX | REASON" % (path, number))
            self.entries.append([number, parts[0], re.compile(parts[1]), False])

    def filter(self, check, findings):
        left = []
        for finding in findings:
            hits = [e for e in self.entries if e[1] == check and e[2].search(finding)]
            for entry in hits:
                entry[3] = True
            if not hits:
                left.append(finding)
        return left

    def unused(self, checks):
        return ["%s:%d: excuses nothing that '%s' found: %s" % (
            self.path, number, check, regex.pattern)
            for number, check, regex, used in self.entries if check in checks and not used]


class Report:
    """One KTAP point a subject; everything found stands above its point."""

    def __init__(self, exceptions):
        self.exceptions = exceptions
        self.points = 0
        self.failed = 0
        self.checks = set()
        print("TAP version 13", flush=True)

    def point(self, check, subject, findings):
        self.checks.add(check)
        left = self.exceptions.filter(check, findings)
        self._print("%s %s" % (check, subject), left)

    def skip(self, check, reason):
        self.points += 1
        print("ok %d %s # SKIP %s" % (self.points, check, reason), flush=True)

    def _print(self, name, findings):
        self.points += 1
        self.failed += bool(findings)
        for finding in findings:
            for line in finding.splitlines():
                print("# " + line)
        print("%sok %d %s%s" % ("not " if findings else "", self.points, name,
                                " # %d findings" % len(findings) if findings else ""), flush=True)

    def end(self):
        self._print("exceptions are all in use", self.exceptions.unused(self.checks))
        print("1..%d" % self.points)
        return 1 if self.failed else 0
