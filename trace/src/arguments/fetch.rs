//! Code that computes the value of an argument, in the text of the assembler: a stack machine over one register.
//!
//! `r6` has the context, `r7` the value, `r9` what was added to the file's addresses when it was loaded. Values that wait are
//! in slots of the frame. What cannot be read jumps to a label.

use std::fmt::Write as _;

use twinbpf_loader::register_offset;
use twinbpf_probe::{BinaryOp, Expr, Machine, Register, UnaryOp, Value};

/// Bytes of a BPF frame.
pub(super) const FRAME: usize = 512;

/// General registers, of which the stack pointer is one, and the instruction pointer.
const REGISTERS: u16 = 16;
const SP: Register = Register(7);
const IP: Register = Register(16);

/// `*(u64 *)(BASE + OFFSET)`: a register in the context that `base` points to.
fn in_context(base: &str, register: Register) -> Result<String, NoCode> {
    let offset = register_offset(&Machine::X86_64.name(register)).ok_or(NoCode::Register(register.0))?;
    Ok(format!("*(u64 *)({base} + {offset})"))
}

/// Stands in code for the map of what companions keep.
pub(super) const KEPT: &str = "map_fd(0)";
/// Bytes of its keys, a thread and a frame address, and of its values, the general registers.
pub(super) const KEPT_SIZES: [u32; 2] = [16, 128];

/// Code of a companion, which runs at a function's entry and keeps the general registers for points inside of it.
pub(super) fn companion() -> Result<String, NoCode> {
    // The caller's frame begins above the return address.
    let mut text = format!("r6 = r1\nr7 = {}\nr7 += 8\ncall 14\n", in_context("r1", SP)?);
    text += "*(u64 *)(r10 - 16) = r0\n*(u64 *)(r10 - 8) = r7\n";
    for number in 0..REGISTERS {
        let (slot, from) = (144 - 8 * number, in_context("r6", Register(number))?);
        writeln!(text, "r1 = {from}\n*(u64 *)(r10 - {slot}) = r1").expect("strings take all");
    }
    text += &format!("r1 = {KEPT} ll\nr2 = r10\nr2 += -16\nr3 = r10\nr3 += -144\nr4 = 0\ncall 2\nr0 = 0\nexit\n");
    Ok(text)
}

/// How code reads the memory of who hits the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// Of the process; what is not in memory is not read.
    User,
    /// Of the process, by a program that may sleep.
    Sleepable,
    /// Of the kernel.
    Kernel,
}

impl Memory {
    /// `bpf_probe_read_user`, `bpf_copy_from_user`, `bpf_probe_read_kernel`.
    fn helper(self) -> u32 {
        match self {
            Memory::User => 112,
            Memory::Sleepable => 148,
            Memory::Kernel => 113,
        }
    }

    /// `bpf_probe_read_user_str`, `bpf_probe_read_kernel_str`.
    fn string_helper(self) -> u32 {
        match self {
            Memory::User | Memory::Sleepable => 114,
            Memory::Kernel => 115,
        }
    }
}

/// How code finds out where the file was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// At the addresses that it has.
    Fixed,
    /// By the instruction pointer, which is at this address of the file.
    Pointer(u64),
    /// Not at all.
    Unknown,
}

/// Why there is no code for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoCode {
    #[error("it needs more than the {FRAME} bytes that a program's frame has")]
    Frame,
    #[error("it needs %{0}, which `struct pt_regs` does not have")]
    Register(u16),
    #[error(
        "it is what a register held when the function was entered, and the point is not there; take a point at the entry"
    )]
    Entry,
    #[error("its address depends on where the file was loaded, which is not known when a function returns")]
    Bias,
}

/// Code that is being written.
pub(super) struct Code {
    text: String,
    pub(super) memory: Memory,
    /// Bytes of the frame that hold values, from its top, and the most that ever did.
    used: usize,
    most: usize,
    labels: usize,
    /// Where to jump if something cannot be read, and whether something does.
    failed: String,
    fails: bool,
    /// Whether `r9` is there, or is not needed.
    base: Base,
    /// Slots of registers as they were at the function's entry, and of whether they are known.
    entry: Vec<(Register, usize)>,
    has_entry: usize,
}

impl Code {
    /// Nothing yet; the top of the frame is not its own.
    pub(super) fn new(memory: Memory, kept: usize) -> Code {
        let (text, failed) = (String::new(), String::new());
        Code {
            text,
            memory,
            used: kept,
            most: kept,
            labels: 0,
            failed,
            fails: false,
            base: Base::Unknown,
            entry: Vec::new(),
            has_entry: 0,
        }
    }

    /// Makes `r9` what was added to the file's addresses, if the instruction pointer says that.
    pub(super) fn locate(&mut self, base: Base) -> Result<(), NoCode> {
        self.base = base;
        if let Base::Pointer(address) = base {
            let pointer = in_context("r6", IP)?;
            self.line(format!("r9 = {pointer}\nr8 = {address:#x} ll\nr9 -= r8"));
        }
        Ok(())
    }

    /// From here on, what cannot be read jumps to this label.
    pub(super) fn catch(&mut self, label: &str) {
        (self.failed, self.fails) = (label.to_owned(), false);
    }

    /// Whether anything jumps to the label of [`Code::catch`]: the verifier takes no code that is never reached.
    pub(super) fn is_caught(&self) -> bool {
        self.fails
    }

    fn failed(&mut self) -> String {
        self.fails = true;
        self.failed.clone()
    }

    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        self.text += text.as_ref();
        self.text.push('\n');
    }

    pub(super) fn label(&mut self) -> String {
        self.labels += 1;
        format!("at{}", self.labels)
    }

    /// The instructions.
    pub(super) fn finish(self) -> Result<String, NoCode> {
        if self.most > FRAME { Err(NoCode::Frame) } else { Ok(self.text) }
    }

    /// A slot of 8 bytes, by its distance from the top of the frame.
    pub(super) fn slot(&mut self) -> usize {
        self.used += 8;
        self.most = self.most.max(self.used);
        self.used
    }

    /// Gives back the last slot.
    fn free(&mut self) {
        self.used -= 8;
    }

    /// Puts a value into `r7`, extended to 64 bits; of a string, its address.
    pub(super) fn value(&mut self, value: &Value) -> Result<(), NoCode> {
        self.expr(&value.expr)?;
        let (offset, width) = match value.bits {
            Some(bits) => (bits.offset, bits.width),
            None if value.is_string() => (0, 64),
            None => (0, value.size.saturating_mul(8)),
        };
        let is_clean = match &value.expr {
            Expr::Load { size, .. } => !value.signed && value.bits.is_none() && *size <= value.size,
            _ => false,
        };
        if width >= 64 || is_clean {
            return Ok(());
        }
        let (up, shift) = (64 - u32::from(width), if value.signed { "s>>=" } else { ">>=" });
        let left = up.saturating_sub(u32::from(offset));
        if left > 0 {
            self.line(format!("r7 <<= {left}"));
        }
        self.line(format!("r7 {shift} {up}"));
        Ok(())
    }

    fn expr(&mut self, expr: &Expr) -> Result<(), NoCode> {
        match expr {
            Expr::Register(register) => {
                let from = in_context("r6", *register)?;
                self.line(format!("r7 = {from}"));
            }
            Expr::Entry(register) => {
                let (_, slot) = self.entry.iter().find(|(other, _)| other == register).ok_or(NoCode::Entry)?;
                let (slot, known, failed) = (*slot, self.has_entry, self.failed());
                self.line(format!(
                    "r7 = *(u64 *)(r10 - {known})\nif r7 == 0 goto {failed}\nr7 = *(u64 *)(r10 - {slot})"
                ));
            }
            Expr::Constant(value) => self.constant("r7", *value),
            Expr::Address(_) if self.base == Base::Unknown => return Err(NoCode::Bias),
            Expr::Address(address) => {
                self.constant("r7", *address);
                if self.base != Base::Fixed {
                    self.line("r7 += r9");
                }
            }
            Expr::Load { address, size } => {
                self.expr(address)?;
                let slot = self.slot();
                self.line(format!("*(u64 *)(r10 - {slot}) = 0"));
                self.read(slot, usize::from(*size));
                self.line(format!("r7 = *(u64 *)(r10 - {slot})"));
                self.free();
            }
            Expr::Unary(op, of) => {
                self.expr(of)?;
                self.unary(*op);
            }
            Expr::Binary(op, left, right) => self.binary(*op, left, right)?,
        }
        Ok(())
    }

    /// Copies registers from what the companion at the function's entry kept of this call, by thread and frame address.
    pub(super) fn entry(&mut self, cfa: &Expr, registers: &[Register]) -> Result<(), NoCode> {
        if cfa.any(&|expr| matches!(expr, Expr::Load { .. } | Expr::Entry(_))) {
            return Err(NoCode::Entry);
        }
        self.has_entry = self.slot();
        self.line(format!("*(u64 *)(r10 - {}) = 0", self.has_entry));
        for register in registers {
            let slot = self.slot();
            self.line(format!("*(u64 *)(r10 - {slot}) = 0"));
            self.entry.push((*register, slot));
        }
        self.expr(cfa)?;
        let (frame, thread) = (self.slot(), self.slot());
        self.line(format!("*(u64 *)(r10 - {frame}) = r7\ncall 14\n*(u64 *)(r10 - {thread}) = r0"));
        let found = self.label();
        self.line(format!("r1 = {KEPT} ll\nr2 = r10\nr2 += -{thread}\ncall 1\nif r0 == 0 goto {found}"));
        self.line(format!("r1 = 1\n*(u64 *)(r10 - {}) = r1", self.has_entry));
        for (register, slot) in self.entry.clone() {
            let offset = 8 * register.0;
            self.line(format!("r1 = *(u64 *)(r0 + {offset})\n*(u64 *)(r10 - {slot}) = r1"));
        }
        self.line(format!("{found}:"));
        self.free();
        self.free();
        Ok(())
    }

    /// Copies so many bytes from the address in `r7` to the frame.
    pub(super) fn read(&mut self, slot: usize, size: usize) {
        self.line(format!("r1 = r10\nr1 += -{slot}\nr2 = {size}\nr3 = r7\ncall {}", self.memory.helper()));
        let failed = self.failed();
        self.line(format!("if r0 != 0 goto {failed}"));
    }

    /// Copies a string from the address in `r7` to the frame, at most so many bytes with its end.
    pub(super) fn string(&mut self, slot: usize, size: usize, memory: Memory) {
        if memory == Memory::Sleepable {
            // It brings the page into memory; there is no helper that sleeps and ends at a zero.
            let scratch = self.slot();
            self.read(scratch, 1);
            self.free();
        }
        self.line(format!("r1 = r10\nr1 += -{slot}\nr2 = {size}\nr3 = r7\ncall {}", memory.string_helper()));
        let failed = self.failed();
        self.line(format!("if r0 s< 0 goto {failed}"));
    }

    fn constant(&mut self, register: &str, value: u64) {
        match i32::try_from(value.cast_signed()) {
            Ok(small) => self.line(format!("{register} = {small}")),
            Err(_) => self.line(format!("{register} = {value:#x} ll")),
        }
    }

    fn unary(&mut self, op: UnaryOp) {
        match op {
            UnaryOp::Not => self.line("r7 ^= -1"),
            UnaryOp::Neg => self.line("r7 = -r7"),
            UnaryOp::Abs => self.line("if r7 s>= 0 goto +1\nr7 = -r7"),
            UnaryOp::Zero(bits) | UnaryOp::Sign(bits) if bits >= 64 => {}
            UnaryOp::Zero(bits) => self.line(format!("r7 <<= {0}\nr7 >>= {0}", 64 - bits)),
            UnaryOp::Sign(bits) => self.line(format!("r7 <<= {0}\nr7 s>>= {0}", 64 - bits)),
        }
    }

    fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> Result<(), NoCode> {
        self.expr(left)?;
        if let (BinaryOp::Add, Expr::Constant(by)) = (op, right)
            && let Ok(by) = i32::try_from(by.cast_signed())
        {
            self.line(format!("r7 += {by}"));
            return Ok(());
        }
        let slot = self.slot();
        self.line(format!("*(u64 *)(r10 - {slot}) = r7"));
        self.expr(right)?;
        self.line(format!("r8 = r7\nr7 = *(u64 *)(r10 - {slot})"));
        self.free();
        self.operation(op);
        Ok(())
    }

    /// `r7 = r7 op r8`, as [`BinaryOp`] says.
    fn operation(&mut self, op: BinaryOp) {
        let failed = match op {
            BinaryOp::Div | BinaryOp::DivU | BinaryOp::Mod | BinaryOp::ModU => self.failed(),
            _ => String::new(),
        };
        let plain = |sign: &str| format!("r7 {sign}= r8");
        let divided = |sign: &str| format!("if r8 == 0 goto {failed}\nr7 {sign}= r8");
        // Of more than 63 bits nothing is left, and BPF takes the distance modulo 64.
        let shifted = |sign: &str, all: &str| format!("if r8 > 63 goto +2\nr7 {sign}= r8\ngoto +1\n{all}");
        let compared = |sign: &str| format!("r3 = 1\nif r7 {sign} r8 goto +1\nr3 = 0\nr7 = r3");
        let text = match op {
            BinaryOp::Add => plain("+"),
            BinaryOp::Sub => plain("-"),
            BinaryOp::Mul => plain("*"),
            BinaryOp::Div => divided("s/"),
            BinaryOp::DivU => divided("/"),
            BinaryOp::Mod => divided("s%"),
            BinaryOp::ModU => divided("%"),
            BinaryOp::And => plain("&"),
            BinaryOp::Or => plain("|"),
            BinaryOp::Xor => plain("^"),
            BinaryOp::Shl => shifted("<<", "r7 = 0"),
            BinaryOp::Shr => shifted(">>", "r7 = 0"),
            BinaryOp::Shra => shifted("s>>", "r7 s>>= 63"),
            BinaryOp::Eq => compared("=="),
            BinaryOp::Ne => compared("!="),
            BinaryOp::Lt => compared("s<"),
            BinaryOp::Le => compared("s<="),
            BinaryOp::Gt => compared("s>"),
            BinaryOp::Ge => compared("s>="),
            BinaryOp::LtU => compared("<"),
            BinaryOp::LeU => compared("<="),
            BinaryOp::GtU => compared(">"),
            BinaryOp::GeU => compared(">="),
        };
        writeln!(self.text, "{text}").expect("strings take all");
    }
}
