"""Plugins: files and modules with your own rules. Loading one runs its code, which registers its algorithms."""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.registry import algorithm_class, algorithm_names
from gossamer.errors import UserError

_LOADED: set[str] = set()  # digests of files: a run folder's copy of a loaded plugin is not loaded again


def split_plugins(text: object) -> list[str]:
    """Return the files and modules in 'my_rules.py,their_package.rules'; None gives none."""
    return [part.strip() for part in str(text or "").split(",") if part.strip()]


def is_file(plugin: str) -> bool:
    """Say whether a plugin is a file's path; otherwise it is a module's name."""
    return plugin.endswith(".py") or "/" in plugin or "\\" in plugin


def load_plugins(text: object) -> None:
    """Run each file or module that is not loaded yet; each must register an algorithm."""
    plugins = split_plugins(text)
    names = [Path(plugin).name for plugin in plugins]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"two plugins are named '{twice[0]}'; rename one")  # a run folder copies them all
    for plugin in plugins:
        if is_file(plugin):
            _load_file(Path(plugin))
        else:
            _load_module(plugin)


def _load_file(path: Path) -> None:
    try:
        code = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot read plugin '{path}' ({error.strerror}); give a Python file, or a module's name"
        ) from None
    digest = hashlib.sha256(code).hexdigest()
    if digest in _LOADED:
        return
    name = f"gossamer_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"plugin '{path}' is no Python file; give one whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up annotations there
    before = _rules()
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(str(path), error) from None
    _check_registered(str(path), before)
    _LOADED.add(digest)


def _load_module(name: str) -> None:
    known, before = name in sys.modules, _rules()
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"there is no module '{name}' to take a plugin from; install it, or give a file, as my_rules.py"
            ) from None
        raise _broken(name, error) from None
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from None
    if not known:
        _check_registered(name, before)


def _broken(plugin: str, error: BaseException) -> UserError:
    """Return an error that names the line of the plugin that failed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if Path(frame.filename).name == Path(plugin).name]
    line = error.lineno if isinstance(error, SyntaxError) else own[-1] if own else None
    where = "" if line is None else f" in line {line}"
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return UserError(f"plugin '{plugin}' fails{where} ({type(error).__name__}: {said}); mend it")


def _rules() -> list[type[Algorithm]]:
    return [algorithm_class(name) for name in algorithm_names()]


def _check_registered(plugin: str, before: list[type[Algorithm]]) -> None:
    if _rules() == before:
        raise UserError(f"plugin '{plugin}' registers no algorithm; put @gm.register(\"my-rule\") above its class")
