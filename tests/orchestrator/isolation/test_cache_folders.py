"""Environment variables determine the folders that count as caches of libraries."""

from orchestrator.isolation.cache_folders import cache_folders


def test_cache_variables_name_caches_but_never_the_launch_folder(tmp_path):
    launch, caches = tmp_path / "home" / "study", tmp_path / "caches"
    environment = {
        "HF_HOME": str(caches / "hf"),
        "NUMBA_CACHE_DIR": str(caches / "numba"),
        "XDG_CACHE_HOME": str(launch / "cache"),
        "PROJECT_HOME": str(tmp_path / "home"),
        "STUDY_HOME": str(launch),
        "HOME": str(tmp_path),
        "OTHER_HOME": "relative",
        "RESULTS": str(tmp_path / "results"),
    }
    assert set(cache_folders(launch, environment)) == {caches / "hf", caches / "numba", launch / "cache"}
