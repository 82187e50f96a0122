# A Slurm of this machine only, with what it needs in one directory: no system service, no root.
# `slurm_start DIRECTORY` sets SLURM_CONF; `slurm_stop` ends its daemons.

slurm_stop() {
    local daemon
    for daemon in slurmd slurmctld munged; do
        [ ! -s "$slurm/$daemon.pid" ] || kill "$(cat "$slurm/$daemon.pid")" 2>/dev/null || true
    done
}

slurm_start() {
    slurm=$1
    local host user first
    host=$(hostname -s)
    user=$(id -un)
    # MPICH names its shared memory by the number of the job, and finds that of a killed one of the same number.
    first=$(date +%s | tail -c 8 | sed 's/^0*//')
    mkdir -p "$slurm/state" "$slurm/spool"
    chmod 700 "$slurm"
    [ -s "$slurm/munge.key" ] || (umask 077 && head -c 1024 /dev/urandom >"$slurm/munge.key")
    cat >"$slurm/slurm.conf" <<-CONFIGURATION
	ClusterName=annals
	SlurmctldHost=$host
	SlurmUser=$user
	SlurmdUser=$user
	SlurmctldPort=27817
	SlurmdPort=27818
	AuthInfo=socket=$slurm/munge.socket
	CredType=cred/munge
	StateSaveLocation=$slurm/state
	SlurmdSpoolDir=$slurm/spool
	SlurmctldPidFile=$slurm/slurmctld.pid
	SlurmdPidFile=$slurm/slurmd.pid
	SlurmctldLogFile=$slurm/slurmctld.log
	SlurmdLogFile=$slurm/slurmd.log
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	JobAcctGatherType=jobacct_gather/none
	SwitchType=switch/none
	MpiDefault=pmi2
	FirstJobId=$first
	ReturnToService=2
	KillWait=3
	SlurmdParameters=config_overrides
	SelectType=select/cons_tres
	SelectTypeParameters=CR_CPU
	NodeName=$host CPUs=64 State=UNKNOWN
	PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8
	CONFIGURATION
    export SLURM_CONF=$slurm/slurm.conf
    munged --force --key-file="$slurm/munge.key" --socket="$slurm/munge.socket" --pid-file="$slurm/munged.pid" \
        --log-file="$slurm/munged.log" --seed-file="$slurm/munge.seed"
    slurmctld
    slurmd -N "$host" 2>/dev/null || slurmd
    local tries
    for tries in $(seq 50); do
        [ "$(sinfo --noheader --format=%t 2>/dev/null)" = idle ] && return
        sleep 0.2
    done
    echo "Slurm has not started:" >&2
    tail -n 20 "$slurm"/*.log >&2
    return 1
}
