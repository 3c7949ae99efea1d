//! Places in files of user space that a probe may go to: where an instruction begins. The kernel sets a breakpoint at
//! any offset that it is given; inside an instruction that changes what the program does.

use std::path::Path;

use super::Options;
use super::target::UprobeSite;
use crate::error::Error;
use crate::user::{Binary, Boundary};

/// Refuses places where no instruction begins, and, unless the options take them, those where that cannot be said.
///
/// # Errors
/// The first such place, and why.
pub(super) fn check(
    what: &str,
    path: &Path,
    sites: &[UprobeSite],
    returns: bool,
    options: &Options<'_>,
) -> Result<(), Error> {
    let refused = |text: String| Error::ours("attach", what, libc::EINVAL, text);
    let binary = Binary::read(path).map_err(|error| refused(error.to_string()))?;
    for UprobeSite { offset, .. } in sites {
        let unproven = match binary.boundary(*offset) {
            Boundary::Function => continue,
            Boundary::Instruction if !returns => continue,
            Boundary::Inside { insn, function } => {
                return Err(refused(format!(
                    "offset {offset:#x} is inside the instruction at {:#x} to {:#x} of the function at {function:#x}: a \
                     probe there would change what the program does",
                    insn.start, insn.end
                )));
            }
            Boundary::Instruction => "a return address is known at the start of a function only".to_owned(),
            Boundary::Unknown(why) => format!("whether an instruction begins there is unknown: {why}"),
        };
        if !options.unproven_places {
            return Err(refused(format!("offset {offset:#x}: {unproven}; --unsafe attaches all the same")));
        }
        log::warn!("{what}: offset {offset:#x}: {unproven}");
    }
    Ok(())
}
