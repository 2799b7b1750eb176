"""Execute a notebook without JupyterLab, and read its output."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pro_lib.common.files import temporary_file, write_whole
from pro_lib.common.validation import SentenceError, refusing

_SENTENCE_END = re.compile(r"(?<=[.]) (?=[A-Z])")
_FIGURES_LINE = "Figures go to "  # begins the line that `Experiment` prints about its figures


def is_executed_copy(file: Path, notebook: Path) -> bool:
    """Return whether papermill has written a file as the executed copy of a notebook."""
    content = json.loads(file.read_bytes())
    metadata = content["metadata"].get("papermill", {}) if isinstance(content, dict) else {}
    input_name = Path(str(metadata.get("input_path"))).name
    return "output_path" in metadata and input_name == notebook.name


def execute_notebook(notebook: Path, copy: Path, parameters: Mapping[str, Any]) -> list[Any]:
    """Execute a notebook, write the executed copy, and return the outputs of its cells.

    The copy is written also if a cell raises an error, but not if the kernel fails.

    Raises:
        ValueError: if a cell raises an error; the message names the copy.
        SentenceError: if the notebook is damaged, or its kernel is missing, does not start or dies.
    """
    import papermill

    temporary = temporary_file(copy, suffix=".ipynb")
    try:
        cells = _execute(notebook, temporary, parameters)
        write_whole(temporary.read_bytes(), copy)
    except papermill.PapermillExecutionError as error:
        write_whole(temporary.read_bytes(), copy)
        raise ValueError(f"{_cell_error(error)} ({copy})") from None
    finally:
        temporary.unlink(missing_ok=True)
    return [output for cell in cells for output in cell.get("outputs", ())]


def _cell_error(error: Any) -> str:
    """Return the type and message of a cell's error.

    An error of the package needs no type.
    """
    is_sentence = error.ename in ("SentenceError", "RunError") and error.evalue
    kind = "" if is_sentence else error.ename
    return ": ".join(filter(None, [kind, error.evalue]))


def _execute(notebook: Path, copy: Path, parameters: Mapping[str, Any]) -> Sequence[Any]:
    """Execute a notebook with papermill, and return its cells."""
    import nbformat
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel

    # It warns about a parameter that the notebook does not declare, which `Experiment` accepts.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    with refusing(SentenceError, f"{notebook} is not a notebook that can be read"):
        nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory(prefix="pro-kernel-") as sockets:
        manager = _kernel_manager(sockets)
        try:
            # A busy machine may need more than the usual four seconds for the explorer's data.
            options = {"kernel_manager_class": manager, "iopub_timeout": 120}
            return papermill.execute_notebook(notebook, copy, parameters, **options).cells
        except NoSuchKernel as error:
            reason = f"its kernel {error.name!r} is not installed"
            remedy = "`jupyter kernelspec list` shows those that are"
            raise SentenceError(f"{notebook.name}: {reason}; {remedy}") from None
        except RuntimeError as error:
            problem = f"the kernel {manager.displayed_command} failed: {error}"
            raise SentenceError(f"{notebook.name}: {problem}") from None


def _kernel_manager(sockets: str) -> Any:
    """Return a class that starts a kernel named python3 with the Python of this process.

    A kernel of this name may be installed for another environment. Other kernels are started as
    they are installed. The sockets are files in the folder `sockets`, which must be of this kernel
    alone, because several notebooks may run at a time.
    """
    import traitlets
    from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    class OwnPythonManager(AsyncKernelManager):
        """A kernel manager that prefers the Python of this process, and sockets that are files."""

        displayed_command = "of the notebook"

        @traitlets.default("transport")
        def _local_transport(self) -> str:
            return "tcp" if os.name == "nt" else "ipc"

        @traitlets.default("ip")
        def _socket_place(self) -> str:
            if self.transport == "tcp":
                return "127.0.0.1"
            return os.path.join(sockets, "kernel")

        @property
        def kernel_spec(self) -> KernelSpec | None:
            """The command that starts the kernel."""
            if self.kernel_name == NATIVE_KERNEL_NAME:
                OwnPythonManager.displayed_command = sys.executable
                # Without folders of kernels, only the kernel of this Python is left.
                return KernelSpecManager(kernel_dirs=[]).get_kernel_spec(NATIVE_KERNEL_NAME)
            OwnPythonManager.displayed_command = repr(self.kernel_name)
            return super().kernel_spec

    return OwnPythonManager


def findings(outputs: Sequence[Any]) -> list[str]:
    """Return the sentences of the last paragraph of each Markdown output, such as a caption.

    The abbreviations below a caption are left out.
    """
    from pro_lib.plots.captions import ABBREVIATIONS

    texts = [output.data.get("text/markdown") for output in outputs if "data" in output]
    captions = [text.partition(f"\n\n{ABBREVIATIONS}")[0] for text in texts if text]
    paragraphs = [text.strip().rpartition("\n\n")[2] for text in captions]
    return [each for text in paragraphs for each in _SENTENCE_END.split(" ".join(text.split()))]


def figures_folder(outputs: Sequence[Any]) -> str | None:
    """Return the folder of the figures that the notebook printed, or None if it printed none."""
    text = "".join(output.get("text", "") for output in outputs)
    for line in text.splitlines():
        if line.startswith(_FIGURES_LINE):
            return line.removeprefix(_FIGURES_LINE)
    return None
