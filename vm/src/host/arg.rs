//! Arguments of host functions: one register each, checked before the body runs.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::{Activation, Runtime};
use crate::map::MapOps;
use crate::mem::Text;
use crate::trap::{Trap, TrapCode};
use twinbpf_isa::program::ValType;

/// The five argument registers of one call, taken from left to right.
pub struct Args<'a> {
    activation: &'a mut dyn Activation,
    function: &'a str,
    regs: &'a [u64; 5],
    next: u8,
    /// Arguments before the first of `regs`.
    before: u8,
}

impl<'a> Args<'a> {
    #[inline]
    pub(super) fn new(activation: &'a mut dyn Activation, function: &'a str, regs: &'a [u64; 5]) -> Args<'a> {
        Args { activation, function, regs, next: 0, before: 0 }
    }

    /// The arguments after the first one.
    #[inline]
    pub(super) fn after_map(activation: &'a mut dyn Activation, function: &'a str, regs: &'a [u64; 5]) -> Args<'a> {
        Args { before: 1, ..Args::new(activation, function, regs) }
    }

    /// The next register and its number, counted from 1. A sixth does not exist.
    #[inline]
    pub fn register(&mut self) -> (u64, u8) {
        let value = self.regs[usize::from(self.next)];
        self.next += 1;
        (value, self.before + self.next)
    }

    /// State of the instance.
    pub fn runtime(&mut self) -> &mut Runtime {
        self.activation.runtime()
    }

    /// Name of the function that is called.
    pub fn function(&self) -> &str {
        self.function
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Args").field("function", &self.function).field("regs", &self.regs).finish_non_exhaustive()
    }
}

/// The trap of an argument that is not what the function needs, refused accesses through it included.
pub(crate) fn bad_argument(function: &str, position: u8, why: impl fmt::Display) -> Trap {
    Trap::new(TrapCode::BadArgument, format!("argument {position} of {function}: {why}"))
}

/// Something that is passed in one argument register.
pub trait HostArg: Sized {
    /// C type class, part of the function's signature.
    const TYPE: ValType;
    /// Takes all registers that are left; only for [`VarArgs`].
    const VARIADIC: bool = false;

    /// Takes the next register and checks it.
    fn take(args: &mut Args<'_>) -> Result<Self, Trap>;
}

macro_rules! integers {
    ($($Int:ty, $signed:literal;)*) => {$(
        impl HostArg for $Int {
            const TYPE: ValType = ValType::Int { size: size_of::<$Int>() as u8, signed: $signed };

            #[inline]
            fn take(args: &mut Args<'_>) -> Result<Self, Trap> {
                Ok(args.register().0 as $Int)
            }
        }
    )*};
}
integers! { u8, false; u16, false; u32, false; u64, false; i8, true; i16, true; i32, true; i64, true; }

/// As C: any bit of the low byte makes it true.
impl HostArg for bool {
    const TYPE: ValType = ValType::Int { size: 1, signed: false };

    #[inline]
    fn take(args: &mut Args<'_>) -> Result<Self, Trap> {
        Ok(args.register().0 as u8 != 0)
    }
}

impl HostArg for f32 {
    const TYPE: ValType = ValType::Float { size: 4 };

    #[inline]
    fn take(args: &mut Args<'_>) -> Result<Self, Trap> {
        Ok(f32::from_bits(args.register().0 as u32))
    }
}

impl HostArg for f64 {
    const TYPE: ValType = ValType::Float { size: 8 };

    #[inline]
    fn take(args: &mut Args<'_>) -> Result<Self, Trap> {
        Ok(f64::from_bits(args.register().0))
    }
}

/// An address that the program gave. Nothing is known of it until [`Caller`](super::Caller) reads or writes
/// through it; a refused access names the argument it came from.
///
/// ```
/// use twinbpf_vm::host::{Caller, HostFn, Ptr};
/// use twinbpf_vm::trap::Trap;
///
/// /// Swaps two bytes of the program's memory.
/// fn swap<T: 'static>(mut caller: Caller<'_, T>, at: Ptr) -> Result<(), Trap> {
///     let [one, two]: [u8; 2] = caller.read(at)?;
///     caller.write(at, &[two, one])
/// }
/// let function = HostFn::typed::<(), _>("swap", swap::<()>);
/// assert_eq!(Ptr::new(16).offset(8).addr(), 24);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ptr {
    addr: u64,
    position: u8,
}

impl Ptr {
    /// A pointer that is to be passed to a program.
    pub fn new(addr: u64) -> Ptr {
        Ptr { addr, position: 0 }
    }

    /// The address that the program passed.
    #[inline]
    pub fn addr(self) -> u64 {
        self.addr
    }

    /// Whether it is the null pointer.
    pub fn is_null(self) -> bool {
        self.addr == 0
    }

    /// The pointer `bytes` further on, wrapping.
    #[must_use]
    pub fn offset(self, bytes: u64) -> Ptr {
        Ptr { addr: self.addr.wrapping_add(bytes), ..self }
    }

    /// Another address, blamed on the same argument.
    #[must_use]
    pub fn with_addr(self, addr: u64) -> Ptr {
        Ptr { addr, ..self }
    }

    /// Number of the argument it came from, from 1; 0 for one made by the host.
    pub fn position(self) -> u8 {
        self.position
    }
}

impl fmt::Debug for Ptr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.addr)
    }
}

impl HostArg for Ptr {
    const TYPE: ValType = ValType::Pointer;

    #[inline]
    fn take(args: &mut Args<'_>) -> Result<Self, Trap> {
        let (addr, position) = args.register();
        Ok(Ptr { addr, position })
    }
}

/// A C string: a copy of its bytes without the NUL, read inside the bounds of its region.
///
/// ```
/// use twinbpf_vm::host::{CStr, HostFn};
///
/// // unsigned long length(const char *text);
/// let length = HostFn::typed::<(), _>("length", |text: CStr| text.len() as u64);
/// # assert_eq!(length.signature().params.len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct CStr {
    ptr: Ptr,
    bytes: Text,
}

impl CStr {
    /// Where the program has it.
    pub fn ptr(&self) -> Ptr {
        self.ptr
    }

    /// As text, with U+FFFD for what is not UTF-8.
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

impl Deref for CStr {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HostArg for CStr {
    const TYPE: ValType = ValType::Pointer;

    #[inline]
    fn take(args: &mut Args<'_>) -> Result<Self, Trap> {
        let ptr = Ptr::take(args)?;
        let view = &mut args.runtime().view;
        let read = view.c_str(ptr.addr, u64::MAX);
        let bytes = read.map_err(|fault| bad_argument(args.function, ptr.position, fault))?;
        Ok(CStr { ptr, bytes })
    }
}

/// A map, as functions for scripts take it: the program named it by its handle.
///
/// ```
/// use twinbpf_vm::host::{HostFn, MapRef};
///
/// // unsigned int elements(void *map);
/// let elements = HostFn::typed::<(), _>("elements", |map: MapRef| map.len());
/// # assert_eq!(elements.signature().params.len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct MapRef(Arc<dyn MapOps>);

impl MapRef {
    /// The map itself.
    pub fn map(&self) -> &Arc<dyn MapOps> {
        &self.0
    }

    pub(super) fn find(runtime: &mut Runtime, function: &str, handle: Ptr) -> Result<MapRef, Trap> {
        let Some(map) = runtime.recent_maps.get(handle.addr, &runtime.maps) else {
            let why = match runtime.maps.absent(handle.addr) {
                Some(absent) => format!("{absent}; run the program in the kernel"),
                None => format!("{:#x} is not a map; pass the address of a map of this object", handle.addr),
            };
            return Err(bad_argument(function, handle.position, why));
        };
        Ok(MapRef(Arc::clone(&map.map)))
    }
}

impl From<Arc<dyn MapOps>> for MapRef {
    fn from(map: Arc<dyn MapOps>) -> MapRef {
        MapRef(map)
    }
}

impl Deref for MapRef {
    type Target = dyn MapOps;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl HostArg for MapRef {
    const TYPE: ValType = ValType::Pointer;

    #[inline]
    fn take(args: &mut Args<'_>) -> Result<Self, Trap> {
        let handle = Ptr::take(args)?;
        let function = args.function;
        MapRef::find(args.runtime(), function, handle)
    }
}

/// C's `...`: the registers after the fixed parameters. How many of them mean something only the function
/// can know.
///
/// ```
/// use twinbpf_vm::host::{HostFn, VarArgs};
///
/// // unsigned long sum(int count, ...);
/// let sum = HostFn::typed::<(), _>("sum", |count: i32, values: VarArgs| values.take(count as usize).sum::<u64>());
/// assert!(sum.signature().variadic);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct VarArgs {
    regs: [u64; 5],
    next: u8,
}

impl VarArgs {
    /// The next value and the number of the argument it is, from 1.
    pub fn next_arg(&mut self) -> Option<(u64, u8)> {
        let value = *self.regs.get(usize::from(self.next))?;
        self.next += 1;
        Some((value, self.next))
    }
}

impl Iterator for VarArgs {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.next_arg().map(|arg| arg.0)
    }
}

impl HostArg for VarArgs {
    const TYPE: ValType = ValType::Void;
    const VARIADIC: bool = true;

    #[inline]
    fn take(args: &mut Args<'_>) -> Result<Self, Trap> {
        Ok(VarArgs { regs: *args.regs, next: args.next })
    }
}
