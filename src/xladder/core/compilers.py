"""Which compilers there are for `torch.compile`, without importing PyTorch."""

import os
import shutil

CPP = ("g++", "c++", "clang++", "cl")
C = ("gcc", "cc", "clang")


def why_no_compiler(device: str) -> str:
    """Why PyTorch has nothing to compile with for a device, as a clause; an empty string if it has."""
    # On a CPU kernels are written in C++; on a GPU in Triton, which builds their launchers in C.
    variable, usual, language = ("CXX", CPP, "C++") if device == "cpu" else ("CC", C, "C")
    named = os.environ.get(variable)
    if any(shutil.which(name.split()[0]) for name in ([named] if named and named.strip() else usual)):
        return ""
    looked = f"`{named}`, which {variable} names, cannot be run" if named else "none was found"
    return f"needs a {language} compiler, and {looked}: install {usual[0]}, or use `torch`"
