//! Executables and libraries of this process, and their functions.
#![expect(unsafe_code, reason = "the loader's list of objects")]

use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fmt;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::Error;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::code::{Code, Marks};
use crate::frames::Frames;
use crate::memory::read_of;

/// An executable or library that is loaded into this process.
pub struct Module {
    path: PathBuf,
    bias: u64,
    /// Executable segments as the file has them, by address in this process.
    text: BTreeMap<u64, Vec<u8>>,
    /// By address; of several names the exported ones first.
    functions: Vec<(Arc<str>, Range<u64>)>,
    /// Where the kernel starts it.
    entry: u64,
    unwinding: Frames,
    /// Bounds of functions by unwind information, by address.
    frames: OnceLock<Vec<Range<u64>>>,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    marks: Marks,
}

/// A function of a [`Module`], or an instruction inside one ([`Function::at_offset`]).
#[derive(Clone)]
pub struct Function {
    pub(crate) module: Arc<Module>,
    /// Of the function alone.
    base: Arc<str>,
    /// With the offset.
    pub(crate) name: Arc<str>,
    /// Where the function begins.
    pub(crate) start: u64,
    /// Where it is hooked.
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Whether it may be hooked by a breakpoint.
    pub(crate) breakpoint: bool,
}

impl Function {
    /// Its name in the symbol table; one without a symbol is named by its module and offset there. An offset in the function
    /// follows, as `main+0x12`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it begins, in this process, or the instruction inside it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The instruction `offset` bytes into the function, which [`Hook::attach`](crate::Hook::attach) takes in the place of the
    /// entry: callbacks run before that instruction, with all registers. They leave the function's x87 and MMX registers alone.
    ///
    /// [`Function::check`] says whether there is an instruction that can be hooked.
    #[must_use]
    pub fn at_offset(&self, offset: u64) -> Function {
        let name = if offset == 0 { Arc::clone(&self.base) } else { format!("{}+{offset:#x}", self.base).into() };
        Function { name, address: self.start.wrapping_add(offset), ..self.clone() }
    }

    /// The same function, which may be hooked by a breakpoint (`int3`) where a jump does not fit in: it is too short, or branches
    /// lead into its first bytes. Each call takes a signal then, which costs a microsecond or more, and a thread that blocks
    /// SIGTRAP may not call it: the kernel ends its process.
    #[must_use]
    pub fn or_breakpoint(&self) -> Function {
        Function { breakpoint: true, ..self.clone() }
    }

    /// Bytes from the function's start to where it is hooked.
    pub fn offset(&self) -> u64 {
        self.address.wrapping_sub(self.start)
    }

    /// Its bytes, as the symbol table or unwind information has them; 0 where neither does.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the kernel starts the file there.
    pub(crate) fn is_entry_point(&self) -> bool {
        self.start == self.module.entry
    }

    /// The file that it comes from.
    pub fn module(&self) -> &Path {
        &self.module.path
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.breakpoint { ", or by a breakpoint" } else { "" };
        write!(f, "{}:{} at {:#x}{how}", self.module.path.display(), self.name, self.address)
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} functions", self.path.display(), self.functions.len())
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Function {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.size
    }
}

/// An object that a process has loaded.
pub(crate) struct Loaded {
    pid: u32,
    path: PathBuf,
    at: At,
}

/// Where it is.
enum At {
    /// What its addresses are less than those of the process, as the dynamic loader says.
    Bias(u64),
    /// The address of its file's first byte.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Start(u64),
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Loaded {
    /// A file of a process whose first byte is at `start`.
    pub(crate) fn of_process(pid: u32, path: &str, start: u64) -> Loaded {
        Loaded { pid, path: path.into(), at: At::Start(start) }
    }
}

fn loaded() -> Vec<Loaded> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the list below, `info` the loader's.
        let (list, info) = unsafe { (&mut *data.cast::<Vec<Loaded>>(), &*info) };
        let name = if info.dlpi_name.is_null() {
            &[][..]
        } else {
            // SAFETY: a C string of the loader's.
            unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()
        };
        let path = if list.is_empty() && name.is_empty() {
            Path::new("/proc/self/exe")
        } else {
            Path::new(OsStr::from_bytes(name))
        };
        list.push(Loaded { pid: std::process::id(), path: path.to_owned(), at: At::Bias(info.dlpi_addr) });
        0
    }
    let mut list: Vec<Loaded> = Vec::new();
    // SAFETY: the callback gets this list, while it lives.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut list).cast()) };
    list
}

impl Module {
    /// All modules of this process that are files.
    ///
    /// # Errors
    ///
    /// [`Error::Module`]: a file cannot be read, or is no longer the one that was loaded.
    pub fn all() -> Result<Vec<Arc<Module>>, Error> {
        // The vdso has a name, but no file.
        let files = loaded().into_iter().filter(|loaded| loaded.path.is_absolute());
        files.map(|loaded| Module::read(loaded).map(Arc::new)).collect()
    }

    /// The module whose file is `name`: a path, or the last part of one. The executable is `exe` as well.
    ///
    /// # Errors
    ///
    /// [`Error::NoModule`], [`Error::Ambiguous`]; as [`Module::all`].
    pub fn find(name: &str) -> Result<Arc<Module>, Error> {
        let mut found: Vec<(PathBuf, Loaded)> = Vec::new();
        for loaded in loaded().into_iter().filter(|loaded| loaded.path.is_absolute()) {
            let resolved = fs::canonicalize(&loaded.path).unwrap_or_else(|_| loaded.path.clone());
            let is_exe = loaded.path == Path::new("/proc/self/exe") && name == "exe";
            let is_wanted = is_exe || [&loaded.path, &resolved].iter().any(|path| path.ends_with(name));
            if is_wanted && !found.iter().any(|(known, _)| *known == resolved) {
                found.push((resolved, loaded));
            }
        }
        if found.len() > 1 {
            let paths = found.into_iter().map(|(path, _)| path).collect();
            return Err(Error::Ambiguous { name: name.to_owned(), paths });
        }
        let (_, only) = found.pop().ok_or_else(|| Error::NoModule { name: name.to_owned() })?;
        Module::read(only).map(Arc::new)
    }

    pub(crate) fn read(loaded: Loaded) -> Result<Module, Error> {
        let fail = |why: String| Error::Module { path: loaded.path.clone(), why };
        let bytes = fs::read(&loaded.path).map_err(|error| fail(error.to_string()))?;
        let file = object::File::parse(&*bytes).map_err(|error| fail(error.to_string()))?;
        let bias = match loaded.at {
            At::Bias(bias) => bias,
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            At::Start(start) => {
                let first = file.segments().find(|segment| segment.file_range().0 == 0);
                let first = first.ok_or_else(|| fail("no segment has the file's first byte".to_owned()))?;
                start.wrapping_sub(first.address())
            }
        };
        let path = fs::canonicalize(&loaded.path).unwrap_or_else(|_| loaded.path.clone());
        let mut module = Module {
            path,
            bias,
            text: BTreeMap::new(),
            functions: Vec::new(),
            entry: bias + file.entry(),
            unwinding: unwinding(&file),
            frames: OnceLock::new(),
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            marks: Marks::default(),
        };
        for segment in file.segments().filter(|segment| segment.permissions().executable()) {
            let data = segment.data().map_err(|error| fail(error.to_string()))?;
            module.text.insert(bias + segment.address(), data.to_vec());
        }
        let pads = module.addresses(&file, "__patchable_function_entries", loaded.pid);
        module.name_functions(&file, &pads);
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        module.mark(&file, loaded.pid);
        Ok(module)
    }

    /// The words of a section that are addresses in this module's text, as the loader has relocated them.
    fn addresses(&self, file: &object::File<'_>, name: &str, pid: u32) -> Vec<u64> {
        let Some(section) = file.section_by_name(name) else { return Vec::new() };
        let mut bytes = vec![0; section.size() as usize];
        if read_of(pid, self.bias + section.address(), &mut bytes) != bytes.len() {
            return Vec::new();
        }
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        words.filter(|address| self.contains(*address)).collect()
    }

    /// Functions by symbols; pads that no symbol's function begins with are functions, too.
    fn name_functions(&mut self, file: &object::File<'_>, pads: &[u64]) {
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let mut functions: Vec<(u64, bool, Arc<str>, u64)> = Vec::new();
        for symbol in symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition()) {
            let (address, Ok(name)) = (self.bias + symbol.address(), symbol.name()) else { continue };
            let is_resolver = matches!(symbol.flags(), object::SymbolFlags::Elf { st_info, .. } if st_info & 15 == object::elf::STT_GNU_IFUNC);
            if self.contains(address) && !is_resolver {
                functions.push((address, symbol.is_local(), name.into(), symbol.size()));
            }
        }
        let known: HashSet<u64> = functions.iter().map(|(address, ..)| *address).collect();
        let file_name = self.file_name();
        for pad in pads {
            // After a landing pad of indirect branches.
            if !known.contains(pad) && !known.contains(&(pad - 4)) {
                functions.push((*pad, false, format!("{file_name}+{:#x}", pad - self.bias).into(), 0));
            }
        }
        functions.sort_unstable();
        functions.dedup();
        self.functions = functions.into_iter().map(|(at, _, name, size)| (name, at..at + size)).collect();
    }

    /// Address in the file and content of each of these sections that the file has, read anew.
    pub fn sections<const N: usize>(&self, names: [&str; N]) -> [Option<(u64, Vec<u8>)>; N] {
        let bytes = fs::read(&self.path).unwrap_or_default();
        let file = object::File::parse(&*bytes).ok();
        names.map(|name| {
            let section = file.as_ref()?.section_by_name(name)?;
            Some((section.address(), section.data().ok()?.to_vec()))
        })
    }

    /// What is to be added to an address of the file for that in this process. Modulo 2^64.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its functions whose names match `pattern`, with `*` and `?` as in the shell. One of several names is there once.
    pub fn functions(self: &Arc<Module>, pattern: &str) -> Vec<Function> {
        let matching = self.functions.iter().filter(|(name, _)| matches(pattern.as_bytes(), name.as_bytes()));
        let mut found: Vec<Function> = matching.map(|(name, range)| self.function_of(name, range)).collect();
        found.dedup_by_key(|function| function.address);
        found
    }

    /// The function that begins at `address`, by the first of its names.
    pub fn function_at(self: &Arc<Module>, address: u64) -> Option<Function> {
        let index = self.functions.partition_point(|(_, range)| range.start < address);
        let (name, range) = self.functions.get(index).filter(|(_, range)| range.start == address)?;
        Some(self.function_of(name, range))
    }

    /// The instruction at `address` in the function that has it ([`Function::at_offset`]): by its symbol, or else by what
    /// unwinders know of it.
    pub fn function_around(self: &Arc<Module>, address: u64) -> Option<Function> {
        let index = self.functions.partition_point(|(_, range)| range.start <= address);
        // A long function may have others after its start.
        let by_symbol = self.functions[..index].iter().rev().take(8).find(|(_, range)| range.contains(&address));
        if let Some((_, range)) = by_symbol {
            return Some(self.function_at(range.start)?.at_offset(address - range.start));
        }
        let frames = self.frames();
        let index = frames.partition_point(|range| range.start <= address).checked_sub(1)?;
        let range = frames[index].clone();
        let name = format!("{}+{:#x}", self.file_name(), range.start - self.bias).into();
        range.contains(&address).then(|| self.function_of(&name, &range).at_offset(address - range.start))
    }

    fn function_of(self: &Arc<Module>, name: &Arc<str>, range: &Range<u64>) -> Function {
        let size = match range.end - range.start {
            0 => self.frame_at(range.start).map_or(0, |frame| frame.end - frame.start),
            size => size,
        };
        let (base, name) = (Arc::clone(name), Arc::clone(name));
        Function {
            module: Arc::clone(self),
            base,
            name,
            start: range.start,
            address: range.start,
            size,
            breakpoint: false,
        }
    }

    fn frames(&self) -> &[Range<u64>] {
        self.frames.get_or_init(|| {
            let ranges = self.unwinding.ranges().into_iter();
            let here = ranges.map(|range| self.bias.wrapping_add(range.start)..self.bias.wrapping_add(range.end));
            here.filter(|range| range.start < range.end && self.contains(range.start)).collect()
        })
    }

    fn frame_at(&self, address: u64) -> Option<&Range<u64>> {
        let frames = self.frames();
        frames.get(frames.partition_point(|range| range.start < address)).filter(|range| range.start == address)
    }

    fn file_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn contains(&self, address: u64) -> bool {
        self.text.range(..=address).next_back().is_some_and(|(start, bytes)| address - start < bytes.len() as u64)
    }
}

/// What patching code asks.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Module {
    /// Finds what compilers have marked.
    fn mark(&mut self, file: &object::File<'_>, pid: u32) {
        self.marks = Marks {
            mcount: self.addresses(file, "__mcount_loc", pid).into_iter().collect(),
            sleds: self.sleds(file).into_iter().collect(),
            is_go: [".gopclntab", ".go.buildinfo"].iter().any(|name| file.section_by_name(name).is_some()),
            code: OnceLock::new(),
        };
    }

    /// Entry sleds: records of 32 bytes, the address relative to its own place, the kind at 16 (version 2).
    fn sleds(&self, file: &object::File<'_>) -> Vec<u64> {
        let Some(section) = file.section_by_name("xray_instr_map") else { return Vec::new() };
        let Ok(data) = section.data() else { return Vec::new() };
        let start = self.bias + section.address();
        let records = data.chunks_exact(32).enumerate().filter(|(_, record)| record[16] == 0);
        let address = |(index, record): (usize, &[u8])| {
            let relative = u64::from_le_bytes(record[..8].try_into().unwrap_or_default());
            (start + index as u64 * 32).wrapping_add(relative)
        };
        records.map(address).filter(|address| self.contains(*address)).collect()
    }

    /// What the file has at an address of text.
    pub(crate) fn text(&self, address: u64, length: usize) -> &[u8] {
        let Some((start, bytes)) = self.text.range(..=address).next_back() else { return &[] };
        bytes.get((address - start) as usize..).map_or(&[], |bytes| &bytes[..length.min(bytes.len())])
    }

    pub(crate) fn has_mcount(&self, address: u64) -> bool {
        self.marks.mcount.contains(&address)
    }

    pub(crate) fn has_sled(&self, address: u64) -> bool {
        self.marks.sleds.contains(&address)
    }

    /// Whether Go's compiler made it: its runtime walks stacks by return addresses.
    pub(crate) fn is_go(&self) -> bool {
        self.marks.is_go
    }

    /// The lowest address in `range` that a direct branch or call of this module leads to, or where a function begins.
    pub(crate) fn branch_into(&self, range: Range<u64>) -> Option<u64> {
        let index = self.functions.partition_point(|(_, function)| function.start < range.start);
        let function = self.functions.get(index).map(|(_, function)| function.start);
        let function = function.filter(|start| *start < range.end);
        [self.code().branch_into(range), function].into_iter().flatten().min()
    }

    /// What decoding its functions shows, with symbols or without.
    pub(crate) fn code(&self) -> &Code {
        self.marks.code.get_or_init(|| {
            let is_unnamed = |frame: &&Range<u64>| {
                let index = self.functions.partition_point(|(_, range)| range.start < frame.start);
                self.functions.get(index).is_none_or(|(_, range)| range.start != frame.start || range.is_empty())
            };
            let frames = self.frames().iter().filter(is_unnamed);
            let all = self.functions.iter().map(|(_, range)| range).chain(frames);
            Code::new(all.map(|range| (range.start, self.text(range.start, (range.end - range.start) as usize))))
        })
    }
}

/// What the file has for unwinders.
fn unwinding(file: &object::File<'_>) -> Frames {
    let Some(section) = file.section_by_name(".eh_frame") else { return Frames::default() };
    Frames { address: section.address(), bytes: section.data().map(<[u8]>::to_vec).unwrap_or_default() }
}

/// Whether `text` matches a pattern of the shell with `*` and `?`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if pattern.get(p).is_some_and(|byte| *byte == b'?' || *byte == text[t]) && pattern[p] != b'*' {
            (p, t) = (p + 1, t + 1);
        } else if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}
