"""What gdb says of arguments where our points are. Reads lines `ADDRESS FUNCTION ARGUMENT...`, writes `CALL ADDRESS ARGUMENT
VALUE` for each value that it has. A call is what SEQ is, or else the number of the hit; FUNCTION is `-` for the one whose code
it is. After MOST hits a point is removed. Without SEQ, arguments `%N` and `@N` are registers by DWARF number and words from the
stack pointer on."""
import gdb
import os

REGISTERS = "rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15".split()
WORDS = 32
NUMBERS = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_PTR)
REFERENCES = (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF)
points, values, module, seq, most = (os.environ[name] for name in ["POINTS", "VALUES", "MODULE", "SEQ", "MOST"])
for setting in [
    "pagination off",
    "confirm off",
    "breakpoint always-inserted on",
    "debuginfod enabled off",
    "print inferior-events off",
    "startup-with-shell off",
    "auto-solib-add off",
    "language c",
]:
    try:
        gdb.execute("set " + setting)
    except gdb.error:
        pass
gdb.execute("unset environment")
for name in ["LINES", "COLUMNS"]:
    gdb.execute("unset environment " + name)
for variable in os.environ["ENVIRONMENT"].split() + ["LD_BIND_NOW=1"]:
    gdb.execute("set environment " + variable)
gdb.execute("starti", to_string=True)
if module != gdb.current_progspace().filename:
    auxv = gdb.execute("info auxv", to_string=True).splitlines()
    entry = next(line.split()[-1] for line in auxv if "AT_ENTRY" in line)
    gdb.execute("tbreak *" + entry, to_string=True)
    gdb.execute("continue", to_string=True)
bias = 0
if os.environ["PIE"] == "1":
    with open("/proc/%d/maps" % gdb.selected_inferior().pid) as maps:
        bias = min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(module))
gdb.execute("sharedlibrary", to_string=True)
out = open(values, "w")
out.write("0 0 bias %d\n" % bias)


def number(frame, arg, whole):
    """The value of an expression, or of a whole variable."""
    if not whole:
        return int(gdb.parse_and_eval("(long long)(%s)" % arg))
    value = frame.read_var(arg)
    if value.type.strip_typedefs().code in REFERENCES:
        value = value.referenced_value()
    return int(value) if value.type.strip_typedefs().code in NUMBERS else None


def state(frame):
    """Registers and the top of the stack."""
    for at, name in enumerate(REGISTERS):
        yield "%%%d" % at, int(frame.read_register(name)) % 2**64
    stack = gdb.selected_inferior().read_memory(int(frame.read_register("rsp")) % 2**64, WORDS * 8).tobytes()
    for at in range(WORDS):
        yield "@%d" % at, int.from_bytes(stack[at * 8 : at * 8 + 8], "little")


class Point(gdb.Breakpoint):
    def __init__(self, address, function, args):
        super().__init__("*%#x" % (address + bias), internal=True)
        self.place, self.names, self.args, self.hits = address, (function, function.split("::")[-1]), args, 0

    def is_own(self, frame):
        if self.names[0] == "-":
            return frame.type() != gdb.INLINE_FRAME
        return frame.name() in self.names

    def stop(self):
        frame = gdb.newest_frame()
        while frame is not None and not self.is_own(frame):
            frame = frame.older()
        if frame is None:
            return False
        frame.select()
        call = int(gdb.parse_and_eval(seq)) if seq else self.hits
        if not seq:
            for name, value in state(gdb.newest_frame()):
                out.write("%d %d %s %d\n" % (call, self.place, name, value))
        for arg in self.args:
            try:
                value = number(frame, arg, not seq)
            except (gdb.error, gdb.MemoryError, ValueError, OverflowError):
                continue
            if value is not None:
                out.write("%d %d %s %d\n" % (call, self.place, arg, value))
        self.hits += 1
        if self.hits >= int(most):
            self.enabled = False
        return False


for line in open(points):
    address, function, *args = line.split()
    Point(int(address), function, args)
gdb.execute("continue", to_string=True)
out.close()
