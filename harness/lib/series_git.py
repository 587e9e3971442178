# SPDX-License-Identifier: GPL-2.0
"""Git plumbing for the assembler: objects are built in quarantine, then moved in one step."""
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path


class SeriesError(Exception):
    """One message for the user; nothing has been changed."""


ENCODING = {"encoding": "utf-8", "errors": "surrogateescape"}


def clean_env(**extra):
    """The user's GIT_* variables and configuration must not change what is produced."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env.update(GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL=os.devnull, LC_ALL="C",
               GIT_TERMINAL_PROMPT="0", GIT_OPTIONAL_LOCKS="0")
    env.update({k: v for k, v in extra.items() if v is not None})
    return env


class Reader:
    """One 'git cat-file --batch' answers what would else take a process each."""
    running = {}

    def __init__(self, git):
        self.proc = subprocess.Popen(git.argv(["cat-file", "--batch"]), stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     env=clean_env(**git.env), cwd=git.gitdir)

    @classmethod
    def of(cls, git):
        key = (str(git.gitdir), git.env.get("GIT_OBJECT_DIRECTORY"))
        if key not in cls.running:
            cls.running[key] = cls(git)
        return cls.running[key]

    @classmethod
    def close(cls, under=""):
        """Ends those that read from object directories below a path."""
        for key in [k for k in cls.running if (k[1] or "").startswith(under)]:
            proc = cls.running.pop(key).proc
            proc.stdin.close()
            proc.stdout.close()
            proc.wait()

    def get(self, name):
        """(object id, type, content), or None."""
        if "\n" in name:
            return None
        try:
            self.proc.stdin.write(name.encode(**ENCODING) + b"\n")
            self.proc.stdin.flush()
            head = self.proc.stdout.readline().decode(**ENCODING).rstrip("\n").rsplit(" ", 2)
        except BrokenPipeError:
            head = []
        if len(head) != 3 or not head[2].isdigit():
            if not head or head == [""]:
                raise SeriesError(f"git cat-file stopped on {name!r}")
            return None
        data = self.proc.stdout.read(int(head[2]))
        self.proc.stdout.read(1)
        return head[0], head[1], data


class Git:
    """One repository, seen through an index and an object store of our choice."""

    def __init__(self, gitdir, worktree=None, **env):
        self.gitdir = Path(gitdir)
        self.worktree = Path(worktree) if worktree else None
        self.env = env

    def using(self, **env):
        return Git(self.gitdir, self.worktree, **{**self.env, **env})

    def argv(self, args):
        # Hooks and fsmonitor of a user's clone are programs: not ours to start.
        argv = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
                "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.autocrlf=false",
                "-c", "core.quotePath=true", "-c", "advice.detachedHead=false",
                "-c", "safe.directory=*", f"--git-dir={self.gitdir}"]
        if self.worktree:
            argv.append(f"--work-tree={self.worktree}")
        return argv + [str(a) for a in args]

    def call(self, *args, data=None):
        """Returns (exit status, stdout, stderr) as text."""
        if isinstance(data, str):
            data = data.encode(**ENCODING)
        run = subprocess.run(self.argv(args), input=data if data is not None else b"",
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=clean_env(**self.env), cwd=self.worktree or self.gitdir,
                             check=False)
        return run.returncode, run.stdout.decode(**ENCODING), run.stderr.decode(**ENCODING)

    def run(self, *args, data=None):
        status, out, err = self.call(*args, data=data)
        if status:
            reason = err.strip() or out.strip() or f"exit status {status}"
            raise SeriesError(f"git {args[0]} failed in {self.gitdir}: {reason}")
        return out

    def line(self, *args, data=None):
        return self.run(*args, data=data).strip()

    def rev(self, name):
        """The commit of this name, or None."""
        found = Reader.of(self).get(name + "^{commit}")
        return found[0] if found else None

    def tree(self, name):
        found = Reader.of(self).get(name + "^{tree}")
        if not found:
            raise SeriesError(f"{self.gitdir}: no tree {name}")
        return found[0]

    def read(self, name):
        """An object's text."""
        found = Reader.of(self).get(name)
        if not found:
            raise SeriesError(f"{self.gitdir}: no object {name}")
        return found[2].decode(**ENCODING)

    def objects(self):
        path = self.line("rev-parse", "--git-path", "objects")
        return str((self.worktree or self.gitdir) / path)

    def paths(self, tree):
        return {p for p in self.run("ls-tree", "-r", "-z", "--name-only", tree).split("\0") if p}

    def show(self, tree, path):
        """A blob's text, or None."""
        found = Reader.of(self).get(f"{tree}:{path}")
        return found[2].decode(**ENCODING) if found and found[1] == "blob" else None

    def store(self, text):
        return self.line("hash-object", "-w", "-t", "blob", "--no-filters", "--stdin", data=text)

    def set_entries(self, entries):
        """Index entries from {path: (mode, object) or None}."""
        rows = []
        for path, entry in sorted(entries.items()):
            mode, oid = entry if entry else ("0", "0" * 40)
            rows.append(f"{mode} {oid}\t{path}\0")
        if rows:
            self.run("update-index", "-z", "--index-info", data="".join(rows))

    def entry(self, path):
        """One path of the index as (mode, object), or None."""
        row = self.run("ls-files", "-s", "-z", "--", ":(literal)" + path).split("\0")[0]
        return tuple(row.split()[:2]) if row else None

    def entries(self):
        """The index as {path: (mode, object)}."""
        out = {}
        for row in self.run("ls-files", "-s", "-z").split("\0"):
            if row:
                meta, path = row.split("\t", 1)
                mode, oid, _ = meta.split()
                out[path] = (mode, oid)
        return out


class Quarantine:
    """Objects written inside reach the repository by adopt() only, and nothing else does."""

    def __init__(self, git, scratch):
        self.real = git
        scratch.mkdir(parents=True, exist_ok=True)
        self.dir = Path(tempfile.mkdtemp(prefix="quarantine.", dir=scratch))
        (self.dir / "objects" / "pack").mkdir(parents=True)
        self.git = git.using(GIT_OBJECT_DIRECTORY=str(self.dir / "objects"),
                             GIT_ALTERNATE_OBJECT_DIRECTORIES=git.objects())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        Reader.close(str(self.dir))
        shutil.rmtree(self.dir, ignore_errors=True)

    def index(self, name):
        return self.git.using(GIT_INDEX_FILE=str(self.dir / f"index.{name}"))

    def adopt(self, base, tip):
        """One pack, so that a clone of another user's gets no directory it cannot write to."""
        listing = self.git.run("rev-list", "--objects", tip, f"^{base}")
        if not listing.strip():
            return
        stem = self.dir / "adopt"
        names = self.git.run("pack-objects", "-q", str(stem), data=listing).split()
        target = Path(self.real.objects()) / "pack"
        target.mkdir(parents=True, exist_ok=True)
        owner = os.stat(self.real.gitdir)
        for name in names:
            for ext in ("pack", "idx"):
                src = Path(f"{stem}-{name}.{ext}")
                dst = target / f"pack-{name}.{ext}"
                tmp = target / f"tmp_rdma_odp_{os.getpid()}.{ext}"
                shutil.copyfile(src, tmp)
                os.chmod(tmp, 0o444)
                give_to(tmp, owner)
                os.replace(tmp, dst)


def give_to(path, owner):
    """What root writes into a user's clone belongs to that user."""
    if os.geteuid() == 0 and owner.st_uid != 0 and os.path.lexists(path):
        os.lchown(path, owner.st_uid, owner.st_gid)


def set_branch(git, branch, new, old):
    ref = f"refs/heads/{branch}"
    git.run("update-ref", "-m", "series: assemble", ref, new, old or "0" * 40)
    owner = os.stat(git.gitdir)
    for sub in ("", "logs"):
        base = Path(git.line("rev-parse", "--git-path", (sub + "/" if sub else "") + ref))
        give_to((git.worktree or git.gitdir) / base, owner)


def identity(root):
    """(name, mail, whether it is the user's own) for authors and sign-offs."""
    def ask(*args):
        run = subprocess.run(["git", "-C", str(root), *args], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False)
        return run.stdout.decode(**ENCODING).strip() if run.returncode == 0 else ""

    name = os.environ.get("GIT_AUTHOR_NAME") or ask("config", "user.name")
    mail = os.environ.get("GIT_AUTHOR_EMAIL") or ask("config", "user.email")
    if name and mail:
        return name, mail, True
    # A machine that only builds needs no identity: take that of the last commit here.
    last = ask("log", "-1", "--format=%an%n%ae").split("\n")
    if len(last) == 2 and all(last):
        return last[0], last[1], False
    raise SeriesError("no identity for Signed-off-by: set git config user.name and user.email")


def _quote(path):
    if re.fullmatch(r"[A-Za-z0-9_.+,@=/-]+", path):
        return path.encode()
    raw = path.encode(**ENCODING)
    body = b"".join(b"\\%03o" % c if c < 32 or c > 126 or c in b'"\\' else bytes([c]) for c in raw)
    return b'"' + body + b'"'


# Left by a build in the tree itself; no pristine kernel holds such names.
ARTEFACT = re.compile(r"(\.o|\.ko|\.mod|\.cmd|\.o\.d)$")


def import_tree(git, source, ref, message, when):
    """A directory becomes one parentless commit, whatever its .gitignore says."""
    argv = git.argv(["-c", "core.compression=1", "fast-import", "--quiet", "--depth=0",
                      "--force", "--date-format=raw"])
    source = str(source)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdout=subprocess.DEVNULL, env=clean_env(**git.env)) as importer:
        out = importer.stdin
        try:
            text = message.encode()
            out.write(b"commit %s\ncommitter base import <base@localhost> %d +0000\ndata %d\n%s\n"
                      % (ref.encode(), when, len(text), text))
            for where, dirs, files in os.walk(source):
                if ".git" in dirs:
                    dirs.remove(".git")
                dirs.sort()
                links = [d for d in dirs if os.path.islink(os.path.join(where, d))]
                for name in sorted(files + links):
                    full = os.path.join(where, name)
                    path = os.path.relpath(full, source)
                    if ARTEFACT.search(name) or (where == source and name == ".git"):
                        continue
                    if os.path.islink(full):
                        mode, blob = b"120000", os.readlink(os.fsencode(full))
                    elif os.path.isfile(full):
                        mode = b"100755" if os.access(full, os.X_OK) and \
                            os.stat(full).st_mode & 0o100 else b"100644"
                        with open(full, "rb") as f:
                            blob = f.read()
                    else:
                        continue
                    out.write(b"M %s inline %s\ndata %d\n" % (mode, _quote(path), len(blob)))
                    out.write(blob)
                    out.write(b"\n")
            out.write(b"done\n")
            out.close()
        except BrokenPipeError:
            pass
        err = importer.stderr.read().decode(**ENCODING).strip()
        importer.wait()
    if importer.returncode:
        raise SeriesError(f"importing {source} failed: {err.splitlines()[-1] if err else ''}")
