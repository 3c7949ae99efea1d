//! Symbolization of code addresses: kernel addresses by `/proc/kallsyms`, user addresses by mapped files and JIT maps.
//!
//! A process that has ended has no mappings any more. What was remembered of it while it lived
//! ([`Symbols::remember`]) still names the addresses of its files, so that END can print the stacks of a workload.

use std::collections::HashMap;
use std::fmt;

use blazesym::Pid;
use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use twinbpf_kernel::user::Mapping;

/// Processes whose mappings are remembered; of more, none.
const MAX_REMEMBERED: usize = 4096;

/// The function around an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, demangled.
    pub name: String,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// As in a line of a stack: `name+offset`.
impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.name, self.offset)
    }
}

/// What is known of symbols, of one thread.
#[derive(Debug)]
pub struct Symbols {
    symbolizer: Symbolizer,
    remembered: HashMap<u32, Vec<Mapping>>,
}

impl Default for Symbols {
    fn default() -> Symbols {
        let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
        Symbols { symbolizer, remembered: HashMap::new() }
    }
}

impl Symbols {
    /// Names of kernel addresses, in order. What has none (or the system hides the table) is `None`.
    pub fn kernel(&self, addresses: &[u64]) -> Vec<Option<Symbol>> {
        self.symbolize(&Source::Kernel(Kernel::default()), Input::AbsAddr(addresses))
            .unwrap_or(vec![None; addresses.len()])
    }

    /// Names of addresses in a process, in order.
    pub fn user(&self, pid: u32, addresses: &[u64]) -> Vec<Option<Symbol>> {
        let mut process = Process::new(Pid::from(pid));
        // Files by their paths: to open them by address takes a capability.
        process.map_files = false;
        process.debug_syms = false;
        let alive = self.symbolize(&Source::Process(process), Input::AbsAddr(addresses));
        let found = alive.filter(|found| found.iter().any(Option::is_some) || !self.remembered.contains_key(&pid));
        found.unwrap_or_else(|| addresses.iter().map(|address| self.in_remembered(pid, *address)).collect())
    }

    /// Keeps what a process has mapped, for when it has ended.
    pub fn remember(&mut self, pid: u32) {
        let mappings = Mapping::of_process(pid).unwrap_or_default();
        // A zombie's are empty: what was known of it stays.
        if !mappings.is_empty() && (self.remembered.len() < MAX_REMEMBERED || self.remembered.contains_key(&pid)) {
            self.remembered.insert(pid, mappings);
        }
    }

    fn in_remembered(&self, pid: u32, address: u64) -> Option<Symbol> {
        let mappings = self.remembered.get(&pid)?;
        let (mapping, offset) = mappings.iter().find_map(|mapping| Some((mapping, mapping.file_offset(address)?)))?;
        let elf = Source::Elf(Elf::new(&mapping.path));
        self.symbolize(&elf, Input::FileOffset(&[offset]))?.pop()?
    }

    fn symbolize(&self, source: &Source<'_>, input: Input<&[u64]>) -> Option<Vec<Option<Symbol>>> {
        let found = self.symbolizer.symbolize(source, input).ok()?;
        let symbol = |found: Symbolized<'_>| match found {
            Symbolized::Sym(symbol) => Some(Symbol { name: symbol.name.into_owned(), offset: symbol.offset as u64 }),
            Symbolized::Unknown(_) => None,
        };
        Some(found.into_iter().map(symbol).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[inline(never)]
    fn a_function_of_this_test() -> u64 {
        a_function_of_this_test as fn() -> u64 as usize as u64
    }

    #[test]
    fn addresses_of_this_process_have_names() {
        let symbols = Symbols::default();
        let address = a_function_of_this_test();
        let found = symbols.user(std::process::id(), &[address, address + 1, 16]);
        let name = &found[0].as_ref().unwrap().name;
        assert!(name.contains("a_function_of_this_test"), "{name}");
        assert_eq!(found[1], Some(Symbol { name: name.clone(), offset: 1 }));
        assert_eq!(found[2], None);
    }

    #[test]
    fn a_process_that_has_ended_is_remembered() {
        let mut symbols = Symbols::default();
        symbols.remember(std::process::id());
        // No process has this number; its mappings are ours.
        let (ended, address) = (u32::MAX >> 1, a_function_of_this_test());
        assert_eq!(symbols.user(ended, &[address]), [None]);
        let mappings = symbols.remembered[&std::process::id()].clone();
        symbols.remembered.insert(ended, mappings);
        let found = symbols.user(ended, &[address + 2, 16]);
        assert_eq!(found[0], symbols.user(std::process::id(), &[address + 2])[0]);
        assert!(found[0].as_ref().is_some_and(|symbol| symbol.offset == 2), "{found:?}");
        assert_eq!(found[1], None);
    }

    #[test]
    fn kernel_addresses_have_names_where_the_table_is_shown() {
        let table = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let line = table.lines().find(|line| line.ends_with(" T vfs_read"));
        let Some(address) = line.and_then(|line| u64::from_str_radix(&line[..16], 16).ok()).filter(|found| *found != 0)
        else {
            return;
        };
        let found = Symbols::default().kernel(&[address + 4, 8]);
        assert_eq!(found, [Some(Symbol { name: "vfs_read".to_owned(), offset: 4 }), None]);
    }
}
