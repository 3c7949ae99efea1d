//! Why there is no point, and why an argument has no place.

use std::path::PathBuf;

/// A definition that leads to no point, or a file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are no such file.
    #[error("not a 64-bit little-endian ELF file of x86-64, aarch64 or riscv64")]
    Kind,
    /// The file is damaged.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// No function has the name.
    #[error("no function {name}{}", offer(.nearest, ": did you mean ", "?"))]
    NoFunction {
        /// Name that was searched.
        name: String,
        /// Names that resemble it, the nearest first.
        nearest: Vec<String>,
    },
    /// No function has the name, since the file has no names.
    #[error(
        "no function {name}: the file has no names of its functions: {why}; a probe by address (0x...) needs no names"
    )]
    NoNames {
        /// Name that was searched.
        name: String,
        /// Why there is no debug information.
        why: String,
    },
    /// No code is at the address.
    #[error("no code is at {address:#x}: the file has code at {}", ranges(.code))]
    NoCode {
        /// Address of the definition.
        address: u64,
        /// Ranges that have code.
        code: Vec<(u64, u64)>,
    },
    /// A return by an address that is not a function's first.
    #[error("{address:#x} is inside of {function}, which begins at {entry:#x}: only there a return can be probed")]
    NoReturn {
        /// Address of the definition.
        address: u64,
        /// Function around it.
        function: String,
        /// First address of the function.
        entry: u64,
    },
    /// A line or an offset of an address.
    #[error("{0} is an address: write the one that is meant, without a line or an offset")]
    Position(String),
    /// A function of the kernel whose arguments are not known.
    #[error("function {function} of the kernel: {why}")]
    KernelFunction {
        /// Function of the definition.
        function: String,
        /// Why its arguments are not known.
        why: String,
    },
    /// No name matches the glob.
    #[error("no function matches {0}: list functions with -F")]
    NoMatch(String),
    /// The function exists, but not in that source file.
    #[error("function {function} is not in a file {file}, but in {}", .files.join(", "))]
    NotInFile {
        /// Function of the definition.
        function: String,
        /// Source file of the definition.
        file: String,
        /// Where functions of that name are.
        files: Vec<String>,
    },
    /// No unit was compiled from the source file.
    #[error("no source file {file}{}", offer(.nearest, ": did you mean ", "?"))]
    NoFile {
        /// Source file of the definition.
        file: String,
        /// Files that resemble it.
        nearest: Vec<String>,
    },
    /// Several source files have the name.
    #[error("{file} is {}: say which by more of its path", .files.join(" or "))]
    AmbiguousFile {
        /// Source file of the definition.
        file: String,
        /// All files of that name.
        files: Vec<String>,
    },
    /// No statement begins on the line.
    #[error("no code is on line {line} of {file}{}", offer_lines(.near))]
    NoLine {
        /// Source file, or function that lines are relative to.
        file: String,
        /// Line as in the definition.
        line: u32,
        /// The lines nearest to it that have code.
        near: Vec<u32>,
    },
    /// The offset is not where an instruction begins.
    #[error("{function}+{offset:#x} is inside of an instruction, which begins at {function}+{start:#x}")]
    InsideInstruction {
        /// Function of the definition.
        function: String,
        /// Offset of the definition.
        offset: u64,
        /// Offset of the instruction around it.
        start: u64,
    },
    /// The offset is beyond the function.
    #[error("{function}+{offset:#x} is beyond the function, which has {size:#x} bytes")]
    BeyondFunction {
        /// Function of the definition.
        function: String,
        /// Offset of the definition.
        offset: u64,
        /// Bytes of the function.
        size: u64,
    },
    /// Nothing returns from an inlined copy.
    #[error("function {0} is inlined wherever it is called: no instruction returns from it")]
    OnlyInlined(String),
    /// All that is there of the function are inlined copies, which the definition excludes.
    #[error("function {0} has inlined copies only, and the definition says inlines=no")]
    InlinesExcluded(String),
    /// A position that needs debug information.
    #[error("{what} needs debug information: {why}")]
    NoDebug {
        /// The position or argument.
        what: String,
        /// What was tried, and what would give it.
        why: String,
    },
    /// The symbol is a resolver of an indirect function.
    #[error("{0} is an indirect function: its symbol is the resolver, which runs once; name an implementation")]
    Indirect(String),
    /// More points than a definition may have.
    #[error("{count} points match, more than {most}: narrow the pattern, or allow more (max=, --max-probes)")]
    TooMany {
        /// Points that match.
        count: usize,
        /// Most points of a definition.
        most: usize,
    },
    /// An argument that cannot be read as one.
    #[error("argument '{text}': {why}")]
    Argument {
        /// Argument of the definition.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Debug information that is not there, or not that of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// No file is there.
    Absent(PathBuf),
    /// The file is of another build.
    Mismatch {
        /// Path of the file.
        path: PathBuf,
        /// Which build id or checksum it has, and which it should have.
        what: String,
    },
    /// The file cannot be used.
    Broken {
        /// Path of the file.
        path: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
}

/// Why an argument has no place at an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing has the name.
    #[error("no variable {name} is there{}", offer(.available, "; there are ", ""))]
    NoVariable {
        /// Name of the argument.
        name: String,
        /// What is there, the nearest first.
        available: Vec<String>,
    },
    /// The debug information has no place for it.
    #[error("it is optimised out: the debug information has no place for it")]
    OptimisedOut,
    /// It has places elsewhere.
    #[error("it has no place {}, only at {}", before(*.pc, .places), ranges(.places))]
    NotHere {
        /// Address of the point.
        pc: u64,
        /// Ranges at which it has one.
        places: Vec<(u64, u64)>,
    },
    /// It is stored where the debug information says only later.
    #[error("the prologue stores it after {pc:#x}: take a line of the function, or an offset after {end:#x}")]
    Prologue {
        /// Address of the point.
        pc: u64,
        /// First address after the prologue.
        end: u64,
    },
    /// No store to its place was found before the point.
    #[error("no instruction before {0:#x} is sure to have stored it at its place in the frame")]
    NotStored(u64),
    /// The place has what the function assigns to it.
    #[error(
        "the function assigns to it first, and the debug information has only that value; callers pass it elsewhere: \
         take the register (%di, ...) by the calling convention"
    )]
    Assigned,
    /// A constant of a local function of LLVM.
    #[error(
        "the debug information has the constant {0}, and does not say whether all callers pass it or the function assigns it"
    )]
    Constant(i64),
    /// Callers pass other arguments than the source says.
    #[error(
        "the compiler may have changed what callers pass: in place of a pointer there may be what it points to, and \
         the debug information does not say where. clang does so at -O3 and with -flto: compile with \
         -grecord-command-line, and it says whether"
    )]
    Promoted,
    /// The function does not read it.
    #[error("the function never reads it, and callers then need not store it where the debug information says")]
    NotPassed,
    /// The frame is not as the debug information takes for granted.
    #[error("its place depends on the frame, which is not known at {0:#x}")]
    NoFrame(u64),
    /// An operation that has no meaning at a probe.
    #[error("the debug information says {0}")]
    Operation(String),
    /// A register that a probe does not see.
    #[error("it is in {kind}%{0}, which a probe cannot read", kind = kind(.0))]
    Register(String),
    /// No register has the name.
    #[error("no register %{0}")]
    NoRegister(String),
    /// More than one value.
    #[error("{ty} is no single value: take one of {}", .members.join(", "))]
    Aggregate {
        /// Type of the value.
        ty: String,
        /// Members of the type.
        members: Vec<String>,
    },
    /// An array as a whole.
    #[error("{ty} is an array: take an element, [0] for example, or :string")]
    Array {
        /// Type of the array.
        ty: String,
    },
    /// A value of more than 64 bits.
    #[error("{ty} has {size} bytes, more than a probe can take at once")]
    Wide {
        /// Type of the value.
        ty: String,
        /// Its size in bytes.
        size: u64,
    },
    /// The type has no such member.
    #[error("{ty} has no member {name}{}", offer(.members, "; there are ", ""))]
    NoMember {
        /// Type of what is before the member.
        ty: String,
        /// Name of the member.
        name: String,
        /// Members of the type, the nearest first.
        members: Vec<String>,
    },
    /// `.` where `->` is needed, or the reverse.
    #[error("{ty} is {}: write {}{name}", if *.pointer { "a pointer" } else { "no pointer" },
        if *.pointer { "->" } else { "." })]
    Arrow {
        /// Type of what is before the member.
        ty: String,
        /// Whether that is a pointer.
        pointer: bool,
        /// Name of the member.
        name: String,
    },
    /// Nothing can be indexed or followed there.
    #[error("{ty} has no {what}")]
    NoStep {
        /// Type of the value.
        ty: String,
        /// Members or elements.
        what: &'static str,
    },
    /// The index is not in the array.
    #[error("index {index} is beyond {ty}")]
    Index {
        /// Index of the argument.
        index: u64,
        /// Type of the array.
        ty: String,
    },
    /// The type is only declared.
    #[error("{0} is only declared here: its members are not in the debug information")]
    Incomplete(String),
    /// The type is defined in more than one way.
    #[error("{0} is only declared here, and the file has different definitions of it")]
    Different(String),
    /// A pointer that exists nowhere.
    #[error("the pointer itself was optimised away; what it points to can be had ({0}->...)")]
    ImplicitPointer(String),
    /// The function returns nothing.
    #[error("the function returns nothing")]
    Void,
    /// The value returns where a probe does not see it.
    #[error("it returns {0}")]
    Return(String),
    /// The calling convention passes it where a probe does not see it, or where it is not sure.
    #[error("it is passed {0}")]
    Passed(String),
    /// Variables are not there at a return.
    #[error("at a return there is only $retval: variables are gone")]
    AtReturn,
    /// `$retval` at a point that is no return.
    #[error("$retval is only at a return: write FUNCTION%return")]
    NotAtReturn,
    /// A cast that does not fit.
    #[error("{ty} cannot be taken as {cast}: {why}")]
    Cast {
        /// Type of the value.
        ty: String,
        /// Type of the argument.
        cast: String,
        /// Why it cannot be.
        why: &'static str,
    },
    /// No symbol has the name.
    #[error("no symbol {0}")]
    NoSymbol(String),
    /// Debug information is missing.
    #[error("{0}")]
    NoDebug(String),
    /// Debug information is damaged.
    #[error("the debug information is damaged: {0}")]
    Damaged(String),
    /// Debug information nests deeper than any that a compiler writes.
    #[error("the debug information is too complex: {0}")]
    TooComplex(&'static str),
}

impl From<gimli::Error> for Refusal {
    fn from(error: gimli::Error) -> Refusal {
        Refusal::Damaged(error.to_string())
    }
}

/// What a register is, where that is why a probe does not see it.
fn kind(register: &str) -> &'static str {
    let is_float = ["xmm", "st", "v", "f"].iter().any(|name| {
        let number = register.strip_prefix(name);
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    if is_float { "the floating-point register " } else { "" }
}

fn offer(names: &[String], before: &str, after: &str) -> String {
    const MOST: usize = 8;
    match names.len() {
        0 => String::new(),
        len if len > MOST => format!("{before}{} and {} more{after}", names[..MOST].join(", "), len - MOST),
        _ => format!("{before}{}{after}", names.join(", ")),
    }
}

fn offer_lines(near: &[u32]) -> String {
    offer(&near.iter().map(u32::to_string).collect::<Vec<_>>(), ": the nearest are ", "")
}

/// Where there is no place. One that begins at the address itself does so after the statement there.
fn before(pc: u64, places: &[(u64, u64)]) -> String {
    let later = places.iter().any(|(begin, end)| (*begin..*end).contains(&pc));
    format!("{}{pc:#x}", if later { "before the first statement at " } else { "at " })
}

fn ranges(places: &[(u64, u64)]) -> String {
    let shown = places.iter().take(4).map(|(begin, end)| format!("{begin:#x}-{end:#x}"));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if places.len() > 4 {
        text.push_str(&format!(" and {} more", places.len() - 4));
    }
    text
}

/// All of the names, those that resemble `name` first; each once.
pub(crate) fn nearest_first(name: &str, names: Vec<String>) -> Vec<String> {
    let mut all = nearest(name, names.iter().map(String::as_str));
    for other in names {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// At most three names that resemble `name`, the nearest first: at most a third of the letters differ.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let most = name.chars().count() / 3 + 1;
    let mut found: Vec<(usize, &str)> = names
        // Names of other lengths are farther away than that.
        .filter(|other| name.len().abs_diff(other.len()) <= 4 * most)
        .map(|other| (strsim::levenshtein(name, other), other))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}
