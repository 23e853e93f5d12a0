#!/usr/bin/env bash
# One sweep on several nodes of SLURM: a Ray cluster inside the job, haltsweep on its first node.
#
#   sbatch orchestrator/clusters/slurm.sh experiments/quickstart.yaml
#
# Submit it again to continue: what is finished is not run again. To stop early: `haltsweep stop NAME` where the
# folder of sweeps is seen, or `scancel --signal=INT --batch JOB`; running trials are saved first.
#
#SBATCH --job-name=haltsweep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --time=12:00:00
#SBATCH --signal=B:INT@300
#SBATCH --output=haltsweep-%j.txt
set -euo pipefail
SPEC=${1:?usage: sbatch slurm.sh SPEC [KEY=VALUE]... [OPTION]...}

# On a file system that all nodes mount; with --checkpoints s3://... the first node alone needs it.
export HALTSWEEP_RUNS=${HALTSWEEP_RUNS:-$PWD/runs}
# Shared, or a disk of each node: what is missing is built there, with the same bytes.
export HALTSWEEP_DATA=${HALTSWEEP_DATA:-$PWD/data}
# Activate here what has haltsweep in it, the same on all nodes:
# source .venv/bin/activate

# Nobody else on the machines may use the cluster: a token of this job's own.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN
# Ray makes sockets below it, whose paths must be short; a folder of its own for each job.
RAY_TMP=/tmp/ray-${SLURM_JOB_ID}

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${nodes[0]}
port=$((20000 + SLURM_JOB_ID % 20000))
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
cpus=${SLURM_CPUS_PER_TASK:-1}
gpus=${SLURM_GPUS_ON_NODE:-0}
export SRUN_CPUS_PER_TASK=$cpus

cleanup() { kill "${ray[@]}" 2>/dev/null || true; wait "${ray[@]}" 2>/dev/null || true; }
trap cleanup EXIT

ray=()
srun --nodes=1 --ntasks=1 --nodelist="$head" ray start --head --block --disable-usage-stats \
    --node-ip-address="$address" --port="$port" --temp-dir="$RAY_TMP" --include-dashboard=false \
    --num-cpus="$cpus" --num-gpus="$gpus" &
ray+=($!)
# It listens first; `ray status`, which takes seconds, is asked only then.
until (: <"/dev/tcp/$address/$port") 2>/dev/null && ray status --address="$address:$port" >/dev/null 2>&1; do
    kill -0 "${ray[0]}" || { echo "the head of the Ray cluster did not come up" >&2; exit 1; }
    sleep 1
done
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 --nodelist="$node" ray start --address="$address:$port" --block \
        --disable-usage-stats --num-cpus="$cpus" --num-gpus="$gpus" &
    ray+=($!)
done

# The first signal (SLURM's, 300 s before the end) drains: trials are saved, the next job continues them.
haltsweep launch "$SPEC" "${@:2}" --continue --address "$address:$port" &
launch=$!
trap 'kill -TERM "$launch"' INT TERM
code=0
until wait "$launch"; code=$?; ! kill -0 "$launch" 2>/dev/null; do :; done
exit "$code"
