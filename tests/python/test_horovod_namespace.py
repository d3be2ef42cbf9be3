"""The module `horovod`: every name of Horovod's interface for torch with its parameters; what it says of itself."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import inspect
import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("horovod._names", reason="the package in compat/horovod is not installed")

import torch

import horovod.torch as hvd
import horovod_interface as interface
from horovod import _names, _neighbour
from horovod.common import util
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodVersionMismatchError

LINES = [
    (module, line)
    for module, lines in interface.INTERFACE.items()
    for line in lines.replace("\\\n", "").split("\n")
    if line
]


def name_of(line: str) -> str:
    return line[: line.index("(")]


def find(module: str, path: str) -> Any:
    """The object `path` (a name, or Class.method) of `module`; skips, or fails, if it is not there."""
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        if part in interface.NEVER:
            pytest.skip(f"not offered: {interface.NEVER[part]}")
        if part in interface.NOT_YET:
            pytest.skip(f"not there yet: {interface.NOT_YET[part]}")
        pytest.fail(f"{module} has no {path}")
    return found


def expected_signature(line: str) -> inspect.Signature:
    scope: dict[str, Any] = {name: getattr(hvd, name) for name in ("Average", "Compression", "global_process_set")}
    exec(f"def expected{line[line.index('(') :]}: ...", scope)
    return inspect.signature(scope["expected"])


@pytest.mark.parametrize(("module", "line"), LINES, ids=[f"{m}.{name_of(line)}" for m, line in LINES])
def test_has_the_same_parameters(module: str, line: str) -> None:
    """As many as Horovod has, in its order, with its defaults; what it requires, and what follows, may have one."""
    ours = list(inspect.signature(find(module, name_of(line))).parameters.values())
    theirs = list(expected_signature(line).parameters.values())
    required = inspect.Parameter.empty
    assert [(p.name, p.kind) for p in ours[: len(theirs)]] == [(p.name, p.kind) for p in theirs]
    assert all(p.default == q.default for p, q in zip(ours, theirs, strict=False) if q.default is not required)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    assert all(p.default is not required or p.kind in variable for p in ours[len(theirs) :])


@pytest.mark.parametrize("module", interface.OBJECTS)
def test_has_the_same_objects(module: str) -> None:
    for name in interface.OBJECTS[module].split():
        assert find(module, name) is not None


def test_what_is_never_there_is_not_there() -> None:
    """So that the list stays true."""
    for module, line in LINES:
        if name_of(line) in interface.NEVER:
            assert not hasattr(importlib.import_module(module), name_of(line)), line


@pytest.mark.parametrize("module", interface.NO_MODULES)
def test_modules_that_are_never_there_are_not_there(module: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(module)


# Those of MXNet are tested where MXNet is: tests/mxnet.
@pytest.mark.parametrize("module", [name for name in _names.NAMES if not name.startswith("horovod.mxnet")])
def test_names_are_cirandas_own(module: str) -> None:
    for name in _names.public_names(module):
        source = _names.source_of(module, name)
        assert source is not None
        assert getattr(importlib.import_module(module), name) is getattr(importlib.import_module(source), name)


def test_a_star_import_brings_what_there_is() -> None:
    scope: dict[str, Any] = {}
    exec("from horovod.torch import *", scope)
    assert scope["allreduce"] is hvd.allreduce
    assert set(_names.public_names("horovod.torch")) <= set(scope)
    assert set(_names.public_names("horovod.torch")) <= set(dir(hvd))


def test_a_name_that_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttributeError, match=r"module 'horovod.torch' has no attribute 'nonsense'"):
        _ = hvd.nonsense
    monkeypatch.setitem(_names.NAMES, "horovod.torch", (("ciranda.torch", "tomorrow"),))
    with pytest.raises(AttributeError, match=r"horovod\.torch\.tomorrow is not available"):
        _ = hvd.tomorrow


def test_importing_it_loads_no_framework() -> None:
    code = "import horovod, sys; horovod.run; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("part", "needed"),
    [("ray", "ray"), ("spark", "pyspark")],
)
def test_an_engine_that_is_missing_is_named(part: str, needed: str) -> None:
    if util._is_there(needed):
        pytest.skip(f"{needed} is installed")
    with pytest.raises(ImportError, match=rf"^horovod\.{part} needs .*No module named '{needed}'") as caught:
        importlib.import_module(f"horovod.{part}")
    assert caught.value.name == needed


@pytest.mark.parametrize(
    ("module", "framework"),
    [
        ("tensorflow", "tensorflow"),
        ("tensorflow.keras", "tensorflow"),
        ("tensorflow.data.compute_service", "tensorflow"),
        ("keras", "keras"),
        ("mxnet", "mxnet"),
    ],
)
def test_without_a_framework_it_says_what_is_missing(module: str, framework: str) -> None:
    code = f"import sys; sys.modules['{framework}'] = None; import horovod.{module}"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last_line = failed.stderr.splitlines()[-1]
    assert last_line.startswith(f"ModuleNotFoundError: ciranda.{framework} needs {framework}"), failed.stderr


@pytest.mark.parametrize("module", ["ciranda.torch", "ciranda.torch.ops", "horovod.torch"])
def test_without_torch_it_says_what_is_missing(module: str) -> None:
    """Its import fails as that of torch would; without a word of what else has gone wrong meanwhile."""
    code = f"import sys; sys.modules['torch'] = None; import {module}"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last_line = failed.stderr.splitlines()[-1]
    assert last_line.startswith("ModuleNotFoundError: ciranda.torch needs torch, which is not installed"), failed.stderr
    assert "pip install torch" in last_line
    assert "During handling" not in failed.stderr


def test_its_version_is_one_that_scripts_can_compare() -> None:
    import ciranda
    import horovod

    release, local = horovod.__version__.split("+")
    assert tuple(map(int, release.split("."))) >= (0, 28, 1)
    assert local == f"ciranda.{ciranda.__version__}"
    package = Path(__file__).parents[2] / "compat" / "horovod"
    project = (package / "pyproject.toml").read_text(encoding="utf-8")
    assert 'input = "../../CMakeLists.txt"' in project
    assert '"ciranda=={project[version]}"' in project
    whole = (package / "../../CMakeLists.txt").read_text(encoding="utf-8")
    assert re.search(rf"project\(ciranda\s+VERSION\s+{re.escape(ciranda.__version__)}\b", whole)


# -- beside a real Horovod -------------------------------------------------------------------------------------------


class Neighbour:
    version = "0.28.1"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def locate_file(self, path: str) -> Path:
        return self._folder / path


def place(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Neighbour(folder))


def test_files_mixed_with_another_horovods_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, Path(_neighbour.__file__).parents[1])
    with pytest.raises(ImportError, match=r"horovod 0\.28\.1 and ciranda-horovod are both installed.*pip uninstall"):
        _neighbour.refuse_to_mix()


def test_another_horovod_that_is_hidden_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    place(monkeypatch, tmp_path)
    with pytest.warns(RuntimeWarning, match=rf"horovod 0\.28\.1 in {tmp_path} is hidden"):
        _neighbour.refuse_to_mix()


def test_alone_it_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _neighbour.refuse_to_mix("no-such-distribution")
        place(monkeypatch, tmp_path)  # uninstalled, but for its record
        _neighbour.refuse_to_mix()


# -- horovod.common --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
def test_basics_say_what_the_functions_say() -> None:
    basics = HorovodBasics("ignored", "too")
    basics.init()
    for line in interface.STATE.split():
        name = line.partition("(")[0]
        if line.endswith("()") and name != "shutdown" and hasattr(hvd, name) and hasattr(basics, name):
            assert getattr(basics, name)() == getattr(hvd, name)(), name
    assert (basics.rank(), basics.size(), basics.is_homogeneous()) == (0, 1, True)
    assert (basics.Average, basics.Product) == (hvd.Average, hvd.Product)


@pytest.mark.usefixtures("alone")
def test_operations_in_the_form_of_autograd_functions() -> None:
    """Alone, every one of them returns what it is given; the gradient shows the factors."""
    from horovod.torch import mpi_ops

    hvd.init()
    everyone = hvd.global_process_set
    x = torch.arange(4.0, requires_grad=True)
    calls: list[tuple[Any, float]] = [
        (mpi_ops.HorovodAllreduce.apply(x, None, None, hvd.Sum, 2.0, 3.0, everyone), 6.0),
        (mpi_ops.HorovodGroupedAllreduce.apply(None, None, hvd.Average, 2.0, 1.0, everyone, x)[0], 2.0),
        (mpi_ops.HorovodAllgather.apply(x, None, everyone), 1.0),
        (mpi_ops.HorovodGroupedAllgather.apply(None, everyone, x)[0], 1.0),
        (mpi_ops.HorovodBroadcast.apply(x, 0, None, everyone), 1.0),
        (mpi_ops.HorovodAlltoall.apply(x, torch.tensor([4]), None, everyone)[0], 1.0),
        (mpi_ops.HorovodReducescatter.apply(x, None, hvd.Sum, everyone, 2.0, 1.0), 2.0),
        (mpi_ops.HorovodGroupedReducescatter.apply(None, hvd.Sum, everyone, 1.0, 3.0, x)[0], 3.0),
    ]
    for result, factor in calls:
        x.grad = None
        result.sum().backward()
        torch.testing.assert_close(result, x * factor)
        torch.testing.assert_close(x.grad, torch.full((4,), factor))


def test_basics_before_init_raise_what_scripts_catch() -> None:
    with pytest.raises(ValueError, match="not been initialized"):
        HorovodBasics("").rank()


def test_what_is_built_in() -> None:
    assert util.gloo_built()
    assert not util.mpi_built(verbose=True)
    assert util.extension_available("torch")
    assert not util.extension_available("abacus", verbose=True)
    assert util.gpu_available("abacus") is False
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    path = util.get_extension_full_path("/there/__init__.py", "torch", "mpi_lib_v2")
    assert path == "/there/torch/mpi_lib_v2" + util.get_ext_suffix()
    with pytest.raises(ValueError, match="name"):
        util.get_extension_full_path("/there/__init__.py")


def test_variables_are_set_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("CIRANDA_TEST_A", "before")
    monkeypatch.delenv("CIRANDA_TEST_B", raising=False)
    with util.env(CIRANDA_TEST_A=None, CIRANDA_TEST_B="within"):
        assert (os.environ.get("CIRANDA_TEST_A"), os.environ["CIRANDA_TEST_B"]) == (None, "within")
    assert (os.environ["CIRANDA_TEST_A"], os.environ.get("CIRANDA_TEST_B")) == ("before", None)


def test_op_and_average() -> None:
    choose = util.get_average_backwards_compatibility_fun(SimpleNamespace(Average=7, Sum=8))
    assert (choose(None, None), choose(3, None)) == (7, 3)
    with pytest.warns(DeprecationWarning, match="`average` is deprecated"):
        assert choose(None, True) == 7
    with pytest.warns(DeprecationWarning, match="`average` is deprecated"):
        assert choose(None, False) == 8
    with pytest.raises(ValueError, match="not both"):
        choose(3, True)


def test_lists_are_split_evenly() -> None:
    assert util.split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert util.split_list([1], 3) == [[1], [], []]


def test_powers_of_two() -> None:
    assert [n for n in range(-1, 17) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("version", "target", "expected"),
    [("2.13.0+cpu", "2.2", True), ("2.1", "2.1.0", True), ("1.9.1", "1.10.0", False), ("2.0.0a0", "2.0.1", False)],
)
def test_versions_are_compared_by_number(version: str, target: str, expected: bool) -> None:
    assert util.is_version_greater_equal_than(version, target) is expected


def test_a_target_that_is_not_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="not a version"):
        util.is_version_greater_equal_than("1.0", "1.0.0.dev1")


def test_versions_that_differ() -> None:
    util.check_installed_version("no-such-distribution", "1.0")
    util.check_installed_version("pytest", pytest.__version__)
    with pytest.warns(UserWarning, match=f"pytest {pytest.__version__} is installed, but 0.1"):
        util.check_installed_version("pytest", "0.1")
    with pytest.raises(ImportError, match="is installed") as caught:
        util.check_installed_version("pytest", "0.1", OSError("symbol not found"))
    assert isinstance(caught.value.__cause__, OSError)
    assert issubclass(HorovodVersionMismatchError, builtins.ImportError)
    assert HorovodVersionMismatchError("torch", "1", "2").installed_version == "2"
    assert util.is_iterable("x")
    assert not util.is_iterable(1)
    assert util.get_ext_suffix().endswith(".so")


# --- what scripts import of the launcher


def test_hosts_and_slots(tmp_path: Path) -> None:
    from horovod.runner.common.util import hosts

    file = tmp_path / "hostfile"
    file.write_text("a slots=2\nb slots=1\n", encoding="utf-8")
    text = hosts.parse_host_files(str(file))
    assert text == "a:2,b:1"
    assert hosts.parse_hosts_and_slots(text) == (["a", "b"], {"a": 2, "b": 1})
    assert hosts.HostInfo.from_string("c:4") == hosts.HostInfo("c", 4)
    slots = hosts.get_host_assignments(hosts.parse_hosts(text), 1)
    assert [slot.to_response_string() for slot in slots] == ["0,3,0,2,0,2", "1,3,1,2,0,1", "2,3,0,1,1,2"]
    assert len(hosts.get_host_assignments(hosts.parse_hosts(text), 1, 2)) == 2
    with pytest.raises(ValueError, match="more than the 3 slots"):
        hosts.get_host_assignments(hosts.parse_hosts(text), 4)


def test_a_discovery_script() -> None:
    from horovod.runner.elastic.discovery import HostDiscoveryScript

    assert HostDiscoveryScript("echo a:2; echo; echo b", 3).find_available_hosts_and_slots() == {"a": 2, "b": 3}
    for script, complaint in (("exit 3", "exit code 3"), ("echo b", "--slots"), ("echo -- -x:1", "not a host name")):
        with pytest.raises(ValueError, match=complaint):
            HostDiscoveryScript(script, None).find_available_hosts_and_slots()


def test_a_shell_command() -> None:
    from horovod.runner.common.util import safe_shell_exec

    out, err = io.StringIO(), io.StringIO()
    code = safe_shell_exec.execute("echo $A; echo no >&2; exit 5", {"A": "yes"}, out, err, index=1)
    assert (code, out.getvalue(), err.getvalue()) == (5, "[1]<stdout>:yes\n", "[1]<stderr>:no\n")


def test_a_shell_command_that_an_event_ends() -> None:
    from horovod.runner.common.util import safe_shell_exec

    end, out = threading.Event(), io.StringIO()
    end.set()
    # What it started ends with it: else execute() would wait for the one that holds its output.
    code = safe_shell_exec.execute("sleep 600 & sleep 600", stdout=out, stderr=out, events=[end])
    assert code == 128 + signal.SIGTERM, "as a shell says it"


def test_a_shell_command_ends_with_its_caller() -> None:
    """And what it started does, though its caller was killed and could do nothing about it."""
    code = (
        "from horovod.runner.common.util import safe_shell_exec\n"
        "safe_shell_exec.execute('sleep 600 & echo $$ $!; wait')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None
        shell, sleep = map(int, caller.stdout.readline().split())
        caller.kill()
    deadline = time.monotonic() + 60
    while not all(map(_has_ended, (shell, sleep))):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _has_ended(pid: int) -> bool:
    """Whether it has, though nobody may have taken its exit code; in some containers nobody ever does."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_a_pipe_is_shown_line_by_line() -> None:
    """What is read at a time may end in the middle of a line, or of a character; bars of progress end with a return."""
    from horovod.runner.common.util import safe_shell_exec

    shown = io.StringIO()
    source, target = multiprocessing.Pipe(duplex=False)
    reader = threading.Thread(
        target=safe_shell_exec.prefix_connection, args=(source, shown, "stdout", 3, False), daemon=True
    )
    reader.start()
    for part in (b"one\ntw", b"o\r\n\xc3", b"\xa4\r50 %", b"\rend"):
        os.write(target.fileno(), part)
    target.close()
    reader.join(30)
    assert shown.getvalue() == "".join(f"[3]<stdout>:{line}" for line in ("one\n", "two\r\n", "ä\r", "50 %\r", "end"))
    assert source.closed
    source, target = multiprocessing.Pipe(duplex=False)
    target.close()
    safe_shell_exec.prefix_connection(source, shown, None, None, True)


def test_threads_and_pipes() -> None:
    from horovod.runner.util import streams, threads

    assert threads.execute_function_multithreaded(divmod, [(7, 2), (9, 4)]) == {0: (3, 1), 1: (2, 1)}
    happened, results = threading.Event(), []
    watcher = threads.on_event(happened, results.append, ("it",))
    happened.set()
    watcher.join()
    stopped = threading.Event()
    stopped.set()
    for watched in (happened, threading.Event()):
        threads.on_event(watched, results.append, ("no more",), stop=stopped, check_stop_interval_s=0.01).join()
    assert results == ["it"]
    for wrong in ("it", ["it"], None):
        with pytest.raises(ValueError, match="must be a tuple"):
            threads.in_thread(results.append, wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="must be a tuple"):
            threads.on_event(happened, results.append, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs an event"):
        threads.on_event(None, print)  # type: ignore[arg-type]
    pipe = streams.Pipe()
    writer = threads.in_thread(lambda: [pipe.write(text) for text in ("abc", "d")] + [pipe.close()])
    assert [pipe.read(2), pipe.read(), pipe.read(), pipe.read()] == ["ab", "c", "d", None]
    writer.join()


def test_there_is_no_mpi() -> None:
    from horovod.runner import mpi_run

    assert not any(getattr(mpi_run, name)() for name in mpi_run.__all__ if name != "mpi_run")


def test_what_a_process_is_by_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod.runner.common.util import env

    for names in env._RANK_AND_SIZE:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    assert env.get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "3")
    with pytest.raises(RuntimeError, match="only one of PMI_RANK and PMI_SIZE"):
        env.get_env_rank_and_size()
    monkeypatch.setenv("PMI_SIZE", "4")
    assert env.get_env_rank_and_size() == (3, 4)
    assert [env.is_exportable(name) for name in ("PATH", "BASH_FUNC_x", "OLDPWD", "CIRANDA_SECRET_FILE")] == [
        True, False, False, False,
    ]  # fmt: skip
    assert not env.is_kubeflow_mpi()


def test_results_are_kept_in_a_file(tmp_path: Path) -> None:
    from horovod.runner.util import cache

    calls = []

    @cache.use_cache()
    def find(what: str) -> str | None:
        calls.append(what)
        return what.upper() or None

    for hash_of, n_calls in (("a", 1), ("a", 1), ("b", 2)):
        assert find("x", fn_cache=cache.Cache(str(tmp_path / "new"), 60, hash_of)) == "X"
        assert len(calls) == n_calls
    assert find("x", fn_cache=cache.Cache(str(tmp_path / "new"), 0, "b")) == "X"
    assert len(calls) == 3, "too old"
    assert (find("x"), len(calls)) == ("X", 4)
    for _ in range(2):
        assert find("", fn_cache=cache.Cache(str(tmp_path / "new"), 60, "b")) is None
    assert len(calls) == 6, "nothing that was found is not kept"
    (tmp_path / "new" / "cache.bin").write_bytes(b"something else")
    assert cache.Cache(str(tmp_path / "new"), 60, "b").get("x") is None


def test_settings_from_a_file_and_for_the_environment() -> None:
    from horovod.runner import _HorovodArgs
    from horovod.runner.common.util import config_parser

    args = _HorovodArgs()
    assert (args.num_proc, args.fusion_threshold_mb, args.run_func, args.command) == (1, None, None, [])
    args.cycle_time_ms = 2.0
    config = {
        "params": {"fusion_threshold_mb": 8, "cycle_time_ms": 5},
        "stall_check": {"enabled": False},
        "controller": "gloo",
    }
    config_parser.set_args_from_config(args, config, {"cycle_time_ms"})
    assert (args.fusion_threshold_mb, args.cycle_time_ms, args.no_stall_check, args.use_gloo) == (8, 2.0, True, True)
    config_parser.validate_config_args(args)
    env = config_parser.set_env_from_args({"A": "B"}, args)
    expected = {
        "A": "B",
        config_parser.HOROVOD_FUSION_THRESHOLD: str(8 << 20),  # type: ignore[attr-defined]
        "CIRANDA_FUSION_THRESHOLD": str(8 << 20),
        "HOROVOD_CYCLE_TIME": "2.0",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
    }
    assert env == expected
    args.fusion_threshold_mb = -1
    with pytest.raises(ValueError, match="--fusion-threshold-mb -1: must be from 0"):
        config_parser.validate_config_args(args)
    with pytest.raises(ValueError, match="neither gloo nor mpi"):
        config_parser.set_args_from_config(_HorovodArgs(), {"controller": "tcp"}, ())


def test_who_runs_a_job() -> None:
    """Any of them is Ciranda's launcher; a tool's own functions are called as they are asked for."""
    from horovod.runner.launch import run_controller

    called: list[str] = []
    functions = [lambda name=name: called.append(name) for name in ("gloo", "mpi", "js")]
    for chosen in ((True, False, False), (False, True, False), (False, False, True), (None, None, None)):
        flags_and_functions = [each for pair in zip(chosen, functions, strict=True) for each in pair]
        run_controller(*flags_and_functions, 0)  # type: ignore[call-arg, arg-type]
    assert called == ["gloo", "mpi", "js", "gloo"]
