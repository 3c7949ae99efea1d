slots = {}


def raw_syscalls__sys_enter(event, context, cpu, secs, nsecs, pid, comm, chain, id, args, sample=None):
    slot = id.bit_length()
    slots[slot] = slots.get(slot, 0) + 1


def trace_end():
    for slot in sorted(slots):
        print(slot, slots[slot])
