//! Names of numbers: errno values, signals, system calls, addresses of the kernel, times of day. Scripts get them as
//! strings, and records of kernel programs have the numbers.

use signal_hook::low_level::signal_name;
use syscalls::{Errno, Sysno};
use twinbpf::{Caller, Linker, Ptr, Trap};
use twinbpf_vm::os::time_of_day;

use super::SYMBOLS;

/// What a number is a name for: `enum` in `trace.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Errno,
    Signal,
    Syscall,
    Ksym,
    Time,
}

/// By their numbers in records, from 1.
const NAMED: [(Named, &str); 5] = [
    (Named::Errno, "errno_name"),
    (Named::Signal, "signal_name"),
    (Named::Syscall, "syscall_name"),
    (Named::Ksym, "ksym_name"),
    (Named::Time, "time_name"),
];

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
        }
    }

    /// The name, or the number where it has none. Errno values may be negative, as system calls return them.
    pub(crate) fn name(self, number: u64) -> String {
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
        };
        name.unwrap_or_else(|| number.cast_signed().to_string())
    }
}

/// Gives programs `errno_name` and its like: a string that lasts as long as the call.
pub(super) fn functions<T: Send + 'static>(linker: &mut Linker<T>) {
    for (named, name) in NAMED {
        linker.func(&format!("twinbpf_{name}"), move |mut caller: Caller<'_, T>, number: u64| -> Result<Ptr, Trap> {
            caller.alloc(&[named.name(number).as_bytes(), b"\0"].concat()[..])
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Named;

    #[test]
    fn numbers_have_names() {
        let name = |named: Named, number: i64| named.name(number.cast_unsigned());
        assert_eq!(name(Named::Errno, 2), "ENOENT");
        assert_eq!(name(Named::Errno, -13), "EACCES");
        assert_eq!((name(Named::Errno, 0), name(Named::Errno, 99999)), ("0".into(), "99999".into()));
        assert_eq!((name(Named::Signal, 15), name(Named::Signal, 0)), ("SIGTERM".into(), "0".into()));
        assert_eq!(name(Named::Syscall, libc::SYS_openat), "openat");
        assert_eq!(name(Named::Syscall, -1), "-1");
        assert_eq!(name(Named::Ksym, 16), "0x10");
        assert_eq!(name(Named::Time, 0).len(), "00:00:00".len());
        assert_eq!((Named::new(1), Named::new(0), Named::new(6)), (Some(Named::Errno), None, None));
    }
}
