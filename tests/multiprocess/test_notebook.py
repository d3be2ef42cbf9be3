"""A Pool in a notebook: a kernel of Jupyter runs the cells."""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from launch_support import TAG, Running, until

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.filterwarnings("ignore"),  # those of Jupyter's own packages
]

_SECONDS = 120


class Notebook:
    """A kernel, and what its cells have printed."""

    def __init__(self, runtime: str) -> None:
        jupyter_client = pytest.importorskip("jupyter_client", reason="NOT TESTED, notebooks: pip install ipykernel")
        if importlib.util.find_spec("ipykernel") is None:
            pytest.skip("NOT TESTED, notebooks: pip install ipykernel")
        self.tag = uuid.uuid4().hex
        self.manager = jupyter_client.KernelManager(kernel_name="python3")
        self.manager.start_kernel(env={**os.environ, TAG: self.tag, "XDG_RUNTIME_DIR": runtime})
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.shown: list[dict[str, str]] = []  # what a cell displays, and each update of it
        self.client.wait_for_ready(_SECONDS)

    def cell(self, code: str, interrupt_at: str = "") -> tuple[dict[str, str], str]:
        """Run a cell: what it has printed on each stream, and the error that ended it."""
        said = {"stdout": "", "stderr": ""}

        def on_message(message: dict[str, Any]) -> None:
            if message["msg_type"] in ("display_data", "update_display_data"):
                self.shown.append(message["content"]["data"])
            if message["msg_type"] != "stream":
                return
            content = message["content"]
            said[content["name"]] += content["text"]
            if interrupt_at and said["stdout"].count(interrupt_at) == 2:
                self.manager.interrupt_kernel()

        reply = self.client.execute_interactive(code, timeout=_SECONDS, output_hook=on_message)
        return said, reply["content"].get("ename", "")

    def processes(self) -> list[int]:
        return Running(None, self.tag).processes()  # type: ignore[arg-type]

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    with tempfile.TemporaryDirectory() as runtime:  # where others' jobs are not found
        made = Notebook(runtime)
        yield made
        made.close()
    until(lambda: not made.processes(), what="the end of every process")


def test_a_table_of_the_ranks_updates(notebook: Notebook) -> None:
    said, error = notebook.cell(
        "import time\nfrom ciranda.launch import Pool, show_top\npool = Pool(np=2)\n"
        "pool.run(lambda: None)\nshown = show_top(interval=0.05)"
    )
    assert error == "", said
    said, error = notebook.cell(
        "def steps():\n    import ciranda\n    ciranda.init()\n    for _ in range(3):\n        ciranda.step()\n"
        "pool.run(steps)\nn = shown.n_updates\nwhile shown.n_updates < n + 3:\n    time.sleep(0.01)\nshown.stop()"
    )
    assert error == "", said
    assert {len(re.findall("<tr", data["text/html"])) for data in notebook.shown} == {3}, "a head and two ranks"
    assert "starts" in notebook.shown[0]["text/plain"]
    assert "starts" not in notebook.shown[-1]["text/plain"], "both ranks run, or wait for the next call"
    assert len(notebook.shown) >= 4


def test_cells_share_a_pool(notebook: Notebook) -> None:
    said, error = notebook.cell("from ciranda.launch import Pool\npool = Pool(np=2)")
    assert (said, error) == ({"stdout": "", "stderr": ""}, "")
    for text in ("one", "two"):
        said, error = notebook.cell(f"pool.run(lambda: print({text!r}));")
        assert (sorted(said["stdout"].splitlines()), error) == ([f"[{rank}]<stdout>:{text}" for rank in (0, 1)], "")

    forever = "def forever():\n    import time\n    print('up')\n    time.sleep(600)\npool.run(forever)"
    said, error = notebook.cell(forever, interrupt_at="up")
    assert error == "KeyboardInterrupt"

    total = "import ciranda\ndef total():\n    ciranda.init()\n    return ciranda.allreduce(1.0, op=ciranda.Sum)\n"
    said, error = notebook.cell(total + "print(*map(float, pool.run(total)))")
    assert (said["stdout"], error) == ("2.0 2.0\n", ""), said

    assert len(notebook.processes()) > 1
    notebook.manager.restart_kernel(now=True)
    until(lambda: len(notebook.processes()) == 1, what="the end of the ranks")
