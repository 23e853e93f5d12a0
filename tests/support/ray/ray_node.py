"""`ray`, of which a node starts without servers that no test asks for anything: half the time to start."""

from ray.scripts.scripts import main

from orchestrator.execution.ray.ray_settings import without_spare_servers

if __name__ == "__main__":
    with without_spare_servers():
        main()
