//! [`Caller`]: access of a host function to the machine that called it.

use std::fmt;
use std::marker::PhantomData;

use super::arg::{MapRef, Ptr, bad_argument};
use super::{Activation, Runtime};
use crate::mem::{Access, Fault, Text, View, Words};
use crate::trap::Trap;

/// The calling machine, lent to a host function for one call. `T` is the instance's data.
///
/// Accesses to the program's memory are checked against the exact bounds of its regions. A refused one is a
/// trap that names the function and the argument the pointer came from.
///
/// ```
/// use twinbpf_vm::host::{Caller, HostFn, Ptr};
/// use twinbpf_vm::trap::Trap;
///
/// // void store(unsigned long *to, unsigned long value);
/// let store = HostFn::typed("store", |mut caller: Caller<'_, u64>, to: Ptr, value: u64| -> Result<(), Trap> {
///     *caller.data_mut() += 1;
///     caller.write(to, &value.to_le_bytes())
/// });
/// # assert_eq!(store.signature().params.len(), 2);
/// ```
pub struct Caller<'a, T> {
    activation: &'a mut dyn Activation,
    function: &'a str,
    data: PhantomData<fn(T) -> T>,
}

impl<T> fmt::Debug for Caller<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({})", self.function)
    }
}

impl<T: 'static> Caller<'_, T> {
    /// The embedder's data of this instance.
    ///
    /// # Panics
    /// If the instance was made with data of another type than the function.
    pub fn data(&mut self) -> &T {
        self.data_mut()
    }

    /// The embedder's data of this instance, to change.
    ///
    /// # Panics
    /// As [`Caller::data`].
    pub fn data_mut(&mut self) -> &mut T {
        let data = self.activation.runtime().data.downcast_mut();
        data.expect("an instance's data has the type its linker was made with")
    }
}

impl<'a, T> Caller<'a, T> {
    #[inline]
    pub(super) fn new(activation: &'a mut dyn Activation, function: &'a str) -> Caller<'a, T> {
        Caller { activation, function, data: PhantomData }
    }

    /// Name of the function, as the program called it.
    pub fn function(&self) -> &'a str {
        self.function
    }

    /// State of the instance.
    #[inline]
    pub fn runtime(&mut self) -> &mut Runtime {
        self.activation.runtime()
    }

    /// The instance's view of memory. Its faults do not know the argument they came from.
    pub fn view(&mut self) -> &View {
        &self.activation.runtime().view
    }

    /// The running engine.
    #[inline]
    pub fn activation(&mut self) -> &mut dyn Activation {
        self.activation
    }

    /// Calls a function of the program by its address, for callbacks.
    pub fn call(&mut self, function: Ptr, args: &[u64]) -> Result<u64, Trap> {
        assert!(args.len() <= 5, "a function has at most five arguments");
        let mut regs = [0; 5];
        regs[..args.len()].copy_from_slice(args);
        // The function that calls back may have made or freed memory.
        self.activation.runtime().view.sync();
        self.activation.call(function.addr(), regs)
    }

    /// A trap if the run is to end: its time is over, or it is cancelled. For host functions that wait or loop.
    pub fn check_interrupt(&mut self) -> Result<(), Trap> {
        if self.runtime().interrupt().is_raised() {
            let trap = self.runtime().interrupt().trap();
            return Err(trap.with_detail(format!("in {}", self.function)));
        }
        Ok(())
    }

    /// A [`TrapCode::BadArgument`](crate::trap::TrapCode::BadArgument) that blames the argument this pointer came from.
    pub fn bad_argument(&self, pointer: Ptr, why: impl fmt::Display) -> Trap {
        bad_argument(self.function, pointer.position(), why)
    }

    fn checked<R>(&self, pointer: Ptr, result: Result<R, Fault>) -> Result<R, Trap> {
        result.map_err(|fault| self.bad_argument(pointer, fault))
    }

    /// Copies out of the program's memory.
    pub fn read(&mut self, from: Ptr, out: &mut [u8]) -> Result<(), Trap> {
        let result = self.view().read(from.addr(), out);
        self.checked(from, result)
    }

    /// 64-bit words of the program's memory.
    pub(crate) fn words(&mut self, from: Ptr, count: usize) -> Result<Words, Trap> {
        let result = self.view().words(from.addr(), count);
        self.checked(from, result)
    }

    /// A copy of `len` bytes of the program's memory.
    pub fn bytes(&mut self, from: Ptr, len: u64) -> Result<Vec<u8>, Trap> {
        let result = self.view().bytes(from.addr(), len);
        self.checked(from, result)
    }

    /// `N` bytes of the program's memory.
    pub fn array<const N: usize>(&mut self, from: Ptr) -> Result<[u8; N], Trap> {
        let mut bytes = [0; N];
        self.read(from, &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes of a C string without its NUL, at most `max`.
    pub fn c_str(&mut self, from: Ptr, max: u64) -> Result<Text, Trap> {
        let result = self.view().c_str(from.addr(), max);
        self.checked(from, result)
    }

    /// Copies into the program's memory.
    pub fn write(&mut self, to: Ptr, bytes: &[u8]) -> Result<(), Trap> {
        let result = self.view().write(to.addr(), bytes);
        self.checked(to, result)
    }

    /// Sets `len` bytes of the program's memory.
    pub fn fill(&mut self, to: Ptr, len: u64, byte: u8) -> Result<(), Trap> {
        let result = self.view().fill(to.addr(), len, byte);
        self.checked(to, result)
    }

    /// Copies inside the program's memory; the ranges may overlap.
    pub fn copy(&mut self, to: Ptr, from: Ptr, len: u64) -> Result<(), Trap> {
        self.check(from, len, Access::Read)?;
        self.check(to, len, Access::Write)?;
        let result = self.view().copy(to.addr(), from.addr(), len);
        self.checked(to, result)
    }

    /// Checks that the program's memory can be accessed.
    pub fn check(&mut self, pointer: Ptr, len: u64, access: Access) -> Result<(), Trap> {
        let result = self.view().check(pointer.addr(), len, access);
        self.checked(pointer, result)
    }

    /// The map with this handle.
    pub fn map(&mut self, handle: Ptr) -> Result<MapRef, Trap> {
        MapRef::find(self.activation.runtime(), self.function, handle)
    }

    /// A copy of the key a program points to.
    pub fn key(&mut self, map: &MapRef, key: Ptr) -> Result<Vec<u8>, Trap> {
        self.bytes(key, u64::from(map.spec().key_size))
    }

    /// A copy of the value a program points to.
    pub fn value(&mut self, map: &MapRef, value: Ptr) -> Result<Vec<u8>, Trap> {
        self.bytes(value, u64::from(map.spec().value_size))
    }
}
