"""`sciml VERB...`: finds the verb in a table of names, so that `sciml --help` imports no JAX and no domain.

A verb is a function `verb(argv: list[str]) -> int` that gets what follows its name and returns the exit
status. To add one, add a line to `VERBS`. Library errors become one line on standard error and status 2.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from sciml.cli.arguments import HelpRequested
from sciml.config import ConfigError, unknown_name

# verb -> (function, what it does)
VERBS: dict[str, tuple[str, str]] = {
    "crystal prepare": ("sciml.cli.crystal:prepare", "tables, folders of structures into one prepared set"),
    "crystal symmetry": ("sciml.cli.crystal:symmetry", "group, stars and invariance residual; --self-check"),
    "ct compare": ("sciml.cli.ct_compare:compare", "methods on one scan, from fewer and fewer views"),
    "ct evaluate": ("sciml.cli.ct_compare:evaluate", "methods on phantoms with exact line integrals"),
    "ct info": ("sciml.cli.ct:info", "geometry, units and oddities of a scan"),
    "ct reconstruct": ("sciml.cli.ct:reconstruct", "a scan by fbp, sirt, sart, cgls, tv or pwls"),
    "ct simulate": ("sciml.cli.ct_compare:simulate", "a scan of a phantom, with noise"),
    "data list": ("sciml.cli.data:list_sets", "public data sets: files, licence, citation"),
    "data get": ("sciml.cli.data:get", "find or download data, check it, print the paths"),
    "data verify": ("sciml.cli.data:verify", "check the sums of the data that are here"),
    "demo": ("sciml.cli.demo:demo", "a tour in minutes: figures and tables on one page"),
    "fv solve": ("sciml.cli.fv:solve", "one conservation law by several schemes beside the exact solution"),
    "fv evaluate": ("sciml.cli.fv:evaluate", "schemes compared on random states with exact cell averages"),
    "fv train": ("sciml.cli.neural:train", "a neural flux for one law, on exact solutions or the weak form"),
    "fv traffic": ("sciml.cli.traffic:traffic", "measured days of a highway, simulated and compared"),
    "info": ("sciml.cli.info:info", "versions, devices, precision, folders"),
}

_USAGE = """usage: sciml VERB [CONFIG.toml] [--key value]...

verbs:
{verbs}

for every verb:
  --help             the keys of a verb with type, default and meaning
  --x64              float64 instead of float32
  --platform NAME    cpu, gpu or tpu (default: what JAX finds)
  --devices N        number of CPU devices (default: one per core)
  --cache FOLDER     keep compiled programs in FOLDER for the next call ("default": the user's cache folder)
  --debug            show the traceback of an error
  --version          print the version"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; the exit status is 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in tokens
    try:
        return _run([token for token in tokens if token != "--debug"])
    except HelpRequested as text:
        print(text)
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (head, less) has gone: not an error
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError, ImportError, ArithmeticError, RuntimeError) as error:
        if debug:
            raise
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return 2


def _run(tokens: list[str]) -> int:
    from sciml.cli.runtime import pop_runtime_flags

    if tokens[:1] == ["--version"]:
        import sciml

        print(sciml.__version__)
        return 0
    if not tokens or tokens[0] in ("--help", "-h", "help"):
        raise HelpRequested(_USAGE.format(verbs=_verb_lines(list(VERBS))))
    tokens, prepare = pop_runtime_flags(tokens)
    verb, rest = _find(tokens)
    module, _, function = VERBS[verb][0].partition(":")
    prepare()
    return getattr(importlib.import_module(module), function)(rest)


def _find(tokens: list[str]) -> tuple[str, list[str]]:
    for words in (2, 1):
        if " ".join(tokens[:words]) in VERBS:
            return " ".join(tokens[:words]), tokens[words:]
    first, second = (*tokens, "", "")[:2]
    group = [verb for verb in VERBS if verb.startswith(f"{first} ")]
    if group and (not second or second.startswith("-")):
        lines = _verb_lines(group)
        if second:
            raise HelpRequested(lines)
        raise ConfigError(
            f"sciml {first} needs a verb: {', '.join(verb.partition(' ')[2] for verb in group)}"
        )
    raise ConfigError(unknown_name("verb", f"{first} {second}".strip() if group else first, _names(group)))


def _names(group: list[str]) -> list[str]:
    """What may stand first on the command line, or the verbs of a group."""
    return group or list(dict.fromkeys(verb.partition(" ")[0] for verb in VERBS))


def _verb_lines(verbs: list[str]) -> str:
    return "\n".join(f"  sciml {verb:<20} {VERBS[verb][1]}" for verb in verbs)


_EXTRAS = {  # what an optional package belongs to
    "pymatgen": "crystal",
    "moyopy": "crystal",
    "tifffile": "ct",
    "olefile": "ct",
    "flax": "interop",
}


def _one_line(error: BaseException) -> str:
    extra = _EXTRAS.get((getattr(error, "name", None) or "").partition(".")[0])
    if isinstance(error, ImportError) and extra:
        return f"{error.name} is not installed; pip install 'sciml[{extra}]'"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
