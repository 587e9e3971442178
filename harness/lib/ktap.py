# SPDX-License-Identifier: GPL-2.0
"""KTAP in, results out: every test point, named by the path that leads to it."""
import re

_POINT = re.compile(r"^(not )?ok\b[ \t]*(\d+)?[ \t]*(?:- )?(.*)$")
_PLAN = re.compile(r"^1\.\.(\d+)(?:[ \t]*# SKIP\b[ \t]*(.*))?$", re.IGNORECASE)
_SUBTEST = re.compile(r"^# Subtest: (.+)$")
_DIRECTIVE = re.compile(r"(?:^|\s)# (SKIP|XFAIL|TIMEOUT|ERROR)\b[ \t]*(.*)$", re.IGNORECASE)

PASS, FAIL, SKIP = "passed", "failed", "skipped"


class Result:
    """One test: its full name, how it went, why, and what it printed."""

    def __init__(self, name, outcome, reason="", output=()):
        self.name = name
        self.outcome = outcome
        self.reason = reason
        self.output = list(output)

    def __repr__(self):
        return "%s %s%s" % (self.outcome, self.name, self.reason and " # " + self.reason)


class _Level:
    def __init__(self, indent, name):
        self.indent = indent
        self.name = name
        self.plan = None
        self.points = 0
        self.leaves = []
        self.output = []


def _indent(line):
    return len(line) - len(line.lstrip(" "))


def parse(text, prefix=""):
    """Leaves of the tree of tests. What stands for a subtest as a whole counts
    only where it contradicts its parts; a plan that is not kept is a failure."""
    levels = [_Level(0, prefix)]
    pending = None

    def full(level, name):
        return ".".join(part for part in (level.name, name) if part)

    def settle(level):
        if level.plan is not None and level.plan != level.points:
            level.leaves.append(Result(full(level, "(plan)"), FAIL,
                                       "%d tests planned, %d reported" % (level.plan, level.points),
                                       level.output))

    for raw in text.replace("\r", "").splitlines():
        indent, line = _indent(raw), raw.strip()
        found = _SUBTEST.match(line)
        if found:
            pending = (indent, found.group(1))
            continue
        plan, point = _PLAN.match(line), _POINT.match(line)
        if not plan and not point:
            levels[-1].output.append(raw)
            continue
        level = levels[-1]
        if indent > level.indent:
            name = full(level, pending[1] if pending else "?")
            level = _Level(indent, name)
            levels.append(level)
            pending = None
        done = []
        while indent < levels[-1].indent and len(levels) > 1:
            sub = levels.pop()
            settle(sub)
            done = sub.leaves + done
        level = levels[-1]
        if plan:
            level.plan = int(plan.group(1))
            if level.plan == 0 and plan.group(2) is not None:
                level.leaves.append(Result(full(level, "(all)"), SKIP, plan.group(2)))
            continue
        level.points += 1
        result = _result(point, level, full)
        if done:
            level.leaves += done
            failed = any(r.outcome == FAIL for r in done)
            if result.outcome == FAIL and not failed:
                result.reason = result.reason or "failed as a whole, none of its tests did"
                level.leaves.append(result)
        else:
            level.leaves.append(result)
        level.output = []
    while len(levels) > 1:
        sub = levels.pop()
        settle(sub)
        sub.leaves.append(Result(sub.name, FAIL, "ended without a result", sub.output))
        levels[-1].leaves += sub.leaves
    settle(levels[0])
    return levels[0].leaves


def _result(point, level, full):
    rest = point.group(3)
    directive = _DIRECTIVE.search(rest)
    name, _, reason = rest.partition(" # ")
    name = (rest[:directive.start()] if directive else name).strip()
    name = name or point.group(2) or "?"
    outcome = FAIL if point.group(1) else PASS
    if directive:
        reason = directive.group(2)
        kind = directive.group(1).upper()
        if kind == "SKIP":
            outcome = SKIP
        elif kind == "XFAIL":
            outcome, reason = SKIP, "expected failure: " + reason
        elif kind in ("TIMEOUT", "ERROR"):
            outcome, reason = FAIL, "%s %s" % (kind.lower(), reason)
    return Result(full(level, name), outcome, reason, level.output)


def count(results):
    return tuple(sum(r.outcome == kind for r in results) for kind in (PASS, FAIL, SKIP))
