//! What messages call the numbers of an ELF header.

/// The name of an `e_machine`.
pub(crate) fn machine_name(machine: u16) -> String {
    let name = match machine {
        3 => "i386",
        8 => "MIPS",
        20 => "PowerPC",
        21 => "PowerPC64",
        22 => "s390",
        40 => "ARM",
        62 => "x86-64",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        other => return format!("ELF machine {other}"),
    };
    name.into()
}

/// What an `e_type` other than a relocatable object is.
pub(crate) fn file_type_name(kind: u16) -> &'static str {
    match kind {
        2 => "an executable",
        3 => "a shared library",
        _ => "a core dump",
    }
}
