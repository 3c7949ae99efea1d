//! [`Caller`]: access of a host function to the machine that called it.

use std::fmt;
use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::arg::{MapRef, Ptr, bad_argument};
use super::{Activation, Runtime};
use crate::mem::{Access, Fault, RegionKind, RegionSpec, Text, View, Words};
use crate::trap::{Trap, TrapCode};

/// The calling machine, lent to a host function for one call. `T` is the instance's data.
///
/// Accesses to the program's memory are checked against the exact bounds of its regions. A refused one is a
/// trap that names the function and the argument the pointer came from.
///
/// Values of types with zerocopy's traits are copied in and out, and need not be aligned in the program's memory.
/// Nothing refers to that memory, which other threads may change at any time: where one does, a value of more than a
/// machine word may be half old and half new.
///
/// ```
/// use twinbpf_vm::host::{Caller, HostFn, Ptr};
/// use twinbpf_vm::trap::Trap;
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// /// `struct point { int x, y; }`
/// #[derive(FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Point {
///     x: i32,
///     y: i32,
/// }
///
/// // struct point *mirror(struct point *point), and void swap(struct point *point)
/// HostFn::typed::<(), _>("mirror", |mut caller: Caller<'_, ()>, at: Ptr| -> Result<Ptr, Trap> {
///     let Point { x, y } = caller.read(at)?;
///     caller.alloc(&Point { x: -x, y })
/// });
/// HostFn::typed::<(), _>("swap", |mut caller: Caller<'_, ()>, at: Ptr| -> Result<(), Trap> {
///     let Point { x, y } = caller.read(at)?;
///     caller.write(at, &Point { x: y, y: x })
/// });
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

    /// A copy of a value in the program's memory.
    ///
    /// # Errors
    /// A [`TrapCode::BadArgument`] if not all of its bytes can be read.
    pub fn read<V: FromBytes>(&mut self, from: Ptr) -> Result<V, Trap> {
        let result = self.view().value(from.addr());
        self.checked(from, result)
    }

    /// Copies out of the program's memory into a value or slice.
    ///
    /// # Errors
    /// As [`Caller::read`].
    pub fn read_into<V: FromBytes + IntoBytes + ?Sized>(&mut self, from: Ptr, out: &mut V) -> Result<(), Trap> {
        let result = self.view().read(from.addr(), out.as_mut_bytes());
        self.checked(from, result)
    }

    /// Copies of `count` values that lie side by side in the program's memory, which is checked before the host takes
    /// memory for them.
    ///
    /// # Errors
    /// As [`Caller::read`].
    pub fn read_slice<V: FromBytes>(&mut self, from: Ptr, count: u64) -> Result<Vec<V>, Trap> {
        const { assert!(size_of::<V>() > 0, "values that have bytes") };
        let bytes = self.bytes(from, count.saturating_mul(size_of::<V>() as u64))?;
        let values = bytes.chunks_exact(size_of::<V>());
        Ok(values.map(|bytes| V::read_from_bytes(bytes).expect("as many bytes as a value has")).collect())
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

    /// The bytes of a C string without its NUL, at most `max`.
    pub fn c_str(&mut self, from: Ptr, max: u64) -> Result<Text, Trap> {
        let result = self.view().c_str(from.addr(), max);
        self.checked(from, result)
    }

    /// Copies a value or slice, bytes among them, into the program's memory.
    ///
    /// # Errors
    /// A [`TrapCode::BadArgument`] if not all of its bytes can be written; none is then.
    pub fn write<V: IntoBytes + Immutable + ?Sized>(&mut self, to: Ptr, value: &V) -> Result<(), Trap> {
        let result = self.view().write(to.addr(), value.as_bytes());
        self.checked(to, result)
    }

    /// Copies a value or slice into new memory of the arena, which only this instance can access, and returns its
    /// address. It lives until the call of the embedder's that this is part of returns (not that of a callback), also
    /// if it traps; then the address is invalid, and a map or global that keeps it has a dangling pointer.
    ///
    /// # Errors
    /// A [`TrapCode::Host`] if the engine's memory limit is reached.
    pub fn alloc<V: IntoBytes + Immutable + ?Sized>(&mut self, value: &V) -> Result<Ptr, Trap> {
        let (bytes, function) = (value.as_bytes(), self.function);
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let runtime = self.runtime();
        let spec = RegionSpec::new(format!("memory of {function}"), RegionKind::Host, size);
        let block = runtime.view.arena().alloc(RegionSpec { owner: runtime.view.owner(), ..spec });
        let block = block.map_err(|error| Trap::new(TrapCode::Host, format!("{function}: {error}")))?;
        block.write(0, bytes);
        let address = Ptr::new(block.addr());
        runtime.held.blocks.push(block);
        Ok(address)
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
