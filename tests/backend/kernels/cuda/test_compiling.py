"""Programs for GPUs: found, compiled together, and what is said meanwhile. The compiler is made up."""

from __future__ import annotations

import subprocess
import sys
import threading
import types

import pytest

from orthoslice.backend import threads
from orthoslice.backend.kernels import compile_notice
from orthoslice.backend.kernels.cuda import compiling
from orthoslice.backend.kernels.cuda.compiling import Program

TARGET = "sm_90"


class Compiler:
    """As `cuda.bindings.nvrtc`: what it makes of a source are its options."""

    def __init__(self):
        self.compiled, self.threads, self.fails = [], set(), ()
        self.nvrtcResult = types.SimpleNamespace(NVRTC_SUCCESS=self._ok)

    _ok = types.SimpleNamespace(value=0)

    def nvrtcVersion(self):
        return self._ok, 13, 0

    def nvrtcCreateProgram(self, source, name, *_):
        return self._ok, {"name": name}

    def nvrtcCompileProgram(self, program, count, options):
        self.compiled.append(options[-1])
        self.threads.add(threading.current_thread().name)
        program["code"] = options[-1]
        return (types.SimpleNamespace(value=6) if options[-1] in self.fails else self._ok,)

    def nvrtcGetProgramLogSize(self, program):
        return self._ok, 4

    def nvrtcGetProgramLog(self, program, log):
        return (self._ok,)

    def nvrtcGetCUBINSize(self, program):
        return self._ok, len(program["code"])

    def nvrtcGetCUBIN(self, program, code):
        # Written in place by the real one, which Python does not allow here.
        return (self._ok,)

    def nvrtcDestroyProgram(self, program):
        return (self._ok,)


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """A made-up compiler, an empty folder, four programs and five processors."""
    made = Compiler()
    package = types.ModuleType("cuda")
    package.bindings = types.SimpleNamespace(nvrtc=made)
    monkeypatch.setitem(sys.modules, "cuda", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings", package.bindings)
    monkeypatch.setenv("ORTHOSLICE_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(compiling, "_codes", {})
    monkeypatch.setattr(compiling, "_started", set())
    monkeypatch.setattr(compiling, "_declared", [])
    monkeypatch.setattr(compiling, "default_workers", lambda: 5)
    return made


def programs():
    return [Program("directions", (("NUMBER", number),)) for number in range(4)]


def join_compilers():
    for thread in threading.enumerate():
        if thread.name == "orthoslice-compiler":
            thread.join()


def flags(numbers):
    return sorted(f"-DNUMBER={number}".encode() for number in numbers)


def test_others_are_compiled_in_the_background(compiler, tmp_path):
    made = programs()
    compiling._machine_code(made[2], TARGET)
    join_compilers()
    assert sorted(compiler.compiled) == flags(range(4))
    assert {"MainThread", "orthoslice-compiler"} >= compiler.threads
    assert len(list((tmp_path / "kernels").glob("*.cubin"))) == 4
    # A process that finds them all compiles nothing.
    compiling._codes.clear()
    compiling._started.clear()
    for program in made:
        compiling._machine_code(program, TARGET)
    assert len(compiler.compiled) == 4


def test_what_takes_longest_is_begun_first(compiler, monkeypatch):
    """Loops over a thread's numbers are written out, twice as long where those have places."""
    monkeypatch.setattr(compiling, "default_workers", lambda: 2)
    sizes = ((4, 1), (32, 1), (16, 0), (32, 0))
    made = [Program("sort", (("PAIRS", pairs), ("ITEMS", items))) for items, pairs in sizes]
    started = []
    monkeypatch.setattr(compiling, "_machine_code", lambda program, target: started.append(program))
    compiling._compile_others(TARGET)
    join_compilers()
    assert started == [made[1], made[3], made[2], made[0]]


def test_a_system_that_does_not_say_which_processors_it_may_use(compiler, monkeypatch):
    """Windows and macOS: as many as there are."""
    monkeypatch.setattr(compiling, "default_workers", threads.default_workers)
    monkeypatch.delattr(threads.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 3)
    assert threads.default_workers() == 3
    compiling._machine_code(programs()[0], TARGET)
    join_compilers()
    assert sorted(compiler.compiled) == flags(range(4))


def test_nothing_is_compiled_ahead_that_could_not_be_kept(compiler, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ORTHOSLICE_CACHE_DIR", str(tmp_path / "file" / "below"))
    compiling._machine_code(programs()[1], TARGET)
    join_compilers()
    assert compiler.compiled == flags([1])


def test_a_program_that_fails(compiler):
    """Who needs it gets the compiler's words, every time; the others are not affected."""
    made = programs()
    compiler.fails = flags([3])
    compiling._machine_code(made[0], TARGET)
    join_compilers()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"directions\.cu could not be compiled"):
            compiling._machine_code(made[3], TARGET)
    compiler.fails = ()
    compiling._machine_code(made[3], TARGET)


def test_only_long_waits_are_told(monkeypatch, capsys):
    monkeypatch.delenv("ORTHOSLICE_QUIET", raising=False)
    monkeypatch.setattr(compile_notice, "_said", set())
    with compile_notice.say_if_slow("compiling"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(compile_notice, "_PATIENCE_S", 0.01)
    said = threading.Event()
    tell = compile_notice._say
    monkeypatch.setattr(compile_notice, "_say", lambda what: (tell(what), said.set()))
    for _ in range(2):
        with compile_notice.say_if_slow("compiling"):
            assert said.wait(5)
    assert capsys.readouterr().err == "orthoslice: compiling ... (ORTHOSLICE_QUIET=1 silences this)\n"
    monkeypatch.setenv("ORTHOSLICE_QUIET", "1")
    with compile_notice.say_if_slow("something else"):
        assert threading.active_count() == 1 or all(
            not isinstance(thread, threading.Timer) for thread in threading.enumerate()
        )


def test_a_process_that_ends_begins_nothing_new(tmp_path):
    """Threads in the background end with what they are at."""
    script = """
import collections, time
from orthoslice.backend.kernels.cuda import compiling
compiling._machine_code = lambda program, target: (print(program, flush=True), time.sleep(0.2))
import threading
waiting = collections.deque(range(100))
threading.Thread(target=compiling._compile_all, args=(waiting, "sm_90")).start()
time.sleep(0.1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert 1 <= len(done.stdout.split()) <= 3
