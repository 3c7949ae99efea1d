//! Network interfaces by name.

use std::ffi::CString;
use std::fmt;

use crate::error::Error;
use crate::sys::net;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Interface name, as in `ip link`.
    pub name: String,
    /// Interface index (`ifindex`).
    pub index: u32,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The interface of this name in the network namespace of this process.
///
/// # Errors
/// There is none.
pub fn interface(name: &str) -> Result<Interface, Error> {
    let failed = |cause| Error::new("if_nametoindex", &format!("interface {name}"), cause);
    let text = CString::new(name).map_err(|error| failed(error.into()))?;
    let index = net::interface(&text).map_err(failed)?;
    Ok(Interface { name: name.to_owned(), index })
}
