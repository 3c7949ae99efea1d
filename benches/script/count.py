counts = {}


def raw_syscalls__sys_enter(event, context, cpu, secs, nsecs, pid, comm, chain, id, args, sample=None):
    counts[comm] = counts.get(comm, 0) + 1


def trace_end():
    for comm, count in counts.items():
        print(comm, count)
