"""A script as a trainable gets settings as flags, and reports by JSON lines or by the current trial."""

import re
import sys
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from tests.support.training_code.own_code import importable_files
from trainables.custom import outside
from trainables.custom.script import flags, overrides
from trainables.protocol import Job, Measurement

PARSER = """
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--batch-size", type=int)
parser.add_argument("--weight_decay", type=float)
parser.add_argument("--amp", action=argparse.BooleanOptionalAction)
parser.add_argument("--verbose", action="store_true")
parser.add_argument("--layers", nargs="+", type=int)
parser.add_argument("--layer", action="append", type=int)
parser.add_argument("-b", "--bias", type=bool, default=True)
parser.add_argument("--gate", type=lambda text: text == "True", default=True)
"""
CLICK_OPTIONS = """
@click.option("--shout/--no-shout", default=True)
@click.option("--deep", is_flag=True)
@click.option("--tags", multiple=True)
def main(shout, deep): ...
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lr": -0.1}, ["--lr=-0.1"]),
        ({"batch_size": 8, "weight-decay": 0.1}, ["--batch-size=8", "--weight_decay=0.1"]),
        ({"amp": False, "verbose": False}, ["--no-amp"]),
        ({"bias": False, "gate": False}, ["--bias=", "--gate=False"]),
        ({"compile": False, "tied": True}, ["--compile=False", "--tied=True"]),
        ({"shout": False, "deep": False}, ["--no-shout"]),
        ({"layers": [1, 2], "lr": None}, ["--layers", "1", "2"]),
        ({"layer": [1, 2], "tags": ["a", "b"]}, ["--layer=1", "--layer=2", "--tags=a", "--tags=b"]),
        ({"model": {"width": 8, "name": "a b"}}, ["--model.width=8", "--model.name=a b"]),
    ],
)
def test_settings_become_the_flags_that_the_script_defines(
    settings: dict[str, Any], expected: list[str]
) -> None:
    assert list(flags(settings, [PARSER, CLICK_OPTIONS])) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("DEFINE_list('sizes', [], '')", ["--sizes=1,2"]),
        ("DEFINE_spaceseplist(\n    'sizes', [], '')", ["--sizes=1 2"]),
        ("DEFINE_multi_integer('sizes', [], '')", ["--sizes=1", "--sizes=2"]),
        ("from jsonargparse import CLI", ["--sizes=[1, 2]"]),
    ],
)
def test_lists_are_written_as_the_library_of_the_script_reads_them(source: str, expected: list[str]) -> None:
    assert list(flags({"sizes": [1, 2]}, [source])) == expected


def test_settings_become_overrides_of_a_hydra_application() -> None:
    settings = {
        "lr": 1e-05,
        "model": {"width": 8, "act": "true"},
        "layers": [1, {"bias": False}],
        "path": "it's \\",
        "end": None,
    }
    arguments = list(overrides(settings))
    assert arguments == [
        "lr=1e-05",
        "model.width=8",
        "model.act='true'",
        "layers=[1,{bias:false}]",
        r"path='it\'s \\'",
        "end=null",
    ]
    hydra = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    parsed = {
        parse_override.key_or_group: parse_override.value()
        for parse_override in hydra.OverridesParser.create().parse_overrides(arguments)
    }
    assert parsed == {"model.width": 8, "model.act": "true"} | {
        k: v for k, v in settings.items() if k != "model"
    }


LINES = """
import argparse, json
from beside import double
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--seed", type=int, default=0)

def main(argv=None):
    args = parser.parse_args(argv)
    {keeps_open}
    for step in (1, 2, 3):
        {writes}(json.dumps({{"step": step, "valid/loss": double(args.lr), "valid/seed": args.seed}}) + "\\n")
    open("ended", "w").close()

{calls}
"""
APPEND_CALL = 'open("metrics.jsonl", "a").write'
GUARDED_MAIN = 'if __name__ == "__main__":\n    main()'
CHILD_PROCESS = """
import multiprocessing
it = multiprocessing.get_context("fork").Process(target=main)
it.start()
it.join()
"""
EXPECTED = [(step, {"valid/loss": 1.0, "valid/seed": 7}) for step in (1, 2, 3)]


def step_metrics(measurements: list[Measurement]) -> list[tuple[int, Any]]:
    return [(measurement.step, measurement.metrics) for measurement in measurements]


@pytest.fixture
def start_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Start a trial of a script in a new working folder that contains lines of an earlier trial."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "metrics.jsonl").write_text('{"step": 9, "valid/loss": 9}\n')
    monkeypatch.chdir(tmp_path / "work")

    def start(code: str, *arguments: str, **settings: Any):
        (tmp_path / "fit.py").write_text(dedent(code))
        return outside.load(" ".join([str(tmp_path / "fit.py"), *arguments])).workload(Job(settings, seed=7))

    with importable_files(tmp_path, {"beside.py": "def double(x): return 2 * x"}):
        yield start


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("keeps_open", "writes", "calls"),
    [
        ("", APPEND_CALL, ""),
        ('out = open("metrics.jsonl", "a")', "out.write", GUARDED_MAIN),
        ("", APPEND_CALL, CHILD_PROCESS),
        ("", APPEND_CALL, "import threading\nit = threading.Thread(target=main); it.start(); it.join()"),
    ],
    ids=["main alone", "one open file", "child process", "thread"],
)
def test_json_lines_become_reports(start_script, keeps_open: str, writes: str, calls: str) -> None:
    workload = start_script(LINES.format(keeps_open=keeps_open, writes=writes, calls=calls), lr=0.5)
    measurements = list(iter(workload.advance, None))
    workload.close()
    assert step_metrics(measurements) == EXPECTED


@pytest.mark.parametrize("operator", ["+=", "="], ids=["all lines", "last line"])
def test_rewritten_file_reports_each_line_once(start_script, operator: str) -> None:
    code = f"""
        lines = ""
        for step in range(1, 4):
            lines {operator} f'{{{{"step": {{step}}, "valid/loss": 1}}}}\\n'
            with open("metrics.jsonl", "w") as log:
                log.write(lines)
    """
    workload = start_script(code)
    assert [measurement.step for measurement in iter(workload.advance, None)] == [1, 2, 3]
    workload.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_file_that_stays_open_is_read_to_its_end(start_script) -> None:
    code = """
        log = open("metrics.jsonl", "w")
        for step in range(1, 1001):
            log.write('{"step": STEP, "valid/loss": 1}\\n'.replace("STEP", str(step)))
    """
    workload = start_script(code)
    assert [measurement.step for measurement in iter(workload.advance, None)] == list(range(1, 1001))
    workload.close()


@pytest.mark.parametrize("second_line", ["line", "line.replace('1}', '2}')"], ids=["copy", "other lines"])
def test_files_in_two_folders_lose_no_line(start_script, second_line: str) -> None:
    workload = start_script(f"""
        import os
        os.mkdir("other")
        for step in range(1, 4):
            line = f'{{{{"step": {{step}}, "valid/loss": 1}}}}\\n'
            for name, text in (("metrics.jsonl", line), ("other/metrics.jsonl", {second_line})):
                with open(name, "a") as log:
                    log.write(text)
    """)
    steps = [workload.advance().step for _ in range(3)]
    assert steps == ([1, 2, 3] if second_line == "line" else [1, 1, 2]), "a repeated step is an error later"
    workload.close()


@pytest.mark.parametrize("ends", ["shutil.rmtree('out')", "os.rename('out', 'done')"])
def test_lines_of_a_folder_that_is_gone_at_the_end_are_reported(start_script, ends: str) -> None:
    workload = start_script(f"""
        import os, shutil
        os.mkdir("out")
        for step in range(1, 4):
            with open("out/metrics.jsonl", "a") as log:
                log.write(f'{{{{"step": {{step}}, "valid/loss": 1}}}}\\n')
        {ends}
    """)
    assert [measurement.step for measurement in iter(workload.advance, None)] == [1, 2, 3]
    workload.close()


@pytest.mark.parametrize("ends", ["raise KeyError(1)", "exit(3)"])
def test_lines_before_a_failure_are_reported(start_script, ends: str) -> None:
    workload = start_script(f"""
        with open("metrics.jsonl", "w") as log:
            log.write('{{"step": 1, "valid/loss": 1}}\\n')
        {ends}
    """)
    assert step_metrics([workload.advance()]) == [(1, {"valid/loss": 1})]
    with pytest.raises((KeyError, SystemExit)):
        workload.advance()
    workload.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_closed_workload_stops_the_script(start_script) -> None:
    workload = start_script(LINES.format(keeps_open="", writes=APPEND_CALL, calls=GUARDED_MAIN), lr=0.5)
    workload.advance()
    workload.close()
    assert not Path("ended").exists()


def test_script_reports_by_the_current_trial(start_script) -> None:
    code = """
        import sys
        from haltsweep import current_trial
        trial = current_trial()
        trial.report(1, {"valid/loss": float(sys.argv[1].partition("=")[2]), "valid/seed": trial.seed})
        sys.exit()
    """
    workload = start_script(code, lr=0.25)
    assert step_metrics([workload.advance()]) == [(1, {"valid/loss": 0.25, "valid/seed": 7})]
    assert workload.advance() is None
    workload.close()


HYDRA = """
import hydra, json

@hydra.main(version_base="1.1", config_path="conf", config_name="config")
def main(cfg):
    with open("metrics.jsonl", "a") as log:
        log.write(json.dumps({"step": 1, "valid/loss": cfg.lr + cfg.model.width, "valid/seed": cfg.seed}))

if __name__ == "__main__":
    main()
"""


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::ResourceWarning")
def test_hydra_application_gets_overrides_and_the_seed(
    start_script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = pytest.importorskip("hydra.core.global_hydra").GlobalHydra.instance()
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "config.yaml").write_text("defaults: [{model: small}, _self_]\nlr: 0.1\nseed: 0\n")
    for name, width in (("small", 4), ("large", 8)):
        (tmp_path / "conf" / "model" / f"{name}.yaml").write_text(f"width: {width}\n")
    workload = start_script(HYDRA, lr=0.5, model="large")
    assert step_metrics([workload.advance()]) == [(1, {"valid/loss": 8.5, "valid/seed": 7})]
    workload.close()
    state.clear()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_script_with_omegaconf_gets_overrides_and_the_seed(start_script) -> None:
    pytest.importorskip("omegaconf")
    workload = start_script(
        """
        import haltsweep
        from omegaconf import OmegaConf
        cfg = OmegaConf.merge({"lr": 0.1, "model": {"width": 4}, "seed": 0}, OmegaConf.from_cli())
        haltsweep.current_trial().report(1, {"valid/loss": cfg.lr + cfg.model.width, "valid/seed": cfg.seed})
        """,
        lr=0.5,
        model={"width": 8},
    )
    assert step_metrics([workload.advance()]) == [(1, {"valid/loss": 8.5, "valid/seed": 7})]
    workload.close()


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        ("print('hello')", ValueError, r"metrics\.jsonl.*current_trial\(\)"),
        ("open('metrics.jsonl', 'a').write('loss: 3')", ValueError, "metrics.jsonl:1"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_failed_script_raises_its_error(start_script, code: str, kind: type, expected: str) -> None:
    workload = start_script(code, lr=0.5)
    with pytest.raises(kind, match=expected):
        workload.advance()
    workload.close()


@pytest.mark.parametrize("statement", ["from .other import NAME", "from kit.other import NAME"])
def test_script_of_a_package_imports_its_modules(tmp_path, monkeypatch, statement: str) -> None:
    code = f"{statement}\nimport haltsweep\nhaltsweep.current_trial().report(1, {{NAME: 1.0}})"
    monkeypatch.chdir(tmp_path)
    with importable_files(tmp_path, {"kit/train.py": code, "kit/other.py": "NAME = 'valid/loss'"}):
        monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(tmp_path)])
        workload = outside.load("kit/train.py").workload(Job({}, seed=7))
        assert workload.advance().metrics == {"valid/loss": 1.0}
        workload.close()


def test_arguments_of_the_trainable_come_before_the_flags(start_script) -> None:
    workload = start_script("import sys\nraise OSError(sys.argv[1:])", "fit", "../data.py", lr=0.5)
    with pytest.raises(OSError, match=re.escape("['fit', '../data.py', '--lr=0.5']")):
        workload.advance()
    workload.close()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "@dataclass\nclass A:\n    seed: int = 1\n    cuda: bool = True\ntyro.cli(A)",
            "--seed=7 --cuda --no-tied",
        ),
        ("LightningCLI(Net)", "--seed_everything=7 --cuda=True --tied=False"),
        (
            "import typer\napp = typer.Typer()\n@app.command()\ndef main(seed: int = 1): ...",
            "--seed=7 --cuda --no-tied",
        ),
        (
            "import typer\ndef reset(seed): ...\ndef main(cuda=typer.Option('--cuda')): ...\ntyper.run(main)",
            "--cuda --no-tied",
        ),
        ("def main(seed=1): ...\nfire.Fire(main)", "--seed=7 --cuda=True --tied=False"),
        ("def main(seed=1): ...\njsonargparse.CLI(main)", "--seed=7 --cuda=True --tied=False"),
        ("import simple_parsing\nclass A:\n    seed: int = 1", "--seed=7 --cuda=True --tied=False"),
        ("flags.DEFINE_integer('seed', 1, 'Seed')", "--seed=7 --cuda=True --tied=False"),
        ("usage = '[--seed=<n>] [--cuda] [--tied=<bool>]'\ndocopt(usage)", "--seed=7 --cuda --tied=False"),
    ],
)
def test_scripts_with_a_cli_library_get_its_flags(start_script, source: str, expected: str) -> None:
    workload = start_script(
        f"import sys\nif 0:\n{indent(source, '    ')}\nraise OSError(sys.argv[1:])", cuda=True, tied=False
    )
    with pytest.raises(OSError, match=re.escape(str(expected.split()))):
        workload.advance()
    workload.close()
