//! Results of host functions as r0: extended by their type, errno values negative.

use super::arg::Ptr;
use crate::map::Errno;
use crate::trap::Trap;
use twinbpf_isa::program::ValType;

/// A result that fits r0.
pub trait HostRet {
    /// C type class, part of the function's signature.
    const TYPE: ValType;

    /// r0: integers sign- or zero-extended by their type, floats as their bits.
    fn into_r0(self) -> Result<u64, Trap>;
}

macro_rules! integers {
    ($($Int:ty, $signed:literal, $Wide:ty;)*) => {$(
        impl HostRet for $Int {
            const TYPE: ValType = ValType::Int { size: size_of::<$Int>() as u8, signed: $signed };

            #[inline]
            fn into_r0(self) -> Result<u64, Trap> {
                Ok(<$Wide>::from(self) as u64)
            }
        }
    )*};
}
integers! {
    bool, false, u64; u8, false, u64; u16, false, u64; u32, false, u64; u64, false, u64;
    i8, true, i64; i16, true, i64; i32, true, i64; i64, true, i64;
}

impl HostRet for () {
    const TYPE: ValType = ValType::Void;

    #[inline]
    fn into_r0(self) -> Result<u64, Trap> {
        Ok(0)
    }
}

impl HostRet for f32 {
    const TYPE: ValType = ValType::Float { size: 4 };

    #[inline]
    fn into_r0(self) -> Result<u64, Trap> {
        Ok(u64::from(self.to_bits()))
    }
}

impl HostRet for f64 {
    const TYPE: ValType = ValType::Float { size: 8 };

    #[inline]
    fn into_r0(self) -> Result<u64, Trap> {
        Ok(self.to_bits())
    }
}

impl HostRet for Ptr {
    const TYPE: ValType = ValType::Pointer;

    #[inline]
    fn into_r0(self) -> Result<u64, Trap> {
        Ok(self.addr())
    }
}

/// `None` is the null pointer.
impl HostRet for Option<Ptr> {
    const TYPE: ValType = ValType::Pointer;

    #[inline]
    fn into_r0(self) -> Result<u64, Trap> {
        Ok(self.map_or(0, Ptr::addr))
    }
}

impl<R: HostRet> HostRet for Result<R, Trap> {
    const TYPE: ValType = R::TYPE;

    #[inline]
    fn into_r0(self) -> Result<u64, Trap> {
        self?.into_r0()
    }
}

/// An errno is returned negative, as kernel helpers do.
impl<R: HostRet> HostRet for Result<R, Errno> {
    const TYPE: ValType = ValType::Int { size: 8, signed: true };

    #[inline]
    fn into_r0(self) -> Result<u64, Trap> {
        match self {
            Ok(value) => value.into_r0(),
            Err(errno) => Ok(errno.to_r0()),
        }
    }
}

/// Why a host function did not succeed: with a value the program sees, or for good.
///
/// ```
/// use twinbpf_vm::host::{Fail, HostFn};
/// use twinbpf_vm::map::Errno;
/// use twinbpf_vm::trap::{Trap, TrapCode};
///
/// fn divide(a: u64, b: u64) -> Result<u64, Fail> {
///     match b {
///         0 => Err(Fail::Errno(Errno::EDOM)),
///         13 => Err(Fail::Trap(Trap::new(TrapCode::Host, "unlucky"))),
///         _ => Ok(a / b),
///     }
/// }
/// let divide = HostFn::typed::<(), _>("divide", divide);
/// ```
#[derive(Clone, Debug)]
pub enum Fail {
    /// r0 is the negative errno.
    Errno(Errno),
    /// The program ends here.
    Trap(Trap),
}

impl From<Errno> for Fail {
    fn from(errno: Errno) -> Fail {
        Fail::Errno(errno)
    }
}

impl From<Trap> for Fail {
    fn from(trap: Trap) -> Fail {
        Fail::Trap(trap)
    }
}

impl<R: HostRet> HostRet for Result<R, Fail> {
    const TYPE: ValType = ValType::Int { size: 8, signed: true };

    #[inline]
    fn into_r0(self) -> Result<u64, Trap> {
        match self {
            Ok(value) => value.into_r0(),
            Err(Fail::Errno(errno)) => Ok(errno.to_r0()),
            Err(Fail::Trap(trap)) => Err(trap),
        }
    }
}
