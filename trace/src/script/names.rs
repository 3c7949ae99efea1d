//! Names of numbers: errno values, signals, system calls, addresses of the kernel, times of day, cgroups, enumerators. Scripts
//! get them as strings, and records of kernel programs have the numbers.

use std::sync::Arc;

use signal_hook::low_level::signal_name;
use syscalls::{Errno, Sysno};
use twinbpf::{Caller, Linker, Ptr, Trap};
use twinbpf_btf::{Btf, Enum, Type, TypeId};
use twinbpf_vm::os::time_of_day;

use super::{SYMBOLS, cgroups};

/// What a number is a name for: `enum` in `trace.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Errno,
    Signal,
    Syscall,
    Ksym,
    Time,
    Cgroup,
    /// Of a type of the object's, whose number is above the value's 32 bits.
    Enumerator,
}

/// By their numbers in records, from 1.
const NAMED: [(Named, &str); 7] = [
    (Named::Errno, "errno_name"),
    (Named::Signal, "signal_name"),
    (Named::Syscall, "syscall_name"),
    (Named::Ksym, "ksym_name"),
    (Named::Time, "time_name"),
    (Named::Cgroup, "cgroup_path"),
    (Named::Enumerator, ENUM_NAME),
];

const ENUM_NAME: &str = "enum_name";

impl Named {
    pub(crate) fn new(number: u16) -> Option<Named> {
        NAMED.get(usize::from(number).checked_sub(1)?).map(|(named, _)| *named)
    }

    /// What its names are names of.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Named::Errno => "errno",
            Named::Signal => "signal",
            Named::Syscall => "syscall",
            Named::Ksym => "function",
            Named::Time => "time",
            Named::Cgroup => "cgroup",
            Named::Enumerator => "enumerator",
        }
    }

    /// The name, or the number where it has none. Errno values may be negative, as system calls return them. `types` are
    /// those of the object, for enumerators.
    pub(crate) fn name(self, number: u64, types: Option<&Btf>) -> String {
        let small = i32::try_from(number.cast_signed()).ok();
        let name = match self {
            Named::Errno if number == 0 => Some("0".to_owned()),
            Named::Errno => small.and_then(|errno| Errno::new(errno.abs()).name().map(str::to_owned)),
            Named::Signal => small.and_then(|signal| signal_name(signal).map(str::to_owned)),
            Named::Syscall => usize::try_from(number).ok().and_then(Sysno::new).map(|call| call.name().to_owned()),
            Named::Ksym => {
                let symbol = SYMBOLS.with_borrow(|symbols| symbols.kernel(&[number]).pop().flatten());
                return symbol.map_or_else(|| format!("{number:#x}"), |symbol| symbol.name);
            }
            Named::Time => time_of_day(number),
            Named::Cgroup => cgroups::path(number),
            Named::Enumerator => return enumerator(types, number),
        };
        name.unwrap_or_else(|| number.cast_signed().to_string())
    }
}

/// The enumerator of a type with a value, or the value.
fn enumerator(types: Option<&Btf>, number: u64) -> String {
    let (id, low) = (TypeId((number >> 32) as u32), number as u32);
    let found = types.and_then(|btf| match btf.resolve(id) {
        Ok((_, Type::Enum(found) | Type::Enum64(found))) => Some(found),
        _ => None,
    });
    let name = |found: &Enum<'_>| {
        let mut all = (0..found.len()).filter_map(|index| found.get(index));
        Some(all.find(|enumerator| enumerator.value as u32 == low)?.name.to_owned())
    };
    let signed = found.as_ref().is_none_or(|found| found.signed);
    let value = || if signed { low.cast_signed().to_string() } else { low.to_string() };
    found.as_ref().and_then(name).unwrap_or_else(value)
}

/// Gives programs `errno_name` and its like: a string that lasts as long as the call.
pub(super) fn functions<T: Send + 'static>(linker: &mut Linker<T>) {
    for (named, name) in NAMED {
        give(linker, named, name, None);
    }
}

/// Lets `enum_name` know an object's types.
pub(crate) fn set_types<T: Send + 'static>(linker: &mut Linker<T>, types: Option<Arc<Btf>>) {
    give(linker, Named::Enumerator, ENUM_NAME, types);
}

fn give<T: Send + 'static>(linker: &mut Linker<T>, named: Named, name: &str, types: Option<Arc<Btf>>) {
    linker.func(&format!("twinbpf_{name}"), move |mut caller: Caller<'_, T>, number: u64| -> Result<Ptr, Trap> {
        caller.alloc(&[named.name(number, types.as_deref()).as_bytes(), b"\0"].concat()[..])
    });
}

#[cfg(test)]
mod tests {
    use super::Named;

    #[test]
    fn numbers_have_names() {
        let name = |named: Named, number: i64| named.name(number.cast_unsigned(), None);
        assert_eq!(name(Named::Errno, 2), "ENOENT");
        assert_eq!(name(Named::Errno, -13), "EACCES");
        assert_eq!((name(Named::Errno, 0), name(Named::Errno, 99999)), ("0".into(), "99999".into()));
        assert_eq!((name(Named::Signal, 15), name(Named::Signal, 0)), ("SIGTERM".into(), "0".into()));
        assert_eq!(name(Named::Syscall, libc::SYS_openat), "openat");
        assert_eq!(name(Named::Syscall, -1), "-1");
        assert_eq!(name(Named::Ksym, 16), "0x10");
        assert_eq!(name(Named::Time, 0).len(), "00:00:00".len());
        assert_eq!(name(Named::Cgroup, 0), "0");
        assert_eq!(
            (name(Named::Enumerator, 7 << 32 | 5), name(Named::Enumerator, 0xffff_ffff)),
            ("5".into(), "-1".into())
        );
        assert_eq!((Named::new(1), Named::new(0), Named::new(8)), (Some(Named::Errno), None, None));
    }
}
