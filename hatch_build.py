"""Compiles the loops for CPUs into the wheel, where there is a C++ compiler, and adapts the README.

Without a compiler the wheel is pure Python, and torch computes the same more slowly.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCE = "graphrelu/ops/native.cpp"
# A library for each type of features.
LIBRARIES = {
    "float": "graphrelu/ops/_native_float32.so",
    "double": "graphrelu/ops/_native_float64.so",
}
FLAGS = ["-O3", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]

# A Markdown link or image whose target is a path in the repository, or a heading there.
LOCAL_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)[^)]*\)")


def packaged(readme: str) -> str:
    """The README as a package index shows it: links into the repository become their words, as
    they would lead nowhere there, and pictures go."""
    return LOCAL_LINK.sub(lambda found: "" if found[1] else found[2], readme)


class MetadataHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = packaged(Path(self.root, "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class BuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and all(map(self._compile, LIBRARIES)):
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["artifacts"] += LIBRARIES.values()
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"

    def _compile(self, kind: str) -> bool:
        compiler = shutil.which(os.environ.get("CXX", "c++"))
        if compiler is None:
            return False
        source, library = (str(Path(self.root, path)) for path in (SOURCE, LIBRARIES[kind]))
        # Apple's compiler has no OpenMP: there, one thread runs the loops.
        for threads in (["-fopenmp"], []):
            command = [compiler, *FLAGS, *threads, f"-DREAL={kind}", source, "-o", library]
            if subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0:
                return True
        return False
