"""The arrows of the house, and what no source file may do, read from the syntax tree of every file in src/."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import bertkit

SOURCE = Path(bertkit.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
IDS = [str(path.relative_to(SOURCE)) for path in FILES]

COMMON = {"errors", "console", "files", "options"}
# Room -> the rooms it may import.  A new arrow is a word here, with its reason in docs/decisions.md.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "console": set(),
    "options": {"errors", "files"},
    "files": {"errors"},
    "flags": {"errors", "files", "options"},
    "__init__": {"errors"},
    "__main__": {"cli"},
    "cli": COMMON | {"flags", "__init__"},  # commands by name, when they are called
    "products": set(),
    "allocator": set(),
    "text": COMMON,
    "data": COMMON | {"text", "allocator"},
    "model": {"errors", "files", "options", "products"},
    "train": COMMON | {"products", "allocator"},
    "metrics": {"errors"},
    "tasks": COMMON | {"model", "data", "text", "metrics", "train"},  # train: what the loop asks of a task, LossSums
    "pipelines": COMMON | {"tasks", "model", "data", "text", "metrics"},
    "report": COMMON,
    "serve": COMMON | {"pipelines"},
    "commands": COMMON
    | {"text", "data", "model", "train", "tasks", "metrics", "pipelines", "report", "serve", "__init__"},
}
# Files of tasks/ that are part of another file's task: one task may not import another. SHARED ones serve all.
TASK_OF = {"held_out": "pretraining", "pretraining_model": "pretraining", "pretraining_run": "pretraining"}
SHARED_BY_TASKS = {"recipes", "layers", "finetuning", "task_settings", "tokenizers"}
TASK_OF |= dict.fromkeys(("phases", "rehearsals", "diagnosis", "pretraining_setup", "word_vectors"), "pretraining")
# What puts a run of any of the four tasks together may know them all.
TASK_OF |= dict.fromkeys(
    (
        "finetuning_run",
        "example_files",
        "finetuning_data",
        "finetuning_source",
        "class_weights",
        "task_file",
        "predicting",
        "exported",
        "foreign_task",
        "task_names",
    ),
    "finetuning",
)
NO_TORCH_ANYWHERE = {"allocator", "text", "report", "errors", "console", "files", "options", "flags", "cli"}
NO_TORCH_AT_THE_TOP = {"commands", "cli"}
BRINGS_TORCH = {"torch", "accelerate"}
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}

# Calls that only make a constant, and so may stand outside functions.  The dataclasses of src/ may too.
CONSTANT_MAKERS = {
    *("frozenset", "set", "dict", "list", "tuple", "range", "len", "sorted", "min", "max", "sum", "zip", "enumerate"),
    *("str", "int", "float", "bool", "bytes", "ord", "chr", "map", "round", "abs", "reversed", "any", "all", "Path"),
    *(
        "dict.fromkeys",
        "re.compile",
        "re.escape",
        "TypeVar",
        "NewType",
        "NamedTuple",
        "str.maketrans",
        "MappingProxyType",
    ),
    "_words",  # of abbreviations.py: a constant text cut at its blanks
    *(
        "field",
        "dataclasses.field",
        "option",
        "argument",
        "group",
        "struct.Struct",
        "math.log",
        "math.sqrt",
        "math.exp",
    ),
    *("np.uint64", "np.int64", "np.uint32", "np.int32", "np.uint16", "np.uint8", "np.float32", "np.float64"),
    *("np.dtype", "np.iinfo", "np.finfo", "pa.schema", "pa.field", "pa.list_", "pa.string", "pa.uint16", "pa.uint32"),
    *("pa.int64", "pa.int32", "torch.finfo", "logging.getLogger", "partial", "functools.partial"),
}
CONSTANT_METHODS = {"split", "join", "items", "keys", "values", "strip", "encode", "decode", "format", "splitlines"}
DECORATORS = {
    *("dataclass", "dataclasses.dataclass", "property", "staticmethod", "classmethod", "contextmanager", "overload"),
    *("contextlib.contextmanager", "functools.cache", "functools.lru_cache", "cache", "lru_cache", "cached_property"),
    *("functools.cached_property", "torch.no_grad", "torch.inference_mode", "runtime_checkable", "once_differentiable"),
}


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def task_of(module: str) -> str:
    name = module.split(".")[-1]
    return TASK_OF.get(name, name)


def may_import(own_module: str, module: str) -> bool:
    return task_of(module) in (task_of(own_module), *SHARED_BY_TASKS) or own_module.endswith("task_names")


def imports_of(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Yield (module, line, whether it is imported when the file is)."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for branch in ast.walk(tree):
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test):
            inside |= {id(node) for statement in branch.body for node in ast.walk(statement)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, id(node) not in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_module = whole.startswith("bertkit.") and SOURCE.joinpath(*whole.split(".")[1:])
                as_file = is_module and (is_module.with_suffix(".py").exists() or is_module.is_dir())
                yield (whole if as_file else str(node.module)), node.lineno, id(node) not in inside


def wrong_arrows(tree: ast.Module, room: str, own_module: str) -> Iterator[str]:
    for module, line, at_the_top in imports_of(tree):
        top = module.split(".")[0]
        if top == "bertkit":
            target = module.split(".")[1] if "." in module else "__init__"
            if target == "cli" and room != "__main__":
                yield f"line {line}: nobody imports cli"
            elif target != room and target not in ALLOWED[room]:
                yield f"line {line}: {room} may not import {target}"
            elif room == target == "tasks" and not may_import(own_module, module):
                yield f"line {line}: one task may not import another"
        elif top == "transformers":
            yield f"line {line}: src/ may not import transformers"
        elif top in PICKLES:
            yield f"line {line}: {top} runs code from files"
        elif top == "tokenizers" and room == "model":
            yield f"line {line}: model may not import tokenizers"
        elif top in BRINGS_TORCH or module == "safetensors.torch":
            if room in NO_TORCH_ANYWHERE or (room == "data" and own_module != "bertkit.data.collate"):
                yield f"line {line}: {room} may not import {module}"
            elif room in NO_TORCH_AT_THE_TOP and at_the_top:
                yield f"line {line}: {room} may import {module} only inside functions"


def forbidden_constructs(tree: ast.Module, room: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"line {node.lineno}: bare except"
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "print" and room != "console":
                yield f"line {node.lineno}: print outside console.py"
            if name in {"eval", "exec", "compile", "__import__"}:
                yield f"line {node.lineno}: {name}"
            if name == "torch.load" and not any(word.arg == "weights_only" for word in node.keywords):
                yield f"line {node.lineno}: torch.load without weights_only=True"
            for word in node.keywords:
                if word.arg == "weights_only" and ast.unparse(word.value) != "True":
                    yield f"line {node.lineno}: weights_only is not True"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            rest = node.args.kwarg
            if rest is not None and not node.name.startswith("_"):
                yield f"line {node.lineno}: **{rest.arg} in the signature of {node.name}"


def data_classes(tree: ast.Module) -> set[str]:
    """Names of the file's dataclasses and named tuples: calling them makes a constant."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {
        node.name
        for node in classes
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        or any(ast.unparse(base).endswith("NamedTuple") for base in node.bases)
    }


def work_at_import(tree: ast.Module, constant_makers: set[str], *, is_main: bool = False) -> Iterator[str]:
    """Yield what a file does when it is imported beyond defining things and making constants."""
    for statement in tree.body:
        if is_main and isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            continue
        yield from _work(statement, constant_makers)


def _work(statement: ast.stmt, makers: set[str]) -> Iterator[str]:
    line = statement.lineno
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
        return
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return  # a docstring, or the dots of a Protocol
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
        return
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        for decorator in statement.decorator_list:
            name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name not in DECORATORS and not name.endswith(".setter"):
                yield f"line {line}: decorator {name}"
        for default in [*statement.args.defaults, *statement.args.kw_defaults]:
            yield from _calls(default, makers)
    elif isinstance(statement, ast.ClassDef):
        for inner in statement.body:
            yield from _work(inner, makers)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        yield from _calls(statement.value, makers)
    else:
        yield f"line {line}: {type(statement).__name__} outside functions"


def _calls(expression: ast.expr | None, makers: set[str]) -> Iterator[str]:
    if expression is None or isinstance(expression, ast.Lambda):
        return
    if isinstance(expression, ast.Call):
        name = ast.unparse(expression.func)
        method = expression.func.attr if isinstance(expression.func, ast.Attribute) else ""
        if name not in makers and method not in CONSTANT_METHODS:
            yield f"line {expression.lineno}: {name}() outside functions"
    for child in ast.iter_child_nodes(expression):
        if isinstance(child, ast.expr):
            yield from _calls(child, makers)
        elif isinstance(child, ast.comprehension):
            for part in (child.iter, *child.ifs):
                yield from _calls(part, makers)
        elif isinstance(child, ast.keyword):
            yield from _calls(child.value, makers)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def makers() -> set[str]:
    return CONSTANT_MAKERS.union(*(data_classes(parsed(file)) for file in FILES))


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_every_import_follows_an_arrow(path: Path) -> None:
    own_module = ".".join(["bertkit", *path.relative_to(SOURCE).with_suffix("").parts])
    assert list(wrong_arrows(parsed(path), room_of(path), own_module)) == []


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_no_file_has_a_forbidden_construct(path: Path) -> None:
    assert list(forbidden_constructs(parsed(path), room_of(path))) == []


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_no_file_works_when_it_is_imported(path: Path) -> None:
    assert list(work_at_import(parsed(path), makers(), is_main=path.name == "__main__.py")) == []


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_every_file_begins_with_what_it_is(path: Path) -> None:
    tree = parsed(path)
    assert not tree.body or ast.get_docstring(tree), "the module has no docstring"


def test_importing_the_package_brings_no_torch() -> None:
    code = (
        "import bertkit, bertkit.cli, sys; print([m for m in ('torch', 'jsonargparse', 'numpy') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


def test_public_names_are_imported_on_first_use() -> None:
    from bertkit.errors import InputError

    assert bertkit.InputError is InputError
    assert {"load", "FillMask", "__version__"} <= set(dir(bertkit))


def test_an_unknown_public_name_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(
        AttributeError, match="bertkit has no 'lod'; its public names are Chooser, Embedder, FillMask, InputError"
    ):
        _ = bertkit.lod


@pytest.mark.parametrize(
    ("room", "source", "message"),
    [
        ("model", "from bertkit.text.tokenizer import Tokenizer", "model may not import text"),
        ("model", "import tokenizers", "model may not import tokenizers"),
        ("model", "from bertkit import console", "model may not import console"),
        ("train", "def f():\n    from bertkit import data", "train may not import data"),
        ("text", "def f():\n    import torch", "text may not import torch"),
        ("data", "from torch import Tensor", "data may not import torch"),
        ("commands", "import torch.nn", "commands may import torch.nn only inside functions"),
        ("commands", "from bertkit.cli import main", "nobody imports cli"),
        ("tasks", "import bertkit.tasks.other", "one task may not import another"),
        ("tasks", "import transformers", "src/ may not import transformers"),
        ("train", "import pickle", "pickle runs code from files"),
    ],
)
def test_the_arrow_rule_sees_a_wrong_import(room: str, source: str, message: str) -> None:
    assert any(message in found for found in wrong_arrows(ast.parse(source), room, f"bertkit.{room}.here"))


def test_the_arrow_rule_allows_torch_inside_a_command_and_in_collate() -> None:
    inside = ast.parse("from bertkit import console\ndef run(config):\n    import torch\n")
    assert list(wrong_arrows(inside, "commands", "bertkit.commands.pretrain")) == []
    assert list(wrong_arrows(ast.parse("import torch"), "data", "bertkit.data.collate")) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("try:\n    f()\nexcept:\n    pass", "bare except"),
        ("print(1)", "print outside console.py"),
        ("def f():\n    return eval('1')", "eval"),
        ("exec('1')", "exec"),
        ("torch.load(path, weights_only=False)", "weights_only is not True"),
        ("torch.load(path)", "torch.load without weights_only=True"),
        ("def f(**kwargs): ...", "**kwargs in the signature of f"),
    ],
)
def test_the_construct_rule_sees_what_is_forbidden(source: str, message: str) -> None:
    assert any(message in found for found in forbidden_constructs(ast.parse(source), "train"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = open('f')", "open() outside functions"),
        ("x = [torch.zeros(n) for n in range(3)]", "torch.zeros() outside functions"),
        ("for x in y:\n    pass", "For outside functions"),
        ("def f(x=load()): ...", "load() outside functions"),
        ("class A:\n    x = load()", "load() outside functions"),
        ("@register('x')\ndef f(): ...", "decorator register"),
        ("set_seed(1)", "Expr outside functions"),
        ("x = dict(a=load())", "load() outside functions"),
    ],
)
def test_the_import_work_rule_sees_work(source: str, message: str) -> None:
    assert any(message in found for found in work_at_import(ast.parse(source), CONSTANT_MAKERS))


def test_the_import_work_rule_allows_constants() -> None:
    source = (
        "import re\nA = re.compile('x')\nB = frozenset({1})\nC = [x.strip() for x in 'a b'.split()]\nD = lambda: load()"
    )
    assert list(work_at_import(ast.parse(source), CONSTANT_MAKERS)) == []


@pytest.mark.parametrize("path", sorted((SOURCE / "train").glob("*.py")), ids=lambda path: path.name)
def test_the_loop_and_what_serves_it_name_no_task_and_no_model(path: Path) -> None:
    words = ("pretrain", "mlm", "nsp_", "next_sentence", "finetun", "classif", "bert-", "BERT")
    assert [word for word in words if word in path.read_text(encoding="utf-8")] == []
