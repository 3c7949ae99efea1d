//! Rules for each machine instruction, by the registers with which it is about to run.

use std::ops::Range;

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Formatter as _, Instruction, InstructionInfoFactory,
    IntelFormatter, Mnemonic, OpAccess, OpKind, Register, UsedRegister,
};
use twinbpf_verify::{Access, Argument, Content, Layout, Load};

use super::Stray;

const RSP: usize = 4;
const RSI: usize = 6;
const RDI: usize = 7;
/// Registers of a C function's arguments.
const ARGUMENTS: [usize; 6] = [RDI, RSI, 2, 1, 8, 9];

/// Registers, numbered as in machine code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    pub(super) general: [u64; 16],
    pub(super) rip: u64,
    pub(super) flags: u64,
}

/// A function that has not returned.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Index of the function.
    function: usize,
    /// Where its return address is.
    entry: u64,
    /// The return address.
    back: u64,
    /// Where code of others that it has called returns to.
    out: Option<u64>,
}

/// See the module documentation.
pub(super) struct Rules {
    layout: Layout,
    arena: u64,
    functions: Vec<Range<u64>>,
    /// Known from the first entry on.
    context: u64,
    /// Addresses of the tables, likewise.
    regions: Vec<u64>,
    /// The native stack, likewise.
    stack: Range<u64>,
    frames: Vec<Frame>,
    /// A call or jump to the start of a function was just checked.
    arriving: bool,
    /// r10 of the first function, and the greatest there may be.
    frame: (u64, u64),
    /// Functions that have returned, or that others have taken the frame of.
    gone: Vec<usize>,
    info: InstructionInfoFactory,
}

type Checked = Result<(), String>;

impl Rules {
    pub(super) fn new(layout: Layout, arena: u64, functions: Vec<Range<u64>>) -> Rules {
        Rules {
            layout,
            arena,
            functions,
            context: 0,
            regions: Vec::new(),
            stack: 0..0,
            frames: Vec::new(),
            arriving: false,
            frame: (0, 0),
            gone: Vec::new(),
            info: InstructionInfoFactory::new(),
        }
    }

    /// Checks the instruction that is about to run. Code of others may do what it likes.
    pub(super) fn check(&mut self, regs: &Registers) -> Result<(), Stray> {
        let Some(function) = self.functions.iter().position(|range| range.contains(&regs.rip)) else { return Ok(()) };
        let rest = self.functions[function].end - regs.rip;
        let mut bytes = [0; 15];
        let len = rest.min(15) as usize;
        for (byte, at) in bytes[..len].iter_mut().zip(regs.rip..) {
            *byte = read::<1>(at)[0];
        }
        let instruction = Decoder::with_ip(64, &bytes[..len], regs.rip, DecoderOptions::NONE).decode();
        self.arrive(function, regs)
            .and_then(|()| self.stays_watched(&instruction))
            .and_then(|()| self.memory(function, &instruction, regs))
            .and_then(|()| self.control(function, &instruction, regs))
            .map_err(|what| {
                let mut text = String::new();
                IntelFormatter::new().format(&instruction, &mut text);
                let before = self.frames.iter().rev().map(|frame| frame.function).chain(self.gone.iter().copied());
                let before = before.map(|function| self.functions[function].start).collect();
                Stray { at: regs.rip, before, what: format!("`{text}` {what}") }
            })
    }

    /// How control has come here.
    fn arrive(&mut self, function: usize, regs: &Registers) -> Checked {
        let stack = regs.general[RSP];
        let at_entry = regs.rip == self.functions[function].start;
        if std::mem::take(&mut self.arriving) {
            return if at_entry { Ok(()) } else { Err("runs after a call of something else".to_owned()) };
        }
        if at_entry {
            if self.context == 0 {
                self.learn(regs);
            }
            // What ended early does not come back.
            while self.frames.last().is_some_and(|top| top.entry <= stack) {
                self.frames.pop();
            }
            if self.frames.is_empty() {
                self.gone.clear();
            }
            self.frames.push(Frame { function, entry: stack, back: word(stack), out: None });
            return Ok(());
        }
        match self.frames.last_mut() {
            Some(top) if top.function == function && top.out.is_none_or(|out| out == regs.rip) => {
                top.out = None;
                Ok(())
            }
            _ => Err("runs, where control must not come".to_owned()),
        }
    }

    /// The first function is entered, by the machine.
    fn learn(&mut self, regs: &Registers) {
        self.context = regs.general[RDI];
        self.regions = vec![0; self.layout.regions.len()];
        for field in &self.layout.fields {
            let value = || word(self.context + u64::from(field.offset));
            match field.access {
                Access::Constant(Load::Region(index)) => self.regions[usize::from(index)] = value(),
                Access::Constant(Load::FrameLimit) => self.frame = (regs.general[RSI], value()),
                Access::Constant(Load::Arena | Load::Number(_)) | Access::Write(_) => {}
            }
        }
        self.stack = mapping(regs.general[RSP]);
    }

    /// Checks that an instruction is one of programs, and not one that could end the watch over them.
    fn stays_watched(&mut self, instruction: &Instruction) -> Checked {
        let flags = matches!(instruction.mnemonic(), Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq);
        let mut used = self.info.info(instruction).used_registers().iter();
        let writes = |used: &UsedRegister| {
            used.register().is_segment_register() && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
        };
        match flags || instruction.is_privileged() || used.any(writes) {
            true => Err("is nothing that programs may do".to_owned()),
            false => Ok(()),
        }
    }

    fn memory(&mut self, function: usize, instruction: &Instruction, regs: &Registers) -> Checked {
        let used: Vec<_> = self.info.info(instruction).used_memory().to_vec();
        for used in used {
            let writes = match used.access() {
                OpAccess::None | OpAccess::NoMemAccess => continue,
                OpAccess::Read | OpAccess::CondRead => false,
                _ => true,
            };
            let address = used.virtual_address(0, |reg, _, _| Some(value(reg, regs)));
            let address = address.expect("all registers have values");
            let bytes = used.memory_size().size() as u64;
            let pushes = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
                || instruction.stack_pointer_increment() < 0;
            let lowest = if pushes && used.base() == Register::RSP { 8 } else { 0 };
            if !self.allows(function, (address, bytes), writes, regs.general[RSP] - lowest) {
                let does = if writes { "writes" } else { "reads" };
                return Err(format!("{does} {bytes} bytes at {}", self.location(address)));
            }
        }
        Ok(())
    }

    fn allows(&self, function: usize, (address, bytes): (u64, u64), writes: bool, lowest: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let inside = |from: u64, to: u64| from <= address && end <= to;
        let margin = self.layout.margin;
        if inside(self.arena - margin, self.arena + self.layout.arena + margin) {
            return true;
        }
        let entry = self.frames.last().map_or(0, |top| top.entry);
        if inside(lowest.max(self.stack.start), entry) {
            return true;
        }
        let off = address.wrapping_sub(self.context);
        if inside(self.context, self.context + u64::from(self.layout.context)) {
            return !writes
                || self.layout.fields.iter().any(|field| {
                    let from = u64::from(field.offset);
                    let to = from + u64::from(field.size * field.count);
                    matches!(field.access, Access::Write(_)) && from <= off && off + bytes <= to
                });
        }
        if !writes && self.layout.words.iter().any(|words| inside(words.start, words.end)) {
            return true;
        }
        let code = &self.functions[function];
        let tables = self.regions.iter().zip(&self.layout.regions).map(|(start, region)| match &region.content {
            Content::Known(words) => (*start, start + 8 * words.len() as u64),
            Content::Functions(count) => (*start, start + 8 * count),
            Content::Bytes(len) => (*start, start + len),
        });
        let mut readable = tables.chain([(code.start, code.end), (entry, entry + 8)]);
        !writes && readable.any(|(from, to)| inside(from, to))
    }

    /// An address, as far as one can say what it is.
    fn location(&self, address: u64) -> String {
        let from = |name: &str, base: u64| {
            let off = address.wrapping_sub(base) as i64;
            format!("{name}{}{:#x}", if off < 0 { '-' } else { '+' }, off.unsigned_abs())
        };
        let near = |base: u64| address.wrapping_sub(base) as i64;
        let entry = self.frames.last().map_or(0, |top| top.entry);
        match () {
            () if near(entry).unsigned_abs() < 1 << 20 => from("entry", entry),
            () if near(self.context).unsigned_abs() < 1 << 12 => from("context", self.context),
            () => from("arena", self.arena),
        }
    }

    fn leave(&mut self, function: usize) {
        if !self.gone.contains(&function) {
            self.gone.push(function);
        }
    }

    fn stray(&self, what: &str, target: u64) -> Checked {
        Err(format!("{what} {}", self.location(target)))
    }

    fn control(&mut self, function: usize, instruction: &Instruction, regs: &Registers) -> Checked {
        let own = self.functions[function].clone();
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let target = instruction.near_branch_target();
                let taken = holds(instruction.condition_code(), regs.flags);
                if taken && !own.contains(&target) {
                    self.stray("jumps out of the function, to", target)
                } else {
                    Ok(())
                }
            }
            FlowControl::IndirectBranch => {
                let target = operand(instruction, regs);
                if own.contains(&target) {
                    return Ok(());
                }
                let last = self.frames.len() - 1;
                let left = regs.general[RSP] == self.frames[last].entry;
                let function = self.functions.iter().position(|range| range.start == target);
                if let Some(function) = function.filter(|_| left) {
                    self.frame_of_callee(regs)?;
                    self.leave(self.frames[last].function);
                    (self.frames[last].function, self.arriving) = (function, true);
                } else if left && self.is_function(target) {
                    self.frames.truncate(last);
                } else {
                    return self.stray("jumps to", target);
                }
                Ok(())
            }
            FlowControl::Call => self.call(instruction, instruction.near_branch_target(), regs),
            FlowControl::IndirectCall => self.call(instruction, operand(instruction, regs), regs),
            FlowControl::Return => {
                let (stack, top) = (regs.general[RSP], self.frames.last().expect("control has arrived"));
                if stack != top.entry || word(stack) != top.back {
                    return self.stray("returns to what is not its return address,", word(stack));
                }
                self.leave(top.function);
                self.frames.pop();
                Ok(())
            }
            FlowControl::Interrupt | FlowControl::XbeginXabortXend => Err("leaves the program".to_owned()),
            FlowControl::Next | FlowControl::Exception => Ok(()),
        }
    }

    /// Checks that r10 of a callee is in this thread's stack. If it is not even in the arena, the callee will show that.
    fn frame_of_callee(&self, regs: &Registers) -> Checked {
        let (r10, (first, limit)) = (regs.general[RSI], self.frame);
        let in_arena = r10.wrapping_sub(self.arena) < self.layout.arena;
        match in_arena && !(first..=limit).contains(&r10) {
            true => self.stray("gives a callee a frame outside the BPF stack, below", r10),
            false => Ok(()),
        }
    }

    fn call(&mut self, instruction: &Instruction, target: u64, regs: &Registers) -> Checked {
        let back = instruction.next_ip();
        if let Some(function) = self.functions.iter().position(|range| range.start == target) {
            self.frame_of_callee(regs)?;
            self.frames.push(Frame { function, entry: regs.general[RSP] - 8, back, out: None });
            self.arriving = true;
            return Ok(());
        }
        let fits = |wanted: &[Argument]| {
            wanted.iter().zip(ARGUMENTS).all(|(wanted, reg)| match (*wanted, regs.general[reg]) {
                (Argument::Any, _) => true,
                (Argument::Context, value) => value == self.context,
                (Argument::Number(number), value) => value == number,
                (Argument::Below(limit), value) => value < limit,
            })
        };
        let mut callees = self.layout.callees.iter().filter(|callee| callee.address == target).peekable();
        let known = callees.peek().is_some();
        if callees.any(|callee| fits(&callee.arguments)) || self.is_function(target) {
            self.frames.last_mut().expect("control has arrived").out = Some(back);
            return Ok(());
        }
        match known {
            true => Err("calls the machine with an argument that it takes for something else".to_owned()),
            false => Err(format!("calls {}", self.location(target))),
        }
    }

    /// Whether the table of functions has this address.
    fn is_function(&self, target: u64) -> bool {
        let tables = self.regions.iter().zip(&self.layout.regions);
        let mut words = tables.flat_map(|(start, region)| match region.content {
            Content::Functions(count) => (0..count).map(|index| start + 8 * index).collect(),
            _ => Vec::new(),
        });
        words.any(|at| word(at) == target)
    }
}

/// What a register holds. Segments begin at zero.
fn value(reg: Register, regs: &Registers) -> u64 {
    let full = reg.full_register();
    if full == Register::RIP {
        return regs.rip;
    }
    if full.is_gpr() { regs.general[full.number()] } else { 0 }
}

/// What an indirect jump or call goes to. Its memory has been checked.
fn operand(instruction: &Instruction, regs: &Registers) -> u64 {
    match instruction.op0_kind() {
        OpKind::Register => value(instruction.op0_register(), regs),
        _ => {
            let at = instruction.virtual_address(0, 0, |reg, _, _| Some(value(reg, regs)));
            word(at.expect("all registers have values"))
        }
    }
}

/// Whether flags fulfil a condition.
fn holds(code: ConditionCode, flags: u64) -> bool {
    let flag = |bit: u32| flags >> bit & 1 != 0;
    let (c, p, z, s, o) = (flag(0), flag(2), flag(6), flag(7), flag(11));
    match code {
        ConditionCode::None => true,
        ConditionCode::o => o,
        ConditionCode::no => !o,
        ConditionCode::b => c,
        ConditionCode::ae => !c,
        ConditionCode::e => z,
        ConditionCode::ne => !z,
        ConditionCode::be => c || z,
        ConditionCode::a => !(c || z),
        ConditionCode::s => s,
        ConditionCode::ns => !s,
        ConditionCode::p => p,
        ConditionCode::np => !p,
        ConditionCode::l => s != o,
        ConditionCode::ge => s == o,
        ConditionCode::le => z || s != o,
        ConditionCode::g => !z && s == o,
    }
}

/// Bytes of this process.
#[expect(unsafe_code, reason = "reads code, stack and tables of a program that runs")]
fn read<const LEN: usize>(at: u64) -> [u8; LEN] {
    // SAFETY: callers give addresses of code, of the stack at the stack pointer, and of tables: all are mapped, and
    // nothing else runs in this process.
    unsafe { std::ptr::with_exposed_provenance::<[u8; LEN]>(at as usize).read_volatile() }
}

fn word(at: u64) -> u64 {
    u64::from_le_bytes(read(at))
}

/// The mapping that an address is in.
fn mapping(address: u64) -> Range<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a list of mappings");
    let mut ranges = maps.lines().filter_map(|line| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
    });
    ranges.find(|range| range.contains(&address)).expect("the stack is mapped")
}
