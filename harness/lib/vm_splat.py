# SPDX-License-Identifier: GPL-2.0
"""What a kernel log says when the kernel found a fault in itself."""
import re

# Name, pattern. The first that matches a line gives the splat its name.
PATTERNS = [(name, re.compile(regex)) for name, regex in (
    ("panic", r"Kernel panic - not syncing"),
    ("kasan", r"BUG: KASAN:|BUG: KFENCE:"),
    ("atomic", r"BUG: (scheduling while atomic|sleeping function called)"),
    ("lockup", r"BUG: (soft lockup|workqueue lockup)|watchdog: .*(hard|soft) LOCKUP|hard lockup"),
    ("lockdep", r"WARNING: (possible |suspicious |inconsistent |bad |held lock|lock held|"
                r"Nested lock|chain |nested lock|\S+/\d+ (is|still) )"
                r"|INFO: possible |INFO: trying to register non-static key|DEBUG_LOCKS_WARN_ON"
                r"|BUG: (MAX_LOCK|MAX_STACK|.*lock held when returning)|turning off the locking correctness"),
    ("rcu-stall", r"rcu.*(self-detected stall|detected stalls|detected expedited stalls|kthread starved)"),
    ("hung-task", r"INFO: task .* blocked (for more than|in I/O wait for more)"),
    ("oops", r"Oops[:!]|BUG: (unable to handle|kernel NULL)|kernel BUG at|general protection fault"
             r"|stack segment:|divide error:|invalid opcode:|double fault:|unable to handle kernel"),
    ("ubsan", r"UBSAN: "),
    ("leak", r"kmemleak: .*new suspected|Bad rss-counter|Bad page state|Objects remaining (in|on) |"
             r"still has locks held|unregister_netdevice: waiting for|refcount_t: "),
    ("corruption", r"list_(add|del).*corruption|slab error|Freepointer corrupt|Padding overwritten"
                   r"|Redzone overwritten|ODEBUG: "),
    ("dma", r"DMA-API: (?!preallocated|debugging enabled|dma_debug_entry)"),
    ("bug", r"\bBUG\b: ?"),
    ("warning", r"\bWARNING: "),
)]

# A stack trace or a lockdep report fits into this.
CONTEXT_LINES = 40

_STAMP = re.compile(r"^(<\d+>)?(\[[ \d.]+\](\[ *[CT]\d+\])? ?)?")


class Splat:
    """One report: its class, its first line and the lines that follow."""

    def __init__(self, name, line, number):
        self.name = name
        self.number = number
        self.lines = [line]

    def __str__(self):
        return "\n".join(self.lines)


class Allowance:
    """A splat that a test provokes on purpose: NAME or NAME:REGEX."""

    def __init__(self, text):
        self.name, _, regex = text.partition(":")
        self.text = text
        self.regex = re.compile(regex)
        self.used = False
        if self.name not in {name for name, _ in PATTERNS}:
            raise ValueError("no class of splats is called '%s'; there are: %s" % (
                self.name, ", ".join(name for name, _ in PATTERNS)))

    def covers(self, splat):
        return splat.name == self.name and self.regex.search(str(splat)) is not None


def classify(line):
    """The class of the splat that starts at this line, or None."""
    text = _STAMP.sub("", line)
    for name, pattern in PATTERNS:
        if pattern.search(text):
            return name
    return None


def scan(log, context=CONTEXT_LINES):
    """All splats of a log. One that starts inside the context of another of
    the same report (the line 'Oops' after 'BUG: unable to handle') counts as
    one of its own unless it follows at once, within the context."""
    splats = []
    current = None
    for number, line in enumerate(log.splitlines(), 1):
        name = classify(line)
        if current is not None and len(current.lines) < context and name is None:
            current.lines.append(line)
            continue
        if name is not None:
            current = Splat(name, line, number)
            splats.append(current)
    return splats


def judge(log, allowances):
    """(splats nothing allows, allowances nothing used)"""
    wrong = []
    for splat in scan(log):
        cover = [a for a in allowances if a.covers(splat)]
        for allowance in cover:
            allowance.used = True
        if not cover:
            wrong.append(splat)
    return wrong, [a for a in allowances if not a.used]
