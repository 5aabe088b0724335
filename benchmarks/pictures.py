"""What the pictures of the documentation show: docs/images/pictures.json says it, and a test compares.

    python benchmarks/pictures.py             pictures that are older than what they show, and what draws them
    python benchmarks/pictures.py NAME …      writes down what these show, after they were drawn (`curves/*`: all)

An entry has the command, `made`, and `from`, the results and pages that the picture is made from, with a digest of them
in `shows`. Curves share files, so theirs is a digest of the numbers that are drawn. A picture of a run has its
`settings` instead; those added since do not matter. A picture that takes longer to make again has only the `commit` it
is from.
"""

import argparse
import hashlib
import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
MANIFEST = IMAGES / "pictures.json"


def manifest() -> dict[str, dict[str, Any]]:
    """The entries by the name of the picture."""
    return json.loads(MANIFEST.read_text())


def names() -> list[str]:
    """All pictures there are."""
    return sorted(str(file.relative_to(IMAGES)) for file in IMAGES.rglob("*") if file.suffix in (".png", ".gif"))


def digest(*contents: bytes) -> str:
    """Of some contents, in this order."""
    return hashlib.sha256(b"".join(contents)).hexdigest()


def shown(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """What a picture would show if it were drawn now, as it is noted in its entry."""
    if name.startswith("curves/"):
        import curve_pictures

        stem = Path(name).stem
        return {"from": curve_pictures.files(stem), "shows": curve_pictures.digest(stem)}
    if "from" in entry:
        return {"shows": digest(*(code_of(source) for source in entry["from"]))}
    return {"settings": settings(entry["made"])} if "settings" in entry else {}


def code_of(source: str) -> bytes:
    """A file; of a page only its code and commands, because sentences and transcripts change more often than these."""
    text = (ROOT / source).read_text()
    if not source.endswith(".md"):
        return text.encode()
    blocks = re.findall(r"^```(python|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    commands = re.compile(r"^\$ (?:.*\\\n)*.*$", re.MULTILINE)
    return "\n".join(code if kind == "python" else "\n".join(commands.findall(code)) for kind, code in blocks).encode()


def settings(command: str) -> dict[str, Any]:
    """The settings of a training run by their dotted names."""
    from xladder.cli.options import parse_with_config
    from xladder.cli.train import TrainOptions
    from xladder.core.state import flatten
    from xladder.plans import plan
    from xladder.registry import find_workload
    from xladder.runs.plan_files import describe_plan

    _, _, name, *words = shlex.split(command)
    options, config = parse_with_config(TrainOptions, find_workload(name), words, "xladder train", "")
    described = describe_plan(plan(name, options.rung, seed=options.seed, seeds=options.seeds, config=config))
    return dict(flatten(json.loads(json.dumps(described["config"]))))


def fault(name: str, entry: dict[str, Any]) -> str:
    """Why a picture has to be drawn again, or noted; an empty string if it need not."""
    then = f"then `python benchmarks/pictures.py {name}`"
    now = shown(name, entry)
    if "settings" in now:
        saved = entry["settings"]
        if any(key not in now["settings"] or now["settings"][key] != value for key, value in saved.items()):
            return f"the settings of its run have changed: {entry['made']}; {then}"
    elif now and now["shows"] != entry.get("shows"):
        return f"what it shows has changed: {entry['made']}; {then}"
    if digest((IMAGES / name).read_bytes()) != entry.get("picture"):
        return f"it is not the picture that was noted: if it is new, {then.removeprefix('then ')}"
    return ""


def note(*patterns: str) -> None:
    """Write down what some pictures show."""
    entries = manifest()
    for name, entry in entries.items():
        if any(fnmatch(name, pattern) for pattern in patterns):
            entry |= shown(name, entry) | {"picture": digest((IMAGES / name).read_bytes())}
    MANIFEST.write_text(json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """List faults, or write down what pictures show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    if patterns := parser.parse_args().names:
        note(*patterns)
        return
    for name, entry in manifest().items():
        if found := fault(name, entry):
            print(f"{name}: {found}")


if __name__ == "__main__":
    main()
